// pass: divide-kernels
// target: cpu:x86-64-v3
// show: text
module {
  func.func private @generic_2x3(%arg0: memref<2x3xf32>, %arg1: memref<2x3xf32>) attributes {access = ["read", "write"], kernel = "generic", tied = [-1], work = {bytes = 48 : i64, context = 0 : i64, operations = 30 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<2x3xf32> to tensor<2x3xf32>
    %empty_0 = tensor.empty() : tensor<2x3xf32>
    %softmax_0 = linalg.softmax dimension(0) ins(%to_tensor_0 : tensor<2x3xf32>) outs(%empty_0 : tensor<2x3xf32>) -> tensor<2x3xf32>
    bufferization.materialize_in_destination %softmax_0 in restrict writable %arg1 : (tensor<2x3xf32>, memref<2x3xf32>) -> ()
    return
  }
  func.func @y(%arg0: memref<24xi8>, %arg1: memref<24xi8>) attributes {arguments = ["input:x", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 2, 3>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<2x3xf32>, tensor<2x3xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<24xi8> to memref<2x3xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<24xi8> to memref<2x3xf32>
    call @generic_2x3(%view_0, %view_1) : (memref<2x3xf32>, memref<2x3xf32>) -> ()
    return
  }
}
// ----- becomes
module {
  func.func private @generic_2x3_part1(%arg0: memref<2x3xf32>, %arg1: memref<3xf32>) attributes {access = ["read", "write"], kernel = "generic", tied = [], work = {bytes = 36 : i64, context = 0 : i64, operations = 6 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict writable : memref<2x3xf32> to tensor<2x3xf32>
    %constant_0 = arith.constant 0xFF800000 : f32
    %empty_0 = tensor.empty() : tensor<3xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<3xf32>) -> tensor<3xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>], iterator_types = ["reduction", "parallel"]} ins(%to_tensor_0 : tensor<2x3xf32>) outs(%fill_0 : tensor<3xf32>) {
    ^bb0(%in: f32, %out: f32):
      %maximumf_0 = arith.maximumf %in, %out : f32
      linalg.yield %maximumf_0 : f32
    } -> tensor<3xf32>
    bufferization.materialize_in_destination %generic_0 in restrict writable %arg1 : (tensor<3xf32>, memref<3xf32>) -> ()
    return
  }
  func.func private @generic_2x3_part2(%arg0: memref<2x3xf32>, %arg1: memref<3xf32>, %arg2: memref<3xf32>) attributes {access = ["read", "read", "write"], kernel = "generic", tied = [], work = {bytes = 48 : i64, context = 0 : i64, operations = 18 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict writable : memref<2x3xf32> to tensor<2x3xf32>
    %to_tensor_1 = bufferization.to_tensor %arg1 restrict writable : memref<3xf32> to tensor<3xf32>
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<3xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<3xf32>) -> tensor<3xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d1)>], iterator_types = ["reduction", "parallel"]} ins(%to_tensor_0, %to_tensor_1 : tensor<2x3xf32>, tensor<3xf32>) outs(%fill_0 : tensor<3xf32>) {
    ^bb0(%in: f32, %in_0: f32, %out: f32):
      %subf_0 = arith.subf %in, %in_0 : f32
      %exp_0 = math.exp %subf_0 : f32
      %addf_0 = arith.addf %exp_0, %out : f32
      linalg.yield %addf_0 : f32
    } -> tensor<3xf32>
    bufferization.materialize_in_destination %generic_0 in restrict writable %arg2 : (tensor<3xf32>, memref<3xf32>) -> ()
    return
  }
  func.func private @generic_2x3_part3(%arg0: memref<2x3xf32>, %arg1: memref<3xf32>, %arg2: memref<3xf32>, %arg3: memref<2x3xf32>) attributes {access = ["read", "read", "read", "write"], kernel = "rows", tied = [], work = {bytes = 72 : i64, context = 0 : i64, operations = 18 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict writable : memref<2x3xf32> to tensor<2x3xf32>
    %to_tensor_1 = bufferization.to_tensor %arg1 restrict writable : memref<3xf32> to tensor<3xf32>
    %to_tensor_2 = bufferization.to_tensor %arg2 restrict writable : memref<3xf32> to tensor<3xf32>
    %empty_0 = tensor.empty() : tensor<2x3xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%to_tensor_0, %to_tensor_1, %to_tensor_2 : tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>) outs(%empty_0 : tensor<2x3xf32>) {
    ^bb0(%in: f32, %in_0: f32, %in_1: f32, %out: f32):
      %subf_0 = arith.subf %in, %in_0 : f32
      %exp_0 = math.exp %subf_0 : f32
      %divf_0 = arith.divf %exp_0, %in_1 : f32
      linalg.yield %divf_0 : f32
    } -> tensor<2x3xf32>
    bufferization.materialize_in_destination %generic_0 in restrict writable %arg3 : (tensor<2x3xf32>, memref<2x3xf32>) -> ()
    return
  }
  func.func @y(%arg0: memref<24xi8>, %arg1: memref<24xi8>) attributes {arguments = ["input:x", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 2, 3>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<2x3xf32>, tensor<2x3xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<24xi8> to memref<2x3xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<24xi8> to memref<2x3xf32>
    %alloc_0 = memref.alloc() : memref<3xf32>
    %alloc_1 = memref.alloc() : memref<3xf32>
    call @generic_2x3_part1(%view_0, %alloc_0) : (memref<2x3xf32>, memref<3xf32>) -> ()
    call @generic_2x3_part2(%view_0, %alloc_0, %alloc_1) : (memref<2x3xf32>, memref<3xf32>, memref<3xf32>) -> ()
    call @generic_2x3_part3(%view_0, %alloc_0, %alloc_1, %view_1) : (memref<2x3xf32>, memref<3xf32>, memref<3xf32>, memref<2x3xf32>) -> ()
    return
  }
}
