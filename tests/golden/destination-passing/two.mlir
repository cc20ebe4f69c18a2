// pass: destination-passing
// target: cpu:x86-64-v3
// show: text
module {
  func.func private @contraction_2x4(%arg0: tensor<2x4xf32>, %arg1: tensor<4x4xf32>) -> tensor<2x4xf32> attributes {kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 2, 4, 4>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1]} {
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<2x4xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<2x4xf32>) -> tensor<2x4xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%arg0, %arg1 : tensor<2x4xf32>, tensor<4x4xf32>) outs(%fill_0 : tensor<2x4xf32>) -> tensor<2x4xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%contract_0 : tensor<2x4xf32>) outs(%empty_0 : tensor<2x4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %mulf_0 = arith.mulf %in, %in : f32
      linalg.yield %mulf_0 : f32
    } -> tensor<2x4xf32>
    return %generic_0 : tensor<2x4xf32>
  }
  func.func private @contraction_2x4_2(%arg0: tensor<2x4xf32>, %arg1: tensor<4x4xf32>) -> tensor<2x4xf32> attributes {kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 2, 4, 4>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1]} {
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<2x4xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<2x4xf32>) -> tensor<2x4xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%arg0, %arg1 : tensor<2x4xf32>, tensor<4x4xf32>) outs(%fill_0 : tensor<2x4xf32>) -> tensor<2x4xf32>
    return %contract_0 : tensor<2x4xf32>
  }
  func.func @y(%arg0: tensor<2x4xf32>, %arg1: tensor<4x4xf32>) -> tensor<2x4xf32> attributes {arguments = ["input:x", "weight:w"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 2, 4>}, repeatable, results = ["result:y"], sizes = []} {
    %call_0 = call @contraction_2x4(%arg0, %arg1) : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %call_1 = call @contraction_2x4_2(%call_0, %arg1) : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    return %call_1 : tensor<2x4xf32>
  }
}
// ----- becomes
module {
  func.func private @contraction_2x4(%arg0: memref<2x4xf32>, %arg1: memref<4x4xf32>, %arg2: memref<2x4xf32>) attributes {access = ["read", "read", "write"], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 2, 4, 4>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1]} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<2x4xf32> to tensor<2x4xf32>
    %to_tensor_1 = bufferization.to_tensor %arg1 restrict : memref<4x4xf32> to tensor<4x4xf32>
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<2x4xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<2x4xf32>) -> tensor<2x4xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%to_tensor_0, %to_tensor_1 : tensor<2x4xf32>, tensor<4x4xf32>) outs(%fill_0 : tensor<2x4xf32>) -> tensor<2x4xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%contract_0 : tensor<2x4xf32>) outs(%empty_0 : tensor<2x4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %mulf_0 = arith.mulf %in, %in : f32
      linalg.yield %mulf_0 : f32
    } -> tensor<2x4xf32>
    bufferization.materialize_in_destination %generic_0 in restrict writable %arg2 : (tensor<2x4xf32>, memref<2x4xf32>) -> ()
    return
  }
  func.func private @contraction_2x4_2(%arg0: memref<2x4xf32>, %arg1: memref<4x4xf32>, %arg2: memref<2x4xf32>) attributes {access = ["read", "read", "write"], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 2, 4, 4>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1]} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<2x4xf32> to tensor<2x4xf32>
    %to_tensor_1 = bufferization.to_tensor %arg1 restrict : memref<4x4xf32> to tensor<4x4xf32>
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<2x4xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<2x4xf32>) -> tensor<2x4xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%to_tensor_0, %to_tensor_1 : tensor<2x4xf32>, tensor<4x4xf32>) outs(%fill_0 : tensor<2x4xf32>) -> tensor<2x4xf32>
    bufferization.materialize_in_destination %contract_0 in restrict writable %arg2 : (tensor<2x4xf32>, memref<2x4xf32>) -> ()
    return
  }
  func.func @y(%arg0: memref<32xi8>, %arg1: memref<64xi8>, %arg2: memref<32xi8>) attributes {arguments = ["input:x", "weight:w", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 2, 4>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<2x4xf32>, tensor<4x4xf32>, tensor<2x4xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<32xi8> to memref<2x4xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<64xi8> to memref<4x4xf32>
    %alloc_0 = memref.alloc() : memref<2x4xf32>
    call @contraction_2x4(%view_0, %view_1, %alloc_0) : (memref<2x4xf32>, memref<4x4xf32>, memref<2x4xf32>) -> ()
    %constant_2 = arith.constant 0 : index
    %view_2 = memref.view %arg1[%constant_2][] : memref<64xi8> to memref<4x4xf32>
    %constant_3 = arith.constant 0 : index
    %view_3 = memref.view %arg2[%constant_3][] : memref<32xi8> to memref<2x4xf32>
    call @contraction_2x4_2(%alloc_0, %view_2, %view_3) : (memref<2x4xf32>, memref<4x4xf32>, memref<2x4xf32>) -> ()
    return
  }
}
