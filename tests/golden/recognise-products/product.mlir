// pass: recognise-products
// target: cpu:x86-64-v3
// show: text
module {
  func.func private @contraction_2x4(%arg0: tensor<2x8xf32>, %arg1: tensor<8x4xf32>) -> tensor<2x4xf32> attributes {kernel = "contraction", tied = [-1]} {
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<2x4xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<2x4xf32>) -> tensor<2x4xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%arg0, %arg1 : tensor<2x8xf32>, tensor<8x4xf32>) outs(%fill_0 : tensor<2x4xf32>) -> tensor<2x4xf32>
    return %contract_0 : tensor<2x4xf32>
  }
  func.func @y(%arg0: tensor<2x8xf32>, %arg1: tensor<8x4xf32>) -> tensor<2x4xf32> attributes {arguments = ["input:x", "weight:w"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 2, 8>}, repeatable, results = ["result:y"], sizes = []} {
    %call_0 = call @contraction_2x4(%arg0, %arg1) : (tensor<2x8xf32>, tensor<8x4xf32>) -> tensor<2x4xf32>
    return %call_0 : tensor<2x4xf32>
  }
}
// ----- becomes
module {
  func.func private @contraction_2x4(%arg0: tensor<2x8xf32>, %arg1: tensor<8x4xf32>) -> tensor<2x4xf32> attributes {kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 2, 4, 8>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 2, 1>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1]} {
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<2x4xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<2x4xf32>) -> tensor<2x4xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%arg0, %arg1 : tensor<2x8xf32>, tensor<8x4xf32>) outs(%fill_0 : tensor<2x4xf32>) -> tensor<2x4xf32>
    return %contract_0 : tensor<2x4xf32>
  }
  func.func @y(%arg0: tensor<2x8xf32>, %arg1: tensor<8x4xf32>) -> tensor<2x4xf32> attributes {arguments = ["input:x", "weight:w"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 2, 8>}, repeatable, results = ["result:y"], sizes = []} {
    %call_0 = call @contraction_2x4(%arg0, %arg1) : (tensor<2x8xf32>, tensor<8x4xf32>) -> tensor<2x4xf32>
    return %call_0 : tensor<2x4xf32>
  }
}
