// pass: contract-products
// target: cpu:x86-64-v3
// show: text
module {
  func.func @y(%arg0: tensor<2x8xf32>, %arg1: tensor<8x4xf32>, %arg2: tensor<2x4xf32>) -> tensor<2x4xf32> attributes {arguments = ["input:x", "weight:w", "weight:s"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 2, 8>}, repeatable, results = ["result:y"], sizes = []} {
    %matmul_0 = linalg.matmul ins(%arg0, %arg1 : tensor<2x8xf32>, tensor<8x4xf32>) outs(%arg2 : tensor<2x4xf32>) -> tensor<2x4xf32>
    return %matmul_0 : tensor<2x4xf32>
  }
}
// ----- becomes
module {
  func.func @y(%arg0: tensor<2x8xf32>, %arg1: tensor<8x4xf32>, %arg2: tensor<2x4xf32>) -> tensor<2x4xf32> attributes {arguments = ["input:x", "weight:w", "weight:s"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 2, 8>}, repeatable, results = ["result:y"], sizes = []} {
    %empty_0 = tensor.empty() : tensor<2x4xf32>
    %constant_0 = arith.constant 0.000000e+00 : f32
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<2x4xf32>) -> tensor<2x4xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%arg0, %arg1 : tensor<2x8xf32>, tensor<8x4xf32>) outs(%fill_0 : tensor<2x4xf32>) -> tensor<2x4xf32>
    %empty_1 = tensor.empty() : tensor<2x4xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%arg2, %contract_0 : tensor<2x4xf32>, tensor<2x4xf32>) outs(%empty_1 : tensor<2x4xf32>) {
    ^bb0(%in: f32, %in_0: f32, %out: f32):
      %addf_0 = arith.addf %in, %in_0 : f32
      linalg.yield %addf_0 : f32
    } -> tensor<2x4xf32>
    return %generic_0 : tensor<2x4xf32>
  }
}
