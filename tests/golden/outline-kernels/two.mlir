// pass: outline-kernels
// target: cpu:x86-64-v3
// show: text
module {
  func.func @y(%arg0: tensor<2x4xf32>, %arg1: tensor<4x4xf32>) -> tensor<2x4xf32> attributes {arguments = ["input:x", "weight:w"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 2, 4>}, repeatable, results = ["result:y"], sizes = []} {
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<2x4xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<2x4xf32>) -> tensor<2x4xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%arg0, %arg1 : tensor<2x4xf32>, tensor<4x4xf32>) outs(%fill_0 : tensor<2x4xf32>) -> tensor<2x4xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%contract_0 : tensor<2x4xf32>) outs(%empty_0 : tensor<2x4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %mulf_0 = arith.mulf %in, %in : f32
      linalg.yield %mulf_0 : f32
    } -> tensor<2x4xf32>
    %contract_1 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%generic_0, %arg1 : tensor<2x4xf32>, tensor<4x4xf32>) outs(%fill_0 : tensor<2x4xf32>) -> tensor<2x4xf32>
    return %contract_1 : tensor<2x4xf32>
  }
}
// ----- becomes
module {
  func.func private @contraction_2x4(%arg0: tensor<2x4xf32>, %arg1: tensor<4x4xf32>) -> tensor<2x4xf32> attributes {kernel = "contraction", tied = [-1]} {
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
  func.func private @contraction_2x4_2(%arg0: tensor<2x4xf32>, %arg1: tensor<4x4xf32>) -> tensor<2x4xf32> attributes {kernel = "contraction", tied = [-1]} {
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
