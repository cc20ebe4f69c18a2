// pass: straighten-reductions
// target: cpu:x86-64-v3
// show: text
#in_order = affine_map<(i, j) -> (i, j)>
#turned = affine_map<(i, j) -> (j, i)>
#rows = affine_map<(i, j) -> (i)>

module {
  func.func @e(%x: tensor<64x32xf32>, %g: tensor<32xf32>) -> (tensor<32xf32>, tensor<64x32xf32>) attributes {entry = "e", arguments = ["input:x", "input:g"], inputs = {}, results = ["result:s", "result:t"], sizes = []} {
    %0 = tensor.empty() : tensor<32x64xf32>
    %t = linalg.generic {indexing_maps = [#turned, #in_order], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x32xf32>) outs(%0 : tensor<32x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<32x64xf32>
    %zero = arith.constant 0.0 : f32
    %1 = tensor.empty() : tensor<32xf32>
    %2 = linalg.fill ins(%zero : f32) outs(%1 : tensor<32xf32>) -> tensor<32xf32>
    %s = linalg.reduce {arith.addf} ins(%t : tensor<32x64xf32>) outs(%2 : tensor<32xf32>) dimensions = [1]
    %u = linalg.generic {indexing_maps = [#rows, #in_order], iterator_types = ["parallel", "parallel"]} ins(%g : tensor<32xf32>) outs(%0 : tensor<32x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<32x64xf32>
    %3 = tensor.empty() : tensor<64x32xf32>
    %v = linalg.generic {indexing_maps = [#turned, #in_order], iterator_types = ["parallel", "parallel"]} ins(%u : tensor<32x64xf32>) outs(%3 : tensor<64x32xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<64x32xf32>
    return %s, %v : tensor<32xf32>, tensor<64x32xf32>
  }
}
// ----- becomes
module {
  func.func @e(%arg0: tensor<64x32xf32>, %arg1: tensor<32xf32>) -> (tensor<32xf32>, tensor<64x32xf32>) attributes {arguments = ["input:x", "input:g"], entry = "e", inputs = {}, results = ["result:s", "result:t"], sizes = []} {
    %empty_0 = tensor.empty() : tensor<32x64xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%arg0 : tensor<64x32xf32>) outs(%empty_0 : tensor<32x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<32x64xf32>
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_1 = tensor.empty() : tensor<32xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_1 : tensor<32xf32>) -> tensor<32xf32>
    %reduce_0 = linalg.reduce { arith.addf } ins(%arg0 : tensor<64x32xf32>) outs(%fill_0 : tensor<32xf32>) dimensions = [0] 
    %generic_1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%arg1 : tensor<32xf32>) outs(%empty_0 : tensor<32x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<32x64xf32>
    %empty_2 = tensor.empty() : tensor<64x32xf32>
    %generic_2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%arg1 : tensor<32xf32>) outs(%empty_2 : tensor<64x32xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<64x32xf32>
    return %reduce_0, %generic_2 : tensor<32xf32>, tensor<64x32xf32>
  }
}
