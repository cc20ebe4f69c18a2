// pass: outline-kernels{prologue-rows=16 column-sums=1}
// target: rocm:gfx1151
// show: text
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d1)>
#map2 = affine_map<(d0) -> ()>
#map3 = affine_map<(d0) -> (d0)>
#map4 = affine_map<(d0, d1) -> (d0)>
module {
  func.func @f(%arg0: tensor<1024x256xf32>, %arg1: tensor<256xf32>) -> (tensor<1024x256xf32>, tensor<256xf32>) attributes {arguments = ["input:x", "input:b"], entry = "f", extents = array<i64>, inputs = {b = array<i64: 256>, x = array<i64: 1024, 256>}, repeatable, results = ["result:dx", "result:db"], sizes = []} {
    %0 = tensor.empty() : tensor<1024x256xf32>
    %1 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0, %arg1 : tensor<1024x256xf32>, tensor<256xf32>) outs(%0 : tensor<1024x256xf32>) {
    ^bb0(%in: f32, %in_3: f32, %out: f32):
      %15 = arith.addf %in, %in_3 : f32
      linalg.yield %15 : f32
    } -> tensor<1024x256xf32>
    %2 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%1 : tensor<1024x256xf32>) outs(%0 : tensor<1024x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %15 = arith.mulf %in, %in : f32
      linalg.yield %15 : f32
    } -> tensor<1024x256xf32>
    %cst = arith.constant 0.000000e+00 : f32
    %3 = tensor.empty() : tensor<1024xf32>
    %4 = linalg.fill ins(%cst : f32) outs(%3 : tensor<1024xf32>) -> tensor<1024xf32>
    %reduced = linalg.reduce { arith.addf } ins(%2 : tensor<1024x256xf32>) outs(%4 : tensor<1024xf32>) dimensions = [1] 
    %5 = tensor.empty() : tensor<f32>
    %6 = linalg.fill ins(%cst : f32) outs(%5 : tensor<f32>) -> tensor<f32>
    %cst_0 = arith.constant 1.000000e+00 : f32
    %7 = linalg.fill ins(%cst_0 : f32) outs(%5 : tensor<f32>) -> tensor<f32>
    %8 = linalg.generic {indexing_maps = [#map2, #map3], iterator_types = ["parallel"]} ins(%7 : tensor<f32>) outs(%3 : tensor<1024xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<1024xf32>
    %9 = linalg.generic {indexing_maps = [#map4, #map], iterator_types = ["parallel", "parallel"]} ins(%8 : tensor<1024xf32>) outs(%0 : tensor<1024x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<1024x256xf32>
    %10 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%9, %1 : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%0 : tensor<1024x256xf32>) {
    ^bb0(%in: f32, %in_3: f32, %out: f32):
      %15 = arith.mulf %in, %in_3 : f32
      %16 = arith.addf %15, %15 : f32
      linalg.yield %16 : f32
    } -> tensor<1024x256xf32>
    %expanded = tensor.expand_shape %10 [[0, 1], [2]] output_shape [64, 16, 256] : tensor<1024x256xf32> into tensor<64x16x256xf32>
    %11 = tensor.empty() : tensor<64x256xf32>
    %12 = linalg.fill ins(%cst : f32) outs(%11 : tensor<64x256xf32>) -> tensor<64x256xf32>
    %reduced_1 = linalg.reduce { arith.addf } ins(%expanded : tensor<64x16x256xf32>) outs(%12 : tensor<64x256xf32>) dimensions = [1] 
    %13 = tensor.empty() : tensor<256xf32>
    %14 = linalg.fill ins(%cst : f32) outs(%13 : tensor<256xf32>) -> tensor<256xf32>
    %reduced_2 = linalg.reduce { arith.addf } ins(%reduced_1 : tensor<64x256xf32>) outs(%14 : tensor<256xf32>) dimensions = [0] 
    return %10, %reduced_2 : tensor<1024x256xf32>, tensor<256xf32>
  }
}
// ----- becomes
module {
  func.func private @rows_1024x256(%arg0: tensor<1024x256xf32>, %arg1: tensor<256xf32>) -> (tensor<1024x256xf32>, tensor<64x256xf32>) attributes {kernel = "rows", tied = [-1, -1]} {
    %empty_0 = tensor.empty() : tensor<1024x256xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%arg0, %arg1 : tensor<1024x256xf32>, tensor<256xf32>) outs(%empty_0 : tensor<1024x256xf32>) {
    ^bb0(%in: f32, %in_1: f32, %out: f32):
      %addf_0 = arith.addf %in, %in_1 : f32
      linalg.yield %addf_0 : f32
    } -> tensor<1024x256xf32>
    %constant_0 = arith.constant 1.000000e+00 : f32
    %empty_1 = tensor.empty() : tensor<f32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_1 : tensor<f32>) -> tensor<f32>
    %empty_2 = tensor.empty() : tensor<1024xf32>
    %generic_1 = linalg.generic {indexing_maps = [affine_map<(d0) -> ()>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%fill_0 : tensor<f32>) outs(%empty_2 : tensor<1024xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<1024xf32>
    %generic_2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%generic_1 : tensor<1024xf32>) outs(%empty_0 : tensor<1024x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<1024x256xf32>
    %generic_3 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%generic_2, %generic_0 : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%empty_0 : tensor<1024x256xf32>) {
    ^bb0(%in: f32, %in_1: f32, %out: f32):
      %mulf_0 = arith.mulf %in, %in_1 : f32
      %addf_1 = arith.addf %mulf_0, %mulf_0 : f32
      linalg.yield %addf_1 : f32
    } -> tensor<1024x256xf32>
    %expand_shape_0 = tensor.expand_shape %generic_3 [[0, 1], [2]] output_shape [64, 16, 256] : tensor<1024x256xf32> into tensor<64x16x256xf32>
    %constant_1 = arith.constant 0.000000e+00 : f32
    %empty_3 = tensor.empty() : tensor<64x256xf32>
    %fill_1 = linalg.fill ins(%constant_1 : f32) outs(%empty_3 : tensor<64x256xf32>) -> tensor<64x256xf32>
    %reduce_0 = linalg.reduce { arith.addf } ins(%expand_shape_0 : tensor<64x16x256xf32>) outs(%fill_1 : tensor<64x256xf32>) dimensions = [1] 
    return %generic_3, %reduce_0 : tensor<1024x256xf32>, tensor<64x256xf32>
  }
  func.func private @generic_256(%arg0: tensor<64x256xf32>) -> tensor<256xf32> attributes {kernel = "generic", tied = [-1]} {
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<256xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<256xf32>) -> tensor<256xf32>
    %reduce_0 = linalg.reduce { arith.addf } ins(%arg0 : tensor<64x256xf32>) outs(%fill_0 : tensor<256xf32>) dimensions = [0] 
    return %reduce_0 : tensor<256xf32>
  }
  func.func @f(%arg0: tensor<1024x256xf32>, %arg1: tensor<256xf32>) -> (tensor<1024x256xf32>, tensor<256xf32>) attributes {arguments = ["input:x", "input:b"], entry = "f", extents = array<i64>, inputs = {b = array<i64: 256>, x = array<i64: 1024, 256>}, repeatable, results = ["result:dx", "result:db"], sizes = []} {
    %call_0:2 = call @rows_1024x256(%arg0, %arg1) : (tensor<1024x256xf32>, tensor<256xf32>) -> (tensor<1024x256xf32>, tensor<64x256xf32>)
    %call_1 = call @generic_256(%call_0#1) : (tensor<64x256xf32>) -> tensor<256xf32>
    return %call_0#0, %call_1 : tensor<1024x256xf32>, tensor<256xf32>
  }
}
