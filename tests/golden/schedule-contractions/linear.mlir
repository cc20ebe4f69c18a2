// pass: schedule-contractions{outputs=48 rows=16 rows-tile=4 outputs-tile=6 vector-outputs=1 depth-unroll=4}
// target: cpu:x86-64-v3
// show: text
module {
  func.func private @contraction_1x4(%arg0: memref<1x8xf32>, %arg1: memref<4x8xbf16>, %arg2: memref<4xf32>, %arg3: memref<1x4xf32>) attributes {access = ["read", "read", "read", "write"], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 1, 4, 8>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1], work = {bytes = 128 : i64, context = 0 : i64, operations = 72 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<1x8xf32> to tensor<1x8xf32>
    %to_tensor_1 = bufferization.to_tensor %arg1 restrict : memref<4x8xbf16> to tensor<4x8xbf16>
    %to_tensor_2 = bufferization.to_tensor %arg2 restrict : memref<4xf32> to tensor<4xf32>
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<1x4xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<1x4xf32>) -> tensor<1x4xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%to_tensor_0, %to_tensor_1 : tensor<1x8xf32>, tensor<4x8xbf16>) outs(%fill_0 : tensor<1x4xf32>) -> tensor<1x4xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%contract_0, %to_tensor_2 : tensor<1x4xf32>, tensor<4xf32>) outs(%empty_0 : tensor<1x4xf32>) {
    ^bb0(%in: f32, %in_0: f32, %out: f32):
      %addf_0 = arith.addf %in, %in_0 : f32
      linalg.yield %addf_0 : f32
    } -> tensor<1x4xf32>
    %generic_1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%generic_0 : tensor<1x4xf32>) outs(%empty_0 : tensor<1x4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %maximumf_0 = arith.maximumf %in, %constant_0 : f32
      linalg.yield %maximumf_0 : f32
    } -> tensor<1x4xf32>
    bufferization.materialize_in_destination %generic_1 in restrict writable %arg3 : (tensor<1x4xf32>, memref<1x4xf32>) -> ()
    return
  }
  func.func @y(%arg0: memref<32xi8>, %arg1: memref<64xi8>, %arg2: memref<16xi8>, %arg3: memref<16xi8>) attributes {arguments = ["input:x", "weight:w", "weight:b", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 1, 8>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<1x8xf32>, tensor<4x8xbf16>, tensor<4xf32>, tensor<1x4xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<32xi8> to memref<1x8xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<64xi8> to memref<4x8xbf16>
    %constant_2 = arith.constant 0 : index
    %view_2 = memref.view %arg2[%constant_2][] : memref<16xi8> to memref<4xf32>
    %constant_3 = arith.constant 0 : index
    %view_3 = memref.view %arg3[%constant_3][] : memref<16xi8> to memref<1x4xf32>
    call @contraction_1x4(%view_0, %view_1, %view_2, %view_3) : (memref<1x8xf32>, memref<4x8xbf16>, memref<4xf32>, memref<1x4xf32>) -> ()
    return
  }
}
// ----- becomes
module {
  func.func private @contraction_1x4(%arg0: memref<1x8xf32>, %arg1: memref<4x8xbf16>, %arg2: memref<4xf32>, %arg3: memref<1x4xf32>) attributes {access = ["read", "read", "read", "write"], block = [1, 1, 1], grid = [1, 1, 1], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 1, 4, 8>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, shared_bytes = 0 : i64, tied = [-1], work = {bytes = 128 : i64, context = 0 : i64, operations = 72 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %alloca_0 = memref.alloca() {alignment = 64 : i64} : memref<1x4xf32>
    %block_id_0 = gpu.block_id x
    %constant_0 = arith.constant 4 : index
    %muli_0 = arith.muli %block_id_0, %constant_0 : index
    %constant_1 = arith.constant 0 : index
    %constant_2 = arith.constant 4 : index
    %constant_3 = arith.constant 1 : index
    scf.for %arg4 = %constant_1 to %constant_2 step %constant_3 {
      %constant_4 = arith.constant dense<0.000000e+00> : vector<8xf32>
      %constant_5 = arith.constant 0 : index
      %constant_6 = arith.constant 8 : index
      %constant_7 = arith.constant 8 : index
      %for_0 = scf.for %arg5 = %constant_5 to %constant_6 step %constant_7 iter_args(%arg6 = %constant_4) -> (vector<8xf32>) {
        %addi_0 = arith.addi %muli_0, %arg4 : index
        %load_0 = vector.load %arg1[%addi_0, %arg5] : memref<4x8xbf16>, vector<8xbf16>
        %extf_0 = arith.extf %load_0 : vector<8xbf16> to vector<8xf32>
        %constant_8 = arith.constant 0 : index
        %load_1 = vector.load %arg0[%constant_8, %arg5] : memref<1x8xf32>, vector<8xf32>
        %fma_0 = vector.fma %load_1, %extf_0, %arg6 : vector<8xf32>
        scf.yield %fma_0 : vector<8xf32>
      }
      %reduction_0 = vector.reduction <add>, %for_0 fastmath<reassoc> : vector<8xf32> into f32
      %constant_9 = arith.constant 0 : index
      memref.store %reduction_0, %alloca_0[%constant_9, %arg4] : memref<1x4xf32>
    }
    %constant_10 = arith.constant 0 : index
    %constant_11 = arith.constant 0 : index
    %load_2 = vector.load %alloca_0[%constant_10, %constant_11] : memref<1x4xf32>, vector<4xf32>
    %load_3 = vector.load %arg2[%muli_0] : memref<4xf32>, vector<4xf32>
    %addf_0 = arith.addf %load_2, %load_3 : vector<4xf32>
    %constant_12 = arith.constant 0.000000e+00 : f32
    %broadcast_0 = vector.broadcast %constant_12 : f32 to vector<4xf32>
    %maximumf_0 = arith.maximumf %addf_0, %broadcast_0 : vector<4xf32>
    %constant_13 = arith.constant 0 : index
    vector.store %maximumf_0, %arg3[%constant_13, %muli_0] : memref<1x4xf32>, vector<4xf32>
    return
  }
  func.func @y(%arg0: memref<32xi8>, %arg1: memref<64xi8>, %arg2: memref<16xi8>, %arg3: memref<16xi8>) attributes {arguments = ["input:x", "weight:w", "weight:b", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 1, 8>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<1x8xf32>, tensor<4x8xbf16>, tensor<4xf32>, tensor<1x4xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<32xi8> to memref<1x8xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<64xi8> to memref<4x8xbf16>
    %constant_2 = arith.constant 0 : index
    %view_2 = memref.view %arg2[%constant_2][] : memref<16xi8> to memref<4xf32>
    %constant_3 = arith.constant 0 : index
    %view_3 = memref.view %arg3[%constant_3][] : memref<16xi8> to memref<1x4xf32>
    call @contraction_1x4(%view_0, %view_1, %view_2, %view_3) : (memref<1x8xf32>, memref<4x8xbf16>, memref<4xf32>, memref<1x4xf32>) -> ()
    return
  }
}
