// pass: outline-kernels{cached-rows=32}
// target: cuda:sm_90a
// show: text
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d1, d2)>
#map2 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map3 = affine_map<(d0, d1) -> (d0, d1)>
#map4 = affine_map<(d0, d1) -> (d1)>
#map5 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>
#map6 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d3, d4)>
#map7 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>
#map8 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map9 = affine_map<(d0, d1, d2, d3) -> (d0, d1)>
#map10 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d4, d3)>
module {
  func.func @out_batch1_positions32(%arg0: tensor<32xi32>, %arg1: tensor<32xi32>, %arg2: tensor<32x64xf32>, %arg3: tensor<48x64xbf16>, %arg4: tensor<48xf32>, %arg5: tensor<1x1x2x1x48x16xf32>) -> (tensor<32x16xf32>, tensor<1x1x2x1x48x16xf32>) attributes {arguments = ["input:tokens", "input:positions", "weight:x", "weight:w", "weight:b", "state:kv"], bounds = [{first = 0 : i64, input = "positions", last = 47 : i64}], entry = "out", extents = array<i64: 1, 32>, grows = {kv = 4 : i64}, inputs = {positions = array<i64: 1, 32>, tokens = array<i64: 1, 32>}, repeatable, results = ["result:out", "state:kv"], sizes = ["batch", "positions"]} {
    %cst = arith.constant 0.000000e+00 : f32
    %0 = tensor.empty() : tensor<32x48xf32>
    %1 = linalg.fill ins(%cst : f32) outs(%0 : tensor<32x48xf32>) -> tensor<32x48xf32>
    %2 = linalg.contract indexing_maps = [#map, #map1, #map2] ins(%arg2, %arg3 : tensor<32x64xf32>, tensor<48x64xbf16>) outs(%1 : tensor<32x48xf32>) -> tensor<32x48xf32>
    %3 = linalg.generic {indexing_maps = [#map3, #map4, #map3], iterator_types = ["parallel", "parallel"]} ins(%2, %arg4 : tensor<32x48xf32>, tensor<48xf32>) outs(%0 : tensor<32x48xf32>) {
    ^bb0(%in: f32, %in_9: f32, %out: f32):
      %14 = arith.addf %in, %in_9 : f32
      linalg.yield %14 : f32
    } -> tensor<32x48xf32>
    %extracted_slice = tensor.extract_slice %3[0, 0] [32, 16] [1, 1] : tensor<32x48xf32> to tensor<32x16xf32>
    %expanded = tensor.expand_shape %extracted_slice [[0], [1, 2]] output_shape [32, 1, 16] : tensor<32x16xf32> into tensor<32x1x16xf32>
    %extracted_slice_0 = tensor.extract_slice %3[0, 16] [32, 16] [1, 1] : tensor<32x48xf32> to tensor<32x16xf32>
    %expanded_1 = tensor.expand_shape %extracted_slice_0 [[0], [1, 2]] output_shape [32, 1, 16] : tensor<32x16xf32> into tensor<32x1x16xf32>
    %extracted_slice_2 = tensor.extract_slice %3[0, 32] [32, 16] [1, 1] : tensor<32x48xf32> to tensor<32x16xf32>
    %expanded_3 = tensor.expand_shape %extracted_slice_2 [[0], [1, 2]] output_shape [32, 1, 16] : tensor<32x16xf32> into tensor<32x1x16xf32>
    %extracted_slice_4 = tensor.extract_slice %arg5[0, 0, 0, 0, 0, 0] [1, 1, 2, 1, 48, 16] [1, 1, 1, 1, 1, 1] : tensor<1x1x2x1x48x16xf32> to tensor<1x2x1x48x16xf32>
    %c32 = arith.constant 32 : index
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %4 = scf.for %arg6 = %c0 to %c32 step %c1 iter_args(%arg7 = %extracted_slice_4) -> (tensor<1x2x1x48x16xf32>) {
      %extracted_slice_9 = tensor.extract_slice %expanded_1[%arg6, 0, 0] [1, 1, 16] [1, 1, 1] : tensor<32x1x16xf32> to tensor<1x16xf32>
      %14 = arith.divui %arg6, %c32 : index
      %extracted = tensor.extract %arg1[%arg6] : tensor<32xi32>
      %15 = arith.index_cast %extracted : i32 to index
      %inserted_slice_10 = tensor.insert_slice %extracted_slice_9 into %arg7[%14, 0, 0, %15, 0] [1, 1, 1, 1, 16] [1, 1, 1, 1, 1] : tensor<1x16xf32> into tensor<1x2x1x48x16xf32>
      scf.yield %inserted_slice_10 : tensor<1x2x1x48x16xf32>
    }
    %5 = scf.for %arg6 = %c0 to %c32 step %c1 iter_args(%arg7 = %4) -> (tensor<1x2x1x48x16xf32>) {
      %extracted_slice_9 = tensor.extract_slice %expanded_3[%arg6, 0, 0] [1, 1, 16] [1, 1, 1] : tensor<32x1x16xf32> to tensor<1x16xf32>
      %14 = arith.divui %arg6, %c32 : index
      %extracted = tensor.extract %arg1[%arg6] : tensor<32xi32>
      %15 = arith.index_cast %extracted : i32 to index
      %inserted_slice_10 = tensor.insert_slice %extracted_slice_9 into %arg7[%14, 1, 0, %15, 0] [1, 1, 1, 1, 16] [1, 1, 1, 1, 1] : tensor<1x16xf32> into tensor<1x2x1x48x16xf32>
      scf.yield %inserted_slice_10 : tensor<1x2x1x48x16xf32>
    }
    %inserted_slice = tensor.insert_slice %5 into %arg5[0, 0, 0, 0, 0, 0] [1, 1, 2, 1, 48, 16] [1, 1, 1, 1, 1, 1] : tensor<1x2x1x48x16xf32> into tensor<1x1x2x1x48x16xf32>
    %extracted_slice_5 = tensor.extract_slice %5[0, 0, 0, 0, 0] [1, 1, 1, 48, 16] [1, 1, 1, 1, 1] : tensor<1x2x1x48x16xf32> to tensor<1x1x48x16xf32>
    %extracted_slice_6 = tensor.extract_slice %5[0, 1, 0, 0, 0] [1, 1, 1, 48, 16] [1, 1, 1, 1, 1] : tensor<1x2x1x48x16xf32> to tensor<1x1x48x16xf32>
    %expanded_7 = tensor.expand_shape %arg1 [[0, 1]] output_shape [1, 32] : tensor<32xi32> into tensor<1x32xi32>
    %expanded_8 = tensor.expand_shape %expanded [[0, 1], [2], [3]] output_shape [1, 32, 1, 16] : tensor<32x1x16xf32> into tensor<1x32x1x16xf32>
    %6 = tensor.empty() : tensor<1x32x1x48xf32>
    %7 = linalg.fill ins(%cst : f32) outs(%6 : tensor<1x32x1x48xf32>) -> tensor<1x32x1x48xf32>
    %8 = linalg.contract indexing_maps = [#map5, #map6, #map7] ins(%expanded_8, %extracted_slice_5 : tensor<1x32x1x16xf32>, tensor<1x1x48x16xf32>) outs(%7 : tensor<1x32x1x48xf32>) -> tensor<1x32x1x48xf32>
    %9 = linalg.generic {indexing_maps = [#map8, #map9, #map8], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%8, %expanded_7 : tensor<1x32x1x48xf32>, tensor<1x32xi32>) outs(%6 : tensor<1x32x1x48xf32>) {
    ^bb0(%in: f32, %in_9: i32, %out: f32):
      %14 = linalg.index 3 : index
      %15 = arith.index_cast %14 : index to i32
      %16 = arith.cmpi sle, %15, %in_9 : i32
      %cst_10 = arith.constant 2.500000e-01 : f32
      %17 = arith.mulf %in, %cst_10 : f32
      %cst_11 = arith.constant 0xFF800000 : f32
      %18 = arith.select %16, %17, %cst_11 : f32
      linalg.yield %18 : f32
    } -> tensor<1x32x1x48xf32>
    %10 = linalg.softmax dimension(3) ins(%9 : tensor<1x32x1x48xf32>) outs(%6 : tensor<1x32x1x48xf32>) -> tensor<1x32x1x48xf32>
    %11 = tensor.empty() : tensor<1x32x1x16xf32>
    %12 = linalg.fill ins(%cst : f32) outs(%11 : tensor<1x32x1x16xf32>) -> tensor<1x32x1x16xf32>
    %13 = linalg.contract indexing_maps = [#map5, #map10, #map7] ins(%10, %extracted_slice_6 : tensor<1x32x1x48xf32>, tensor<1x1x48x16xf32>) outs(%12 : tensor<1x32x1x16xf32>) -> tensor<1x32x1x16xf32>
    %collapsed = tensor.collapse_shape %13 [[0, 1], [2, 3]] : tensor<1x32x1x16xf32> into tensor<32x16xf32>
    return %collapsed, %inserted_slice : tensor<32x16xf32>, tensor<1x1x2x1x48x16xf32>
  }
}
// ----- becomes
module {
  func.func private @contraction_32x48(%arg0: tensor<32x64xf32>, %arg1: tensor<48x64xbf16>, %arg2: tensor<48xf32>, %arg3: tensor<1x2x1x48x16xf32>, %arg4: tensor<32xi32>) -> (tensor<32x48xf32>, tensor<1x2x1x48x16xf32>) attributes {cached_only, kernel = "contraction", tied = [-1, 3]} {
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<32x48xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<32x48xf32>) -> tensor<32x48xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%arg0, %arg1 : tensor<32x64xf32>, tensor<48x64xbf16>) outs(%fill_0 : tensor<32x48xf32>) -> tensor<32x48xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%contract_0, %arg2 : tensor<32x48xf32>, tensor<48xf32>) outs(%empty_0 : tensor<32x48xf32>) {
    ^bb0(%in: f32, %in_2: f32, %out: f32):
      %addf_0 = arith.addf %in, %in_2 : f32
      linalg.yield %addf_0 : f32
    } -> tensor<32x48xf32>
    %constant_1 = arith.constant 0 : index
    %constant_2 = arith.constant 32 : index
    %constant_3 = arith.constant 1 : index
    %extract_slice_0 = tensor.extract_slice %generic_0[0, 16] [32, 16] [1, 1] : tensor<32x48xf32> to tensor<32x16xf32>
    %expand_shape_0 = tensor.expand_shape %extract_slice_0 [[0], [1, 2]] output_shape [32, 1, 16] : tensor<32x16xf32> into tensor<32x1x16xf32>
    %for_0 = scf.for %arg5 = %constant_1 to %constant_2 step %constant_3 iter_args(%arg6 = %arg3) -> (tensor<1x2x1x48x16xf32>) {
      %extract_slice_1 = tensor.extract_slice %expand_shape_0[%arg5, 0, 0] [1, 1, 16] [1, 1, 1] : tensor<32x1x16xf32> to tensor<1x16xf32>
      %divui_0 = arith.divui %arg5, %constant_2 : index
      %extract_0 = tensor.extract %arg4[%arg5] : tensor<32xi32>
      %index_cast_0 = arith.index_cast %extract_0 : i32 to index
      %insert_slice_0 = tensor.insert_slice %extract_slice_1 into %arg6[%divui_0, 0, 0, %index_cast_0, 0] [1, 1, 1, 1, 16] [1, 1, 1, 1, 1] : tensor<1x16xf32> into tensor<1x2x1x48x16xf32>
      scf.yield %insert_slice_0 : tensor<1x2x1x48x16xf32>
    }
    %extract_slice_2 = tensor.extract_slice %generic_0[0, 32] [32, 16] [1, 1] : tensor<32x48xf32> to tensor<32x16xf32>
    %expand_shape_1 = tensor.expand_shape %extract_slice_2 [[0], [1, 2]] output_shape [32, 1, 16] : tensor<32x16xf32> into tensor<32x1x16xf32>
    %for_1 = scf.for %arg5 = %constant_1 to %constant_2 step %constant_3 iter_args(%arg6 = %for_0) -> (tensor<1x2x1x48x16xf32>) {
      %extract_slice_3 = tensor.extract_slice %expand_shape_1[%arg5, 0, 0] [1, 1, 16] [1, 1, 1] : tensor<32x1x16xf32> to tensor<1x16xf32>
      %divui_1 = arith.divui %arg5, %constant_2 : index
      %extract_1 = tensor.extract %arg4[%arg5] : tensor<32xi32>
      %index_cast_1 = arith.index_cast %extract_1 : i32 to index
      %insert_slice_1 = tensor.insert_slice %extract_slice_3 into %arg6[%divui_1, 1, 0, %index_cast_1, 0] [1, 1, 1, 1, 16] [1, 1, 1, 1, 1] : tensor<1x16xf32> into tensor<1x2x1x48x16xf32>
      scf.yield %insert_slice_1 : tensor<1x2x1x48x16xf32>
    }
    return %generic_0, %for_1 : tensor<32x48xf32>, tensor<1x2x1x48x16xf32>
  }
  func.func private @attention_1x32x1x16(%arg0: tensor<32x48xf32>, %arg1: tensor<1x2x1x48x16xf32>, %arg2: tensor<32xi32>) -> tensor<1x32x1x16xf32> attributes {attention = {bias = "none", cache = {each = 32 : i64, row = 1 : i64}, depths = [16, 16], extents = [1, 32, 1, 48], log_sum = false, mask = "causal", positions = "tensor", queries = [1], shared = [0, 2]}, kernel = "attention", tied = [-1]} {
    %extract_slice_0 = tensor.extract_slice %arg0[0, 0] [32, 16] [1, 1] : tensor<32x48xf32> to tensor<32x16xf32>
    %expand_shape_0 = tensor.expand_shape %extract_slice_0 [[0], [1, 2]] output_shape [32, 1, 16] : tensor<32x16xf32> into tensor<32x1x16xf32>
    %expand_shape_1 = tensor.expand_shape %expand_shape_0 [[0, 1], [2], [3]] output_shape [1, 32, 1, 16] : tensor<32x1x16xf32> into tensor<1x32x1x16xf32>
    %extract_slice_1 = tensor.extract_slice %arg1[0, 0, 0, 0, 0] [1, 1, 1, 48, 16] [1, 1, 1, 1, 1] : tensor<1x2x1x48x16xf32> to tensor<1x1x48x16xf32>
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<1x32x1x48xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<1x32x1x48xf32>) -> tensor<1x32x1x48xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>] {role = "scores"} ins(%expand_shape_1, %extract_slice_1 : tensor<1x32x1x16xf32>, tensor<1x1x48x16xf32>) outs(%fill_0 : tensor<1x32x1x48xf32>) -> tensor<1x32x1x48xf32>
    %expand_shape_2 = tensor.expand_shape %arg2 [[0, 1]] output_shape [1, 32] : tensor<32xi32> into tensor<1x32xi32>
    %constant_1 = arith.constant 2.500000e-01 : f32
    %constant_2 = arith.constant 0xFF800000 : f32
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%contract_0, %expand_shape_2 : tensor<1x32x1x48xf32>, tensor<1x32xi32>) outs(%empty_0 : tensor<1x32x1x48xf32>) attrs =  {role = "weigh"} {
    ^bb0(%in: f32, %in_6: i32, %out: f32):
      %index_0 = linalg.index 3 : index
      %index_cast_0 = arith.index_cast %index_0 : index to i32
      %cmpi_0 = arith.cmpi sle, %index_cast_0, %in_6 : i32
      %mulf_0 = arith.mulf %in, %constant_1 : f32
      %select_0 = arith.select %cmpi_0, %mulf_0, %constant_2 : f32
      linalg.yield %select_0 : f32
    } -> tensor<1x32x1x48xf32>
    %softmax_0 = linalg.softmax {role = "softmax"} dimension(3) ins(%generic_0 : tensor<1x32x1x48xf32>) outs(%empty_0 : tensor<1x32x1x48xf32>) -> tensor<1x32x1x48xf32>
    %extract_slice_2 = tensor.extract_slice %arg1[0, 1, 0, 0, 0] [1, 1, 1, 48, 16] [1, 1, 1, 1, 1] : tensor<1x2x1x48x16xf32> to tensor<1x1x48x16xf32>
    %empty_1 = tensor.empty() : tensor<1x32x1x16xf32>
    %fill_1 = linalg.fill ins(%constant_0 : f32) outs(%empty_1 : tensor<1x32x1x16xf32>) -> tensor<1x32x1x16xf32>
    %contract_1 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d4, d3)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>] {role = "weighted"} ins(%softmax_0, %extract_slice_2 : tensor<1x32x1x48xf32>, tensor<1x1x48x16xf32>) outs(%fill_1 : tensor<1x32x1x16xf32>) -> tensor<1x32x1x16xf32>
    return %contract_1 : tensor<1x32x1x16xf32>
  }
  func.func private @rows_32x16(%arg0: tensor<1x32x1x16xf32>) -> tensor<32x16xf32> attributes {kernel = "rows", tied = [-1]} {
    %collapse_shape_0 = tensor.collapse_shape %arg0 [[0, 1], [2, 3]] : tensor<1x32x1x16xf32> into tensor<32x16xf32>
    %empty_0 = tensor.empty() : tensor<32x16xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%collapse_shape_0 : tensor<32x16xf32>) outs(%empty_0 : tensor<32x16xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<32x16xf32>
    return %generic_0 : tensor<32x16xf32>
  }
  func.func @out_batch1_positions32(%arg0: tensor<32xi32>, %arg1: tensor<32xi32>, %arg2: tensor<32x64xf32>, %arg3: tensor<48x64xbf16>, %arg4: tensor<48xf32>, %arg5: tensor<1x1x2x1x48x16xf32>) -> (tensor<32x16xf32>, tensor<1x1x2x1x48x16xf32>) attributes {arguments = ["input:tokens", "input:positions", "weight:x", "weight:w", "weight:b", "state:kv"], bounds = [{first = 0 : i64, input = "positions", last = 47 : i64}], entry = "out", extents = array<i64: 1, 32>, grows = {kv = 4 : i64}, inputs = {positions = array<i64: 1, 32>, tokens = array<i64: 1, 32>}, repeatable, results = ["result:out", "state:kv"], sizes = ["batch", "positions"]} {
    %extract_slice_0 = tensor.extract_slice %arg5[0, 0, 0, 0, 0, 0] [1, 1, 2, 1, 48, 16] [1, 1, 1, 1, 1, 1] : tensor<1x1x2x1x48x16xf32> to tensor<1x2x1x48x16xf32>
    %call_0:2 = call @contraction_32x48(%arg2, %arg3, %arg4, %extract_slice_0, %arg1) : (tensor<32x64xf32>, tensor<48x64xbf16>, tensor<48xf32>, tensor<1x2x1x48x16xf32>, tensor<32xi32>) -> (tensor<32x48xf32>, tensor<1x2x1x48x16xf32>)
    %call_1 = call @attention_1x32x1x16(%call_0#0, %call_0#1, %arg1) : (tensor<32x48xf32>, tensor<1x2x1x48x16xf32>, tensor<32xi32>) -> tensor<1x32x1x16xf32>
    %call_2 = call @rows_32x16(%call_1) : (tensor<1x32x1x16xf32>) -> tensor<32x16xf32>
    %insert_slice_0 = tensor.insert_slice %call_0#1 into %arg5[0, 0, 0, 0, 0, 0] [1, 1, 2, 1, 48, 16] [1, 1, 1, 1, 1, 1] : tensor<1x2x1x48x16xf32> into tensor<1x1x2x1x48x16xf32>
    return %call_2, %insert_slice_0 : tensor<32x16xf32>, tensor<1x1x2x1x48x16xf32>
  }
}
