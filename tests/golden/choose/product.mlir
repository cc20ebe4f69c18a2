// pass: choose
// target: cuda:sm_90a
// show: text
module {
  func.func private @contraction_32x64(%arg0: memref<32x64xf32>, %arg1: memref<64x64xbf16>, %arg2: memref<32x64xf32>) attributes {access = ["read", "read", "write"], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 32, 64, 64>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1], work = {bytes = 24576 : i64, context = 0 : i64, operations = 262144 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<32x64xf32> to tensor<32x64xf32>
    %to_tensor_1 = bufferization.to_tensor %arg1 restrict : memref<64x64xbf16> to tensor<64x64xbf16>
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<32x64xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<32x64xf32>) -> tensor<32x64xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%to_tensor_0, %to_tensor_1 : tensor<32x64xf32>, tensor<64x64xbf16>) outs(%fill_0 : tensor<32x64xf32>) -> tensor<32x64xf32>
    bufferization.materialize_in_destination %contract_0 in restrict writable %arg2 : (tensor<32x64xf32>, memref<32x64xf32>) -> ()
    return
  }
  func.func @y(%arg0: memref<8192xi8>, %arg1: memref<8192xi8>, %arg2: memref<8192xi8>) attributes {arguments = ["input:x", "weight:w", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 32, 64>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<32x64xf32>, tensor<64x64xbf16>, tensor<32x64xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<8192xi8> to memref<32x64xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<8192xi8> to memref<64x64xbf16>
    %constant_2 = arith.constant 0 : index
    %view_2 = memref.view %arg2[%constant_2][] : memref<8192xi8> to memref<32x64xf32>
    call @contraction_32x64(%view_0, %view_1, %view_2) : (memref<32x64xf32>, memref<64x64xbf16>, memref<32x64xf32>) -> ()
    return
  }
}
// ----- becomes
module {
  func.func private @contraction_32x64(%arg0: memref<32x64xf32>, %arg1: memref<64x64xbf16>, %arg2: memref<32x64xf32>) attributes {access = ["read", "read", "write"], chosen = "schedule-gpu-warpgroups", identity = "f29f00aa90b0d0f0", kernel = "contraction", offers = [{refused = "(<= (tile.columns p) 16) is false", schedule = "direct"}, {refused = "(<= (tile.columns p) (if (= (tile.block (tile.left p)) 1) 16 64)) is false", schedule = "skinny"}, {nanoseconds = 2323 : i64, schedule = "matmul"}, {nanoseconds = 1019 : i64, schedule = "schedule-gpu-warpgroups"}, {nanoseconds = 1623 : i64, schedule = "schedule-gpu-contractions"}, {nanoseconds = 1794 : i64, schedule = "schedule-gpu-column-contractions"}], product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 32, 64, 64>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1], work = {bytes = 24576 : i64, context = 0 : i64, operations = 262144 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<32x64xf32> to tensor<32x64xf32>
    %to_tensor_1 = bufferization.to_tensor %arg1 restrict : memref<64x64xbf16> to tensor<64x64xbf16>
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<32x64xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<32x64xf32>) -> tensor<32x64xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%to_tensor_0, %to_tensor_1 : tensor<32x64xf32>, tensor<64x64xbf16>) outs(%fill_0 : tensor<32x64xf32>) -> tensor<32x64xf32>
    bufferization.materialize_in_destination %contract_0 in restrict writable %arg2 : (tensor<32x64xf32>, memref<32x64xf32>) -> ()
    return
  }
  func.func @y(%arg0: memref<8192xi8>, %arg1: memref<8192xi8>, %arg2: memref<8192xi8>) attributes {arguments = ["input:x", "weight:w", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 32, 64>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<32x64xf32>, tensor<64x64xbf16>, tensor<32x64xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<8192xi8> to memref<32x64xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<8192xi8> to memref<64x64xbf16>
    %constant_2 = arith.constant 0 : index
    %view_2 = memref.view %arg2[%constant_2][] : memref<8192xi8> to memref<32x64xf32>
    call @contraction_32x64(%view_0, %view_1, %view_2) : (memref<32x64xf32>, memref<64x64xbf16>, memref<32x64xf32>) -> ()
    return
  }
}
