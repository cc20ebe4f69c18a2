// pass: hoist-slices
// target: cpu:x86-64-v3
// show: text
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d1, d2)>
#map2 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map3 = affine_map<(d0, d1) -> (d0, d1)>
module {
  func.func @out_batch1_positions1(%arg0: tensor<1xi32>, %arg1: tensor<1xi32>, %arg2: tensor<6x8xf32>, %arg3: tensor<12x8xf32>) -> tensor<1x1x12xf32> attributes {arguments = ["input:tokens", "input:positions", "weight:x", "weight:w"], entry = "out", extents = array<i64: 1, 1>, inputs = {positions = array<i64: 1, 1>, tokens = array<i64: 1, 1>}, repeatable, results = ["result:out"], sizes = ["batch", "positions"]} {
    %cst = arith.constant 0.000000e+00 : f32
    %0 = tensor.empty() : tensor<6x12xf32>
    %1 = linalg.fill ins(%cst : f32) outs(%0 : tensor<6x12xf32>) -> tensor<6x12xf32>
    %2 = linalg.contract indexing_maps = [#map, #map1, #map2] ins(%arg2, %arg3 : tensor<6x8xf32>, tensor<12x8xf32>) outs(%1 : tensor<6x12xf32>) -> tensor<6x12xf32>
    %3 = tensor.empty() : tensor<6x12xf32>
    %4 = linalg.softmax dimension(1) ins(%2 : tensor<6x12xf32>) outs(%3 : tensor<6x12xf32>) -> tensor<6x12xf32>
    %5 = tensor.empty() : tensor<6x12xf32>
    %6 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%4 : tensor<6x12xf32>) outs(%5 : tensor<6x12xf32>) {
    ^bb0(%in: f32, %out: f32):
      %7 = linalg.index 0 : index
      %8 = arith.index_cast %7 : index to i32
      %9 = arith.sitofp %8 : i32 to f32
      %10 = arith.mulf %in, %9 : f32
      linalg.yield %10 : f32
    } -> tensor<6x12xf32>
    %expanded = tensor.expand_shape %6 [[0, 1], [2]] output_shape [2, 3, 12] : tensor<6x12xf32> into tensor<2x3x12xf32>
    %extracted_slice = tensor.extract_slice %expanded[1, 2, 0] [1, 1, 12] [1, 1, 1] : tensor<2x3x12xf32> to tensor<1x1x12xf32>
    return %extracted_slice : tensor<1x1x12xf32>
  }
}
// ----- becomes
module {
  func.func @out_batch1_positions1(%arg0: tensor<1xi32>, %arg1: tensor<1xi32>, %arg2: tensor<6x8xf32>, %arg3: tensor<12x8xf32>) -> tensor<1x1x12xf32> attributes {arguments = ["input:tokens", "input:positions", "weight:x", "weight:w"], entry = "out", extents = array<i64: 1, 1>, inputs = {positions = array<i64: 1, 1>, tokens = array<i64: 1, 1>}, repeatable, results = ["result:out"], sizes = ["batch", "positions"]} {
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<6x12xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<6x12xf32>) -> tensor<6x12xf32>
    %extract_slice_0 = tensor.extract_slice %arg2[5, 0] [1, 8] [1, 1] : tensor<6x8xf32> to tensor<1x8xf32>
    %empty_1 = tensor.empty() : tensor<1x12xf32>
    %fill_1 = linalg.fill ins(%constant_0 : f32) outs(%empty_1 : tensor<1x12xf32>) -> tensor<1x12xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%extract_slice_0, %arg3 : tensor<1x8xf32>, tensor<12x8xf32>) outs(%fill_1 : tensor<1x12xf32>) -> tensor<1x12xf32>
    %empty_2 = tensor.empty() : tensor<6x12xf32>
    %empty_3 = tensor.empty() : tensor<1x12xf32>
    %softmax_0 = linalg.softmax dimension(1) ins(%contract_0 : tensor<1x12xf32>) outs(%empty_3 : tensor<1x12xf32>) -> tensor<1x12xf32>
    %empty_4 = tensor.empty() : tensor<6x12xf32>
    %empty_5 = tensor.empty() : tensor<1x12xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%softmax_0 : tensor<1x12xf32>) outs(%empty_5 : tensor<1x12xf32>) {
    ^bb0(%in: f32, %out: f32):
      %index_0 = linalg.index 0 : index
      %constant_1 = arith.constant 5 : index
      %addi_0 = arith.addi %index_0, %constant_1 : index
      %index_cast_0 = arith.index_cast %addi_0 : index to i32
      %sitofp_0 = arith.sitofp %index_cast_0 : i32 to f32
      %mulf_0 = arith.mulf %in, %sitofp_0 : f32
      linalg.yield %mulf_0 : f32
    } -> tensor<1x12xf32>
    %expand_shape_0 = tensor.expand_shape %generic_0 [[0, 1], [2]] output_shape [1, 1, 12] : tensor<1x12xf32> into tensor<1x1x12xf32>
    return %expand_shape_0 : tensor<1x1x12xf32>
  }
}
