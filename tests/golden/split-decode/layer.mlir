// pass: split-decode{when=always clusters=2}
// target: cuda:sm_90a
// show: summary
#map = affine_map<(d0, d1) -> (d0)>
#map1 = affine_map<(d0, d1) -> (d0, d1)>
#map2 = affine_map<(d0) -> (d0)>
#map3 = affine_map<(d0, d1) -> (d1)>
#map4 = affine_map<(d0, d1, d2) -> (d0, d2)>
#map5 = affine_map<(d0, d1, d2) -> (d1, d2)>
#map6 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map7 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>
#map8 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d3, d4)>
#map9 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>
#map10 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map11 = affine_map<(d0, d1, d2, d3) -> (d0, d1)>
#map12 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d4, d3)>
module {
  func.func private @rows_1x128(%arg0: memref<1xi32>, %arg1: memref<256x128xbf16>, %arg2: memref<1xi32>, %arg3: memref<64x128xbf16>, %arg4: memref<128xf32>, %arg5: memref<128xf32>, %arg6: memref<1x128xf32>, %arg7: memref<1x128xf32>) attributes {access = ["read", "read", "read", "read", "read", "read", "write", "write"], kernel = "rows", tied = [-1, -1], work = {bytes = 2568 : i64, context = 0 : i64, operations = 1028 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %0 = bufferization.to_tensor %arg0 restrict : memref<1xi32> to tensor<1xi32>
    %1 = bufferization.to_tensor %arg1 restrict : memref<256x128xbf16> to tensor<256x128xbf16>
    %2 = bufferization.to_tensor %arg2 restrict : memref<1xi32> to tensor<1xi32>
    %3 = bufferization.to_tensor %arg3 restrict : memref<64x128xbf16> to tensor<64x128xbf16>
    %4 = bufferization.to_tensor %arg4 restrict : memref<128xf32> to tensor<128xf32>
    %5 = bufferization.to_tensor %arg5 restrict : memref<128xf32> to tensor<128xf32>
    %6 = tensor.empty() : tensor<1x128xf32>
    %7 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<1xi32>) outs(%6 : tensor<1x128xf32>) {
    ^bb0(%in: i32, %out: f32):
      %17 = arith.index_cast %in : i32 to index
      %18 = linalg.index 1 : index
      %extracted = tensor.extract %1[%17, %18] : tensor<256x128xbf16>
      %19 = arith.extf %extracted : bf16 to f32
      linalg.yield %19 : f32
    } -> tensor<1x128xf32>
    %8 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel"]} ins(%2 : tensor<1xi32>) outs(%6 : tensor<1x128xf32>) {
    ^bb0(%in: i32, %out: f32):
      %17 = arith.index_cast %in : i32 to index
      %18 = linalg.index 1 : index
      %extracted = tensor.extract %3[%17, %18] : tensor<64x128xbf16>
      %19 = arith.extf %extracted : bf16 to f32
      linalg.yield %19 : f32
    } -> tensor<1x128xf32>
    %9 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel"]} ins(%7, %8 : tensor<1x128xf32>, tensor<1x128xf32>) outs(%6 : tensor<1x128xf32>) {
    ^bb0(%in: f32, %in_3: f32, %out: f32):
      %17 = arith.addf %in, %in_3 : f32
      linalg.yield %17 : f32
    } -> tensor<1x128xf32>
    %cst = arith.constant 0.000000e+00 : f32
    %10 = tensor.empty() : tensor<1xf32>
    %11 = linalg.fill ins(%cst : f32) outs(%10 : tensor<1xf32>) -> tensor<1xf32>
    %reduced = linalg.reduce { arith.addf } ins(%9 : tensor<1x128xf32>) outs(%11 : tensor<1xf32>) dimensions = [1] 
    %cst_0 = arith.constant 1.280000e+02 : f32
    %12 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel"]} ins(%reduced : tensor<1xf32>) outs(%10 : tensor<1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %17 = arith.divf %in, %cst_0 : f32
      linalg.yield %17 : f32
    } -> tensor<1xf32>
    %13 = linalg.generic {indexing_maps = [#map1, #map, #map1], iterator_types = ["parallel", "parallel"]} ins(%9, %12 : tensor<1x128xf32>, tensor<1xf32>) outs(%6 : tensor<1x128xf32>) {
    ^bb0(%in: f32, %in_3: f32, %out: f32):
      %17 = arith.subf %in, %in_3 : f32
      linalg.yield %17 : f32
    } -> tensor<1x128xf32>
    %14 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel"]} ins(%13 : tensor<1x128xf32>) outs(%6 : tensor<1x128xf32>) {
    ^bb0(%in: f32, %out: f32):
      %17 = arith.mulf %in, %in : f32
      linalg.yield %17 : f32
    } -> tensor<1x128xf32>
    %reduced_1 = linalg.reduce { arith.addf } ins(%14 : tensor<1x128xf32>) outs(%11 : tensor<1xf32>) dimensions = [1] 
    %cst_2 = arith.constant 9.99999974E-6 : f32
    %15 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel"]} ins(%reduced_1 : tensor<1xf32>) outs(%10 : tensor<1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %17 = arith.divf %in, %cst_0 : f32
      %18 = arith.addf %17, %cst_2 : f32
      %19 = math.rsqrt %18 : f32
      linalg.yield %19 : f32
    } -> tensor<1xf32>
    %16 = linalg.generic {indexing_maps = [#map1, #map, #map3, #map3, #map1], iterator_types = ["parallel", "parallel"]} ins(%13, %15, %4, %5 : tensor<1x128xf32>, tensor<1xf32>, tensor<128xf32>, tensor<128xf32>) outs(%6 : tensor<1x128xf32>) {
    ^bb0(%in: f32, %in_3: f32, %in_4: f32, %in_5: f32, %out: f32):
      %17 = arith.mulf %in, %in_3 : f32
      %18 = arith.mulf %17, %in_4 : f32
      %19 = arith.addf %18, %in_5 : f32
      linalg.yield %19 : f32
    } -> tensor<1x128xf32>
    bufferization.materialize_in_destination %9 in restrict writable %arg6 : (tensor<1x128xf32>, memref<1x128xf32>) -> ()
    bufferization.materialize_in_destination %16 in restrict writable %arg7 : (tensor<1x128xf32>, memref<1x128xf32>) -> ()
    return
  }
  func.func private @contraction_1x384(%arg0: memref<1x128xf32>, %arg1: memref<384x128xbf16>, %arg2: memref<384xf32>, %arg3: memref<1x384xf32>) attributes {access = ["read", "read", "read", "write"], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 1, 384, 128>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1], work = {bytes = 101888 : i64, context = 0 : i64, operations = 98688 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %0 = bufferization.to_tensor %arg0 restrict : memref<1x128xf32> to tensor<1x128xf32>
    %1 = bufferization.to_tensor %arg1 restrict : memref<384x128xbf16> to tensor<384x128xbf16>
    %2 = bufferization.to_tensor %arg2 restrict : memref<384xf32> to tensor<384xf32>
    %cst = arith.constant 0.000000e+00 : f32
    %3 = tensor.empty() : tensor<1x384xf32>
    %4 = linalg.fill ins(%cst : f32) outs(%3 : tensor<1x384xf32>) -> tensor<1x384xf32>
    %5 = linalg.contract indexing_maps = [#map4, #map5, #map6] ins(%0, %1 : tensor<1x128xf32>, tensor<384x128xbf16>) outs(%4 : tensor<1x384xf32>) -> tensor<1x384xf32>
    %6 = linalg.generic {indexing_maps = [#map1, #map3, #map1], iterator_types = ["parallel", "parallel"]} ins(%5, %2 : tensor<1x384xf32>, tensor<384xf32>) outs(%3 : tensor<1x384xf32>) {
    ^bb0(%in: f32, %in_0: f32, %out: f32):
      %7 = arith.addf %in, %in_0 : f32
      linalg.yield %7 : f32
    } -> tensor<1x384xf32>
    bufferization.materialize_in_destination %6 in restrict writable %arg3 : (tensor<1x384xf32>, memref<1x384xf32>) -> ()
    return
  }
  func.func private @attention_1x1x2x64(%arg0: memref<1x2x2x64x64xf32>, %arg1: memref<1x384xf32>, %arg2: memref<1xi32>, %arg3: memref<1x1x2x64xf32>) attributes {access = ["read_write", "read", "read", "write"], attention = {bias = "none", cache = {each = 1 : i64}, depths = [64, 64], extents = [1, 1, 2, 64], log_sum = false, mask = "causal", positions = "tensor", queries = [1], shared = [0, 2]}, kernel = "attention", tied = [0, -1], work = {bytes = 3076 : i64, context = 64 : i64, operations = 0 : i64, position_bytes = 1024 : i64, position_operations = 524 : i64}} {
    %0 = bufferization.to_tensor %arg0 restrict writable : memref<1x2x2x64x64xf32> to tensor<1x2x2x64x64xf32>
    %1 = bufferization.to_tensor %arg1 restrict : memref<1x384xf32> to tensor<1x384xf32>
    %2 = bufferization.to_tensor %arg2 restrict : memref<1xi32> to tensor<1xi32>
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %extracted_slice = tensor.extract_slice %1[0, 128] [1, 128] [1, 1] : tensor<1x384xf32> to tensor<1x128xf32>
    %expanded = tensor.expand_shape %extracted_slice [[0], [1, 2]] output_shape [1, 2, 64] : tensor<1x128xf32> into tensor<1x2x64xf32>
    %3 = scf.for %arg4 = %c0 to %c1 step %c1 iter_args(%arg5 = %0) -> (tensor<1x2x2x64x64xf32>) {
      %extracted_slice_10 = tensor.extract_slice %expanded[%arg4, 0, 0] [1, 2, 64] [1, 1, 1] : tensor<1x2x64xf32> to tensor<2x64xf32>
      %11 = arith.divui %arg4, %c1 : index
      %extracted = tensor.extract %2[%arg4] : tensor<1xi32>
      %12 = arith.index_cast %extracted : i32 to index
      %inserted_slice = tensor.insert_slice %extracted_slice_10 into %arg5[%11, 0, 0, %12, 0] [1, 1, 2, 1, 64] [1, 1, 1, 1, 1] : tensor<2x64xf32> into tensor<1x2x2x64x64xf32>
      scf.yield %inserted_slice : tensor<1x2x2x64x64xf32>
    } {role = "keys"}
    %extracted_slice_0 = tensor.extract_slice %1[0, 256] [1, 128] [1, 1] : tensor<1x384xf32> to tensor<1x128xf32>
    %expanded_1 = tensor.expand_shape %extracted_slice_0 [[0], [1, 2]] output_shape [1, 2, 64] : tensor<1x128xf32> into tensor<1x2x64xf32>
    %4 = scf.for %arg4 = %c0 to %c1 step %c1 iter_args(%arg5 = %3) -> (tensor<1x2x2x64x64xf32>) {
      %extracted_slice_10 = tensor.extract_slice %expanded_1[%arg4, 0, 0] [1, 2, 64] [1, 1, 1] : tensor<1x2x64xf32> to tensor<2x64xf32>
      %11 = arith.divui %arg4, %c1 : index
      %extracted = tensor.extract %2[%arg4] : tensor<1xi32>
      %12 = arith.index_cast %extracted : i32 to index
      %inserted_slice = tensor.insert_slice %extracted_slice_10 into %arg5[%11, 1, 0, %12, 0] [1, 1, 2, 1, 64] [1, 1, 1, 1, 1] : tensor<2x64xf32> into tensor<1x2x2x64x64xf32>
      scf.yield %inserted_slice : tensor<1x2x2x64x64xf32>
    } {role = "values"}
    %extracted_slice_2 = tensor.extract_slice %1[0, 0] [1, 128] [1, 1] : tensor<1x384xf32> to tensor<1x128xf32>
    %expanded_3 = tensor.expand_shape %extracted_slice_2 [[0], [1, 2]] output_shape [1, 2, 64] : tensor<1x128xf32> into tensor<1x2x64xf32>
    %expanded_4 = tensor.expand_shape %expanded_3 [[0], [1, 2], [3]] output_shape [1, 1, 2, 64] : tensor<1x2x64xf32> into tensor<1x1x2x64xf32>
    %extracted_slice_5 = tensor.extract_slice %4[0, 0, 0, 0, 0] [1, 1, 2, 64, 64] [1, 1, 1, 1, 1] : tensor<1x2x2x64x64xf32> to tensor<1x2x64x64xf32>
    %cst = arith.constant 0.000000e+00 : f32
    %5 = tensor.empty() : tensor<1x1x2x64xf32>
    %6 = linalg.fill ins(%cst : f32) outs(%5 : tensor<1x1x2x64xf32>) -> tensor<1x1x2x64xf32>
    %7 = linalg.contract indexing_maps = [#map7, #map8, #map9] {role = "scores"} ins(%expanded_4, %extracted_slice_5 : tensor<1x1x2x64xf32>, tensor<1x2x64x64xf32>) outs(%6 : tensor<1x1x2x64xf32>) -> tensor<1x1x2x64xf32>
    %expanded_6 = tensor.expand_shape %2 [[0, 1]] output_shape [1, 1] : tensor<1xi32> into tensor<1x1xi32>
    %cst_7 = arith.constant 1.250000e-01 : f32
    %cst_8 = arith.constant 0xFF800000 : f32
    %8 = linalg.generic {indexing_maps = [#map10, #map11, #map10], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%7, %expanded_6 : tensor<1x1x2x64xf32>, tensor<1x1xi32>) outs(%5 : tensor<1x1x2x64xf32>) attrs =  {role = "weigh"} {
    ^bb0(%in: f32, %in_10: i32, %out: f32):
      %11 = linalg.index 3 : index
      %12 = arith.index_cast %11 : index to i32
      %13 = arith.cmpi sle, %12, %in_10 : i32
      %14 = arith.mulf %in, %cst_7 : f32
      %15 = arith.select %13, %14, %cst_8 : f32
      linalg.yield %15 : f32
    } -> tensor<1x1x2x64xf32>
    %9 = linalg.softmax {role = "softmax"} dimension(3) ins(%8 : tensor<1x1x2x64xf32>) outs(%5 : tensor<1x1x2x64xf32>) -> tensor<1x1x2x64xf32>
    %extracted_slice_9 = tensor.extract_slice %4[0, 1, 0, 0, 0] [1, 1, 2, 64, 64] [1, 1, 1, 1, 1] : tensor<1x2x2x64x64xf32> to tensor<1x2x64x64xf32>
    %10 = linalg.contract indexing_maps = [#map7, #map12, #map9] {role = "weighted"} ins(%9, %extracted_slice_9 : tensor<1x1x2x64xf32>, tensor<1x2x64x64xf32>) outs(%6 : tensor<1x1x2x64xf32>) -> tensor<1x1x2x64xf32>
    bufferization.materialize_in_destination %4 in restrict writable %arg0 : (tensor<1x2x2x64x64xf32>, memref<1x2x2x64x64xf32>) -> ()
    bufferization.materialize_in_destination %10 in restrict writable %arg3 : (tensor<1x1x2x64xf32>, memref<1x1x2x64xf32>) -> ()
    return
  }
  func.func private @contraction_1x128(%arg0: memref<1x1x2x64xf32>, %arg1: memref<128x128xbf16>, %arg2: memref<128xf32>, %arg3: memref<1x128xf32>, %arg4: memref<1x128xf32>) attributes {access = ["read", "read", "read", "read", "write"], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 1, 128, 128>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1], work = {bytes = 34816 : i64, context = 0 : i64, operations = 33024 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %0 = bufferization.to_tensor %arg0 restrict : memref<1x1x2x64xf32> to tensor<1x1x2x64xf32>
    %1 = bufferization.to_tensor %arg1 restrict : memref<128x128xbf16> to tensor<128x128xbf16>
    %2 = bufferization.to_tensor %arg2 restrict : memref<128xf32> to tensor<128xf32>
    %3 = bufferization.to_tensor %arg3 restrict : memref<1x128xf32> to tensor<1x128xf32>
    %collapsed = tensor.collapse_shape %0 [[0], [1, 2, 3]] : tensor<1x1x2x64xf32> into tensor<1x128xf32>
    %cst = arith.constant 0.000000e+00 : f32
    %4 = tensor.empty() : tensor<1x128xf32>
    %5 = linalg.fill ins(%cst : f32) outs(%4 : tensor<1x128xf32>) -> tensor<1x128xf32>
    %6 = linalg.contract indexing_maps = [#map4, #map5, #map6] ins(%collapsed, %1 : tensor<1x128xf32>, tensor<128x128xbf16>) outs(%5 : tensor<1x128xf32>) -> tensor<1x128xf32>
    %7 = linalg.generic {indexing_maps = [#map1, #map3, #map1], iterator_types = ["parallel", "parallel"]} ins(%6, %2 : tensor<1x128xf32>, tensor<128xf32>) outs(%4 : tensor<1x128xf32>) {
    ^bb0(%in: f32, %in_0: f32, %out: f32):
      %9 = arith.addf %in, %in_0 : f32
      linalg.yield %9 : f32
    } -> tensor<1x128xf32>
    %8 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel"]} ins(%3, %7 : tensor<1x128xf32>, tensor<1x128xf32>) outs(%4 : tensor<1x128xf32>) {
    ^bb0(%in: f32, %in_0: f32, %out: f32):
      %9 = arith.addf %in, %in_0 : f32
      linalg.yield %9 : f32
    } -> tensor<1x128xf32>
    bufferization.materialize_in_destination %8 in restrict writable %arg4 : (tensor<1x128xf32>, memref<1x128xf32>) -> ()
    return
  }
  func.func private @contraction_1x512(%arg0: memref<1x128xf32>, %arg1: memref<128xf32>, %arg2: memref<128xf32>, %arg3: memref<512x128xbf16>, %arg4: memref<512xf32>, %arg5: memref<1x512xf32>) attributes {access = ["read", "read", "read", "read", "read", "write"], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 1, 512, 128>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1], work = {bytes = 136704 : i64, context = 0 : i64, operations = 136580 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %0 = bufferization.to_tensor %arg0 restrict : memref<1x128xf32> to tensor<1x128xf32>
    %1 = bufferization.to_tensor %arg1 restrict : memref<128xf32> to tensor<128xf32>
    %2 = bufferization.to_tensor %arg2 restrict : memref<128xf32> to tensor<128xf32>
    %3 = bufferization.to_tensor %arg3 restrict : memref<512x128xbf16> to tensor<512x128xbf16>
    %4 = bufferization.to_tensor %arg4 restrict : memref<512xf32> to tensor<512xf32>
    %cst = arith.constant 0.000000e+00 : f32
    %5 = tensor.empty() : tensor<1xf32>
    %6 = linalg.fill ins(%cst : f32) outs(%5 : tensor<1xf32>) -> tensor<1xf32>
    %reduced = linalg.reduce { arith.addf } ins(%0 : tensor<1x128xf32>) outs(%6 : tensor<1xf32>) dimensions = [1] 
    %cst_0 = arith.constant 1.280000e+02 : f32
    %7 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel"]} ins(%reduced : tensor<1xf32>) outs(%5 : tensor<1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %18 = arith.divf %in, %cst_0 : f32
      linalg.yield %18 : f32
    } -> tensor<1xf32>
    %8 = tensor.empty() : tensor<1x128xf32>
    %9 = linalg.generic {indexing_maps = [#map1, #map, #map1], iterator_types = ["parallel", "parallel"]} ins(%0, %7 : tensor<1x128xf32>, tensor<1xf32>) outs(%8 : tensor<1x128xf32>) {
    ^bb0(%in: f32, %in_6: f32, %out: f32):
      %18 = arith.subf %in, %in_6 : f32
      linalg.yield %18 : f32
    } -> tensor<1x128xf32>
    %10 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel"]} ins(%9 : tensor<1x128xf32>) outs(%8 : tensor<1x128xf32>) {
    ^bb0(%in: f32, %out: f32):
      %18 = arith.mulf %in, %in : f32
      linalg.yield %18 : f32
    } -> tensor<1x128xf32>
    %reduced_1 = linalg.reduce { arith.addf } ins(%10 : tensor<1x128xf32>) outs(%6 : tensor<1xf32>) dimensions = [1] 
    %cst_2 = arith.constant 9.99999974E-6 : f32
    %11 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel"]} ins(%reduced_1 : tensor<1xf32>) outs(%5 : tensor<1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %18 = arith.divf %in, %cst_0 : f32
      %19 = arith.addf %18, %cst_2 : f32
      %20 = math.rsqrt %19 : f32
      linalg.yield %20 : f32
    } -> tensor<1xf32>
    %12 = linalg.generic {indexing_maps = [#map1, #map, #map3, #map3, #map1], iterator_types = ["parallel", "parallel"]} ins(%9, %11, %1, %2 : tensor<1x128xf32>, tensor<1xf32>, tensor<128xf32>, tensor<128xf32>) outs(%8 : tensor<1x128xf32>) {
    ^bb0(%in: f32, %in_6: f32, %in_7: f32, %in_8: f32, %out: f32):
      %18 = arith.mulf %in, %in_6 : f32
      %19 = arith.mulf %18, %in_7 : f32
      %20 = arith.addf %19, %in_8 : f32
      linalg.yield %20 : f32
    } -> tensor<1x128xf32>
    %13 = tensor.empty() : tensor<1x512xf32>
    %14 = linalg.fill ins(%cst : f32) outs(%13 : tensor<1x512xf32>) -> tensor<1x512xf32>
    %15 = linalg.contract indexing_maps = [#map4, #map5, #map6] ins(%12, %3 : tensor<1x128xf32>, tensor<512x128xbf16>) outs(%14 : tensor<1x512xf32>) -> tensor<1x512xf32>
    %16 = linalg.generic {indexing_maps = [#map1, #map3, #map1], iterator_types = ["parallel", "parallel"]} ins(%15, %4 : tensor<1x512xf32>, tensor<512xf32>) outs(%13 : tensor<1x512xf32>) {
    ^bb0(%in: f32, %in_6: f32, %out: f32):
      %18 = arith.addf %in, %in_6 : f32
      linalg.yield %18 : f32
    } -> tensor<1x512xf32>
    %cst_3 = arith.constant 5.000000e-01 : f32
    %cst_4 = arith.constant 0.0356774069 : f32
    %cst_5 = arith.constant 0.797884583 : f32
    %17 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel"]} ins(%16 : tensor<1x512xf32>) outs(%13 : tensor<1x512xf32>) {
    ^bb0(%in: f32, %out: f32):
      %18 = arith.mulf %cst_3, %in : f32
      %19 = arith.mulf %in, %in : f32
      %20 = math.fma %19, %cst_4, %cst_5 : f32
      %21 = arith.mulf %in, %20 : f32
      %22 = math.tanh %21 : f32
      %23 = math.fma %18, %22, %18 : f32
      linalg.yield %23 : f32
    } -> tensor<1x512xf32>
    bufferization.materialize_in_destination %17 in restrict writable %arg5 : (tensor<1x512xf32>, memref<1x512xf32>) -> ()
    return
  }
  func.func private @contraction_1x128_2(%arg0: memref<1x512xf32>, %arg1: memref<128x512xbf16>, %arg2: memref<128xf32>, %arg3: memref<1x128xf32>, %arg4: memref<1x128xf32>) attributes {access = ["read", "read", "read", "read", "write"], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 1, 128, 512>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1], work = {bytes = 134656 : i64, context = 0 : i64, operations = 131328 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %0 = bufferization.to_tensor %arg0 restrict : memref<1x512xf32> to tensor<1x512xf32>
    %1 = bufferization.to_tensor %arg1 restrict : memref<128x512xbf16> to tensor<128x512xbf16>
    %2 = bufferization.to_tensor %arg2 restrict : memref<128xf32> to tensor<128xf32>
    %3 = bufferization.to_tensor %arg3 restrict : memref<1x128xf32> to tensor<1x128xf32>
    %cst = arith.constant 0.000000e+00 : f32
    %4 = tensor.empty() : tensor<1x128xf32>
    %5 = linalg.fill ins(%cst : f32) outs(%4 : tensor<1x128xf32>) -> tensor<1x128xf32>
    %6 = linalg.contract indexing_maps = [#map4, #map5, #map6] ins(%0, %1 : tensor<1x512xf32>, tensor<128x512xbf16>) outs(%5 : tensor<1x128xf32>) -> tensor<1x128xf32>
    %7 = linalg.generic {indexing_maps = [#map1, #map3, #map1], iterator_types = ["parallel", "parallel"]} ins(%6, %2 : tensor<1x128xf32>, tensor<128xf32>) outs(%4 : tensor<1x128xf32>) {
    ^bb0(%in: f32, %in_0: f32, %out: f32):
      %9 = arith.addf %in, %in_0 : f32
      linalg.yield %9 : f32
    } -> tensor<1x128xf32>
    %8 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel"]} ins(%3, %7 : tensor<1x128xf32>, tensor<1x128xf32>) outs(%4 : tensor<1x128xf32>) {
    ^bb0(%in: f32, %in_0: f32, %out: f32):
      %9 = arith.addf %in, %in_0 : f32
      linalg.yield %9 : f32
    } -> tensor<1x128xf32>
    bufferization.materialize_in_destination %8 in restrict writable %arg4 : (tensor<1x128xf32>, memref<1x128xf32>) -> ()
    return
  }
  func.func private @contraction_1x256(%arg0: memref<1x128xf32>, %arg1: memref<128xf32>, %arg2: memref<128xf32>, %arg3: memref<256x128xbf16>, %arg4: memref<1x256xf32>) attributes {access = ["read", "read", "read", "read", "write"], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 1, 256, 128>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1], work = {bytes = 68096 : i64, context = 0 : i64, operations = 66436 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %0 = bufferization.to_tensor %arg0 restrict : memref<1x128xf32> to tensor<1x128xf32>
    %1 = bufferization.to_tensor %arg1 restrict : memref<128xf32> to tensor<128xf32>
    %2 = bufferization.to_tensor %arg2 restrict : memref<128xf32> to tensor<128xf32>
    %3 = bufferization.to_tensor %arg3 restrict : memref<256x128xbf16> to tensor<256x128xbf16>
    %expanded = tensor.expand_shape %0 [[0], [1, 2]] output_shape [1, 1, 128] : tensor<1x128xf32> into tensor<1x1x128xf32>
    %extracted_slice = tensor.extract_slice %expanded[0, 0, 0] [1, 1, 128] [1, 1, 1] : tensor<1x1x128xf32> to tensor<1x128xf32>
    %cst = arith.constant 0.000000e+00 : f32
    %4 = tensor.empty() : tensor<1xf32>
    %5 = linalg.fill ins(%cst : f32) outs(%4 : tensor<1xf32>) -> tensor<1xf32>
    %reduced = linalg.reduce { arith.addf } ins(%extracted_slice : tensor<1x128xf32>) outs(%5 : tensor<1xf32>) dimensions = [1] 
    %cst_0 = arith.constant 1.280000e+02 : f32
    %6 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel"]} ins(%reduced : tensor<1xf32>) outs(%4 : tensor<1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %15 = arith.divf %in, %cst_0 : f32
      linalg.yield %15 : f32
    } -> tensor<1xf32>
    %7 = tensor.empty() : tensor<1x128xf32>
    %8 = linalg.generic {indexing_maps = [#map1, #map, #map1], iterator_types = ["parallel", "parallel"]} ins(%extracted_slice, %6 : tensor<1x128xf32>, tensor<1xf32>) outs(%7 : tensor<1x128xf32>) {
    ^bb0(%in: f32, %in_3: f32, %out: f32):
      %15 = arith.subf %in, %in_3 : f32
      linalg.yield %15 : f32
    } -> tensor<1x128xf32>
    %9 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel"]} ins(%8 : tensor<1x128xf32>) outs(%7 : tensor<1x128xf32>) {
    ^bb0(%in: f32, %out: f32):
      %15 = arith.mulf %in, %in : f32
      linalg.yield %15 : f32
    } -> tensor<1x128xf32>
    %reduced_1 = linalg.reduce { arith.addf } ins(%9 : tensor<1x128xf32>) outs(%5 : tensor<1xf32>) dimensions = [1] 
    %cst_2 = arith.constant 9.99999974E-6 : f32
    %10 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel"]} ins(%reduced_1 : tensor<1xf32>) outs(%4 : tensor<1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %15 = arith.divf %in, %cst_0 : f32
      %16 = arith.addf %15, %cst_2 : f32
      %17 = math.rsqrt %16 : f32
      linalg.yield %17 : f32
    } -> tensor<1xf32>
    %11 = linalg.generic {indexing_maps = [#map1, #map, #map3, #map3, #map1], iterator_types = ["parallel", "parallel"]} ins(%8, %10, %1, %2 : tensor<1x128xf32>, tensor<1xf32>, tensor<128xf32>, tensor<128xf32>) outs(%7 : tensor<1x128xf32>) {
    ^bb0(%in: f32, %in_3: f32, %in_4: f32, %in_5: f32, %out: f32):
      %15 = arith.mulf %in, %in_3 : f32
      %16 = arith.mulf %15, %in_4 : f32
      %17 = arith.addf %16, %in_5 : f32
      linalg.yield %17 : f32
    } -> tensor<1x128xf32>
    %12 = tensor.empty() : tensor<1x256xf32>
    %13 = linalg.fill ins(%cst : f32) outs(%12 : tensor<1x256xf32>) -> tensor<1x256xf32>
    %14 = linalg.contract indexing_maps = [#map4, #map5, #map6] ins(%11, %3 : tensor<1x128xf32>, tensor<256x128xbf16>) outs(%13 : tensor<1x256xf32>) -> tensor<1x256xf32>
    bufferization.materialize_in_destination %14 in restrict writable %arg4 : (tensor<1x256xf32>, memref<1x256xf32>) -> ()
    return
  }
  func.func private @top_chunks(%arg0: memref<1x256xf32>, %arg1: memref<1x2x4xi32>) attributes {access = ["read", "write"], block = [128, 1, 1], grid = [1, 1, 1], kernel = "hand", means = "largest of chunks", numbers = array<i64: 211>, shared_bytes = 0 : i64, tied = [-1], work = {bytes = 1056 : i64, context = 0 : i64, operations = 0 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    nvvm.griddepcontrol launch_dependents
    nvvm.griddepcontrol wait
    %block_id_x = gpu.block_id x
    %block_id_y = gpu.block_id y
    %thread_id_x = gpu.thread_id x
    %c1 = arith.constant 1 : index
    %c128 = arith.constant 128 : index
    %c4 = arith.constant 4 : index
    %0 = arith.muli %block_id_x, %c4 : index
    %c32 = arith.constant 32 : index
    %1 = arith.divui %thread_id_x, %c32 : index
    %2 = arith.addi %0, %1 : index
    %c2 = arith.constant 2 : index
    %3 = arith.cmpi slt, %2, %c2 : index
    scf.if %3 {
      %4 = arith.index_cast %2 : index to i32
      %c128_i32 = arith.constant 128 : i32
      %5 = arith.muli %4, %c128_i32 : i32
      %6 = arith.remui %thread_id_x, %c32 : index
      %7 = arith.index_cast %6 : index to i32
      %c4_i32 = arith.constant 4 : i32
      %8 = arith.muli %7, %c4_i32 : i32
      %9 = arith.addi %5, %8 : i32
      %c256_i32 = arith.constant 256 : i32
      %10 = arith.cmpi slt, %9, %c256_i32 : i32
      %c0_i32 = arith.constant 0 : i32
      %11 = arith.select %10, %9, %c0_i32 : i32
      %12 = arith.index_cast %11 : i32 to index
      %13 = vector.load %arg0[%block_id_y, %12] {alignment = 16 : i64} : memref<1x256xf32>, vector<4xf32>
      %14 = vector.extract %13[0] : f32 from vector<4xf32>
      %15 = vector.extract %13[1] : f32 from vector<4xf32>
      %16 = vector.extract %13[2] : f32 from vector<4xf32>
      %17 = vector.extract %13[3] : f32 from vector<4xf32>
      %18 = arith.addi %9, %c0_i32 : i32
      %c211_i32 = arith.constant 211 : i32
      %19 = arith.cmpi slt, %18, %c211_i32 : i32
      %cst = arith.constant 0xFF800000 : f32
      %20 = arith.select %19, %14, %cst : f32
      %c1_i32 = arith.constant 1 : i32
      %21 = arith.addi %9, %c1_i32 : i32
      %22 = arith.cmpi slt, %21, %c211_i32 : i32
      %23 = arith.select %22, %15, %cst : f32
      %c2_i32 = arith.constant 2 : i32
      %24 = arith.addi %9, %c2_i32 : i32
      %25 = arith.cmpi slt, %24, %c211_i32 : i32
      %26 = arith.select %25, %16, %cst : f32
      %c3_i32 = arith.constant 3 : i32
      %27 = arith.addi %9, %c3_i32 : i32
      %28 = arith.cmpi slt, %27, %c211_i32 : i32
      %29 = arith.select %28, %17, %cst : f32
      %30 = arith.cmpf une, %20, %20 : f32
      %cst_0 = arith.constant 0.000000e+00 : f32
      %31 = arith.addf %20, %cst_0 : f32
      %32 = arith.bitcast %31 : f32 to i32
      %c31_i32 = arith.constant 31 : i32
      %33 = arith.shrsi %32, %c31_i32 : i32
      %c2147483647_i32 = arith.constant 2147483647 : i32
      %34 = arith.andi %33, %c2147483647_i32 : i32
      %35 = arith.xori %32, %34 : i32
      %36 = arith.select %30, %c2147483647_i32, %35 : i32
      %37 = arith.cmpf une, %23, %23 : f32
      %38 = arith.addf %23, %cst_0 : f32
      %39 = arith.bitcast %38 : f32 to i32
      %40 = arith.shrsi %39, %c31_i32 : i32
      %41 = arith.andi %40, %c2147483647_i32 : i32
      %42 = arith.xori %39, %41 : i32
      %43 = arith.select %37, %c2147483647_i32, %42 : i32
      %44 = arith.cmpf une, %26, %26 : f32
      %45 = arith.addf %26, %cst_0 : f32
      %46 = arith.bitcast %45 : f32 to i32
      %47 = arith.shrsi %46, %c31_i32 : i32
      %48 = arith.andi %47, %c2147483647_i32 : i32
      %49 = arith.xori %46, %48 : i32
      %50 = arith.select %44, %c2147483647_i32, %49 : i32
      %51 = arith.cmpf une, %29, %29 : f32
      %52 = arith.addf %29, %cst_0 : f32
      %53 = arith.bitcast %52 : f32 to i32
      %54 = arith.shrsi %53, %c31_i32 : i32
      %55 = arith.andi %54, %c2147483647_i32 : i32
      %56 = arith.xori %53, %55 : i32
      %57 = arith.select %51, %c2147483647_i32, %56 : i32
      %c-2139095041_i32 = arith.constant -2139095041 : i32
      %58 = arith.maxsi %36, %43 : i32
      %59 = arith.cmpi eq, %36, %58 : i32
      %60 = arith.cmpi eq, %43, %58 : i32
      %61 = arith.select %59, %18, %c2147483647_i32 : i32
      %62 = arith.select %60, %21, %c2147483647_i32 : i32
      %63 = arith.minsi %61, %62 : i32
      %64 = arith.select %59, %c-2139095041_i32, %36 : i32
      %65 = arith.select %60, %c-2139095041_i32, %43 : i32
      %66 = arith.maxsi %64, %65 : i32
      %67 = arith.select %59, %c1_i32, %c0_i32 : i32
      %68 = arith.select %60, %c1_i32, %c0_i32 : i32
      %69 = arith.addi %67, %68 : i32
      %70 = arith.maxsi %58, %50 : i32
      %71 = arith.cmpi eq, %58, %70 : i32
      %72 = arith.cmpi eq, %50, %70 : i32
      %73 = arith.select %71, %63, %c2147483647_i32 : i32
      %74 = arith.select %72, %24, %c2147483647_i32 : i32
      %75 = arith.minsi %73, %74 : i32
      %76 = arith.select %71, %66, %58 : i32
      %77 = arith.select %72, %c-2139095041_i32, %50 : i32
      %78 = arith.maxsi %76, %77 : i32
      %79 = arith.select %71, %69, %c0_i32 : i32
      %80 = arith.select %72, %c1_i32, %c0_i32 : i32
      %81 = arith.addi %79, %80 : i32
      %82 = arith.maxsi %70, %57 : i32
      %83 = arith.cmpi eq, %70, %82 : i32
      %84 = arith.cmpi eq, %57, %82 : i32
      %85 = arith.select %83, %75, %c2147483647_i32 : i32
      %86 = arith.select %84, %27, %c2147483647_i32 : i32
      %87 = arith.minsi %85, %86 : i32
      %88 = arith.select %83, %78, %70 : i32
      %89 = arith.select %84, %c-2139095041_i32, %57 : i32
      %90 = arith.maxsi %88, %89 : i32
      %91 = arith.select %83, %81, %c0_i32 : i32
      %92 = arith.select %84, %c1_i32, %c0_i32 : i32
      %93 = arith.addi %91, %92 : i32
      %c16_i32 = arith.constant 16 : i32
      %c32_i32 = arith.constant 32 : i32
      %shuffleResult, %valid = gpu.shuffle xor %82, %c16_i32, %c32_i32 : i32
      %94 = arith.maxsi %82, %shuffleResult : i32
      %c8_i32 = arith.constant 8 : i32
      %shuffleResult_1, %valid_2 = gpu.shuffle xor %94, %c8_i32, %c32_i32 : i32
      %95 = arith.maxsi %94, %shuffleResult_1 : i32
      %shuffleResult_3, %valid_4 = gpu.shuffle xor %95, %c4_i32, %c32_i32 : i32
      %96 = arith.maxsi %95, %shuffleResult_3 : i32
      %shuffleResult_5, %valid_6 = gpu.shuffle xor %96, %c2_i32, %c32_i32 : i32
      %97 = arith.maxsi %96, %shuffleResult_5 : i32
      %shuffleResult_7, %valid_8 = gpu.shuffle xor %97, %c1_i32, %c32_i32 : i32
      %98 = arith.maxsi %97, %shuffleResult_7 : i32
      %99 = arith.cmpi eq, %82, %98 : i32
      %100 = arith.select %99, %87, %c2147483647_i32 : i32
      %shuffleResult_9, %valid_10 = gpu.shuffle xor %100, %c16_i32, %c32_i32 : i32
      %101 = arith.minsi %100, %shuffleResult_9 : i32
      %shuffleResult_11, %valid_12 = gpu.shuffle xor %101, %c8_i32, %c32_i32 : i32
      %102 = arith.minsi %101, %shuffleResult_11 : i32
      %shuffleResult_13, %valid_14 = gpu.shuffle xor %102, %c4_i32, %c32_i32 : i32
      %103 = arith.minsi %102, %shuffleResult_13 : i32
      %shuffleResult_15, %valid_16 = gpu.shuffle xor %103, %c2_i32, %c32_i32 : i32
      %104 = arith.minsi %103, %shuffleResult_15 : i32
      %shuffleResult_17, %valid_18 = gpu.shuffle xor %104, %c1_i32, %c32_i32 : i32
      %105 = arith.minsi %104, %shuffleResult_17 : i32
      %106 = arith.select %99, %90, %82 : i32
      %shuffleResult_19, %valid_20 = gpu.shuffle xor %106, %c16_i32, %c32_i32 : i32
      %107 = arith.maxsi %106, %shuffleResult_19 : i32
      %shuffleResult_21, %valid_22 = gpu.shuffle xor %107, %c8_i32, %c32_i32 : i32
      %108 = arith.maxsi %107, %shuffleResult_21 : i32
      %shuffleResult_23, %valid_24 = gpu.shuffle xor %108, %c4_i32, %c32_i32 : i32
      %109 = arith.maxsi %108, %shuffleResult_23 : i32
      %shuffleResult_25, %valid_26 = gpu.shuffle xor %109, %c2_i32, %c32_i32 : i32
      %110 = arith.maxsi %109, %shuffleResult_25 : i32
      %shuffleResult_27, %valid_28 = gpu.shuffle xor %110, %c1_i32, %c32_i32 : i32
      %111 = arith.maxsi %110, %shuffleResult_27 : i32
      %112 = arith.select %99, %93, %c0_i32 : i32
      %shuffleResult_29, %valid_30 = gpu.shuffle xor %112, %c16_i32, %c32_i32 : i32
      %113 = arith.addi %112, %shuffleResult_29 : i32
      %shuffleResult_31, %valid_32 = gpu.shuffle xor %113, %c8_i32, %c32_i32 : i32
      %114 = arith.addi %113, %shuffleResult_31 : i32
      %shuffleResult_33, %valid_34 = gpu.shuffle xor %114, %c4_i32, %c32_i32 : i32
      %115 = arith.addi %114, %shuffleResult_33 : i32
      %shuffleResult_35, %valid_36 = gpu.shuffle xor %115, %c2_i32, %c32_i32 : i32
      %116 = arith.addi %115, %shuffleResult_35 : i32
      %shuffleResult_37, %valid_38 = gpu.shuffle xor %116, %c1_i32, %c32_i32 : i32
      %117 = arith.addi %116, %shuffleResult_37 : i32
      %c0 = arith.constant 0 : index
      %118 = arith.cmpi eq, %6, %c0 : index
      scf.if %118 {
        %119 = vector.from_elements %98, %105, %111, %117 : vector<4xi32>
        vector.store %119, %arg1[%block_id_y, %2, %c0] {alignment = 16 : i64} : memref<1x2x4xi32>, vector<4xi32>
      }
    }
    return
  }
  func.func private @choose_top(%arg0: memref<1x2x4xi32>, %arg1: memref<1xi32>, %arg2: memref<1x3xi32>) attributes {access = ["read", "write", "write"], block = [32, 1, 1], grid = [1, 1, 1], kernel = "hand", means = "largest", numbers = array<i64: 32>, shared_bytes = 0 : i64, tied = [-1, -1], work = {bytes = 48 : i64, context = 0 : i64, operations = 0 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    nvvm.griddepcontrol launch_dependents
    nvvm.griddepcontrol wait
    %block_id_x = gpu.block_id x
    %thread_id_x = gpu.thread_id x
    %alloca = memref.alloca() : memref<1xi32, #gpu.address_space<workgroup>>
    %alloca_0 = memref.alloca() : memref<1xi32, #gpu.address_space<workgroup>>
    %alloca_1 = memref.alloca() : memref<1xi32, #gpu.address_space<workgroup>>
    %alloca_2 = memref.alloca() : memref<1xi32, #gpu.address_space<workgroup>>
    %alloca_3 = memref.alloca() : memref<1xi32, #gpu.address_space<workgroup>>
    %c1 = arith.constant 1 : index
    %c32 = arith.constant 32 : index
    %c0 = arith.constant 0 : index
    %0 = arith.addi %thread_id_x, %c0 : index
    %c2 = arith.constant 2 : index
    %1 = arith.cmpi slt, %0, %c2 : index
    %2 = arith.select %1, %0, %c0 : index
    %3 = vector.load %arg0[%block_id_x, %2, %c0] {alignment = 16 : i64} : memref<1x2x4xi32>, vector<4xi32>
    %4 = vector.extract %3[0] : i32 from vector<4xi32>
    %5 = vector.extract %3[1] : i32 from vector<4xi32>
    %6 = vector.extract %3[2] : i32 from vector<4xi32>
    %7 = vector.extract %3[3] : i32 from vector<4xi32>
    %c-2139095041_i32 = arith.constant -2139095041 : i32
    %8 = arith.select %1, %4, %c-2139095041_i32 : i32
    %c2147483647_i32 = arith.constant 2147483647 : i32
    %9 = arith.select %1, %5, %c2147483647_i32 : i32
    %10 = arith.select %1, %6, %c-2139095041_i32 : i32
    %c0_i32 = arith.constant 0 : i32
    %11 = arith.select %1, %7, %c0_i32 : i32
    %c31_i32 = arith.constant 31 : i32
    %12 = arith.shrsi %8, %c31_i32 : i32
    %13 = arith.andi %12, %c2147483647_i32 : i32
    %14 = arith.xori %8, %13 : i32
    %15 = arith.andi %14, %c2147483647_i32 : i32
    %c2139095040_i32 = arith.constant 2139095040 : i32
    %16 = arith.cmpi slt, %15, %c2139095040_i32 : i32
    %17 = arith.select %16, %15, %c0_i32 : i32
    %18 = arith.maxsi %c0_i32, %17 : i32
    %c16_i32 = arith.constant 16 : i32
    %c32_i32 = arith.constant 32 : i32
    %shuffleResult, %valid = gpu.shuffle xor %8, %c16_i32, %c32_i32 : i32
    %19 = arith.maxsi %8, %shuffleResult : i32
    %c8_i32 = arith.constant 8 : i32
    %shuffleResult_4, %valid_5 = gpu.shuffle xor %19, %c8_i32, %c32_i32 : i32
    %20 = arith.maxsi %19, %shuffleResult_4 : i32
    %c4_i32 = arith.constant 4 : i32
    %shuffleResult_6, %valid_7 = gpu.shuffle xor %20, %c4_i32, %c32_i32 : i32
    %21 = arith.maxsi %20, %shuffleResult_6 : i32
    %c2_i32 = arith.constant 2 : i32
    %shuffleResult_8, %valid_9 = gpu.shuffle xor %21, %c2_i32, %c32_i32 : i32
    %22 = arith.maxsi %21, %shuffleResult_8 : i32
    %c1_i32 = arith.constant 1 : i32
    %shuffleResult_10, %valid_11 = gpu.shuffle xor %22, %c1_i32, %c32_i32 : i32
    %23 = arith.maxsi %22, %shuffleResult_10 : i32
    %shuffleResult_12, %valid_13 = gpu.shuffle xor %18, %c16_i32, %c32_i32 : i32
    %24 = arith.maxsi %18, %shuffleResult_12 : i32
    %shuffleResult_14, %valid_15 = gpu.shuffle xor %24, %c8_i32, %c32_i32 : i32
    %25 = arith.maxsi %24, %shuffleResult_14 : i32
    %shuffleResult_16, %valid_17 = gpu.shuffle xor %25, %c4_i32, %c32_i32 : i32
    %26 = arith.maxsi %25, %shuffleResult_16 : i32
    %shuffleResult_18, %valid_19 = gpu.shuffle xor %26, %c2_i32, %c32_i32 : i32
    %27 = arith.maxsi %26, %shuffleResult_18 : i32
    %shuffleResult_20, %valid_21 = gpu.shuffle xor %27, %c1_i32, %c32_i32 : i32
    %28 = arith.maxsi %27, %shuffleResult_20 : i32
    %29 = arith.remui %thread_id_x, %c32 : index
    %30 = arith.cmpi slt, %29, %c1 : index
    gpu.barrier
    %31 = arith.cmpi eq, %29, %c0 : index
    scf.if %31 {
      %104 = arith.divui %thread_id_x, %c32 : index
      memref.store %23, %alloca[%104] : memref<1xi32, #gpu.address_space<workgroup>>
      memref.store %28, %alloca_0[%104] : memref<1xi32, #gpu.address_space<workgroup>>
    }
    gpu.barrier
    %32 = arith.select %30, %29, %c0 : index
    %33 = memref.load %alloca[%32] : memref<1xi32, #gpu.address_space<workgroup>>
    %34 = arith.select %30, %33, %c-2139095041_i32 : i32
    %shuffleResult_22, %valid_23 = gpu.shuffle xor %34, %c16_i32, %c32_i32 : i32
    %35 = arith.maxsi %34, %shuffleResult_22 : i32
    %shuffleResult_24, %valid_25 = gpu.shuffle xor %35, %c8_i32, %c32_i32 : i32
    %36 = arith.maxsi %35, %shuffleResult_24 : i32
    %shuffleResult_26, %valid_27 = gpu.shuffle xor %36, %c4_i32, %c32_i32 : i32
    %37 = arith.maxsi %36, %shuffleResult_26 : i32
    %shuffleResult_28, %valid_29 = gpu.shuffle xor %37, %c2_i32, %c32_i32 : i32
    %38 = arith.maxsi %37, %shuffleResult_28 : i32
    %shuffleResult_30, %valid_31 = gpu.shuffle xor %38, %c1_i32, %c32_i32 : i32
    %39 = arith.maxsi %38, %shuffleResult_30 : i32
    %40 = memref.load %alloca_0[%32] : memref<1xi32, #gpu.address_space<workgroup>>
    %41 = arith.select %30, %40, %c0_i32 : i32
    %shuffleResult_32, %valid_33 = gpu.shuffle xor %41, %c16_i32, %c32_i32 : i32
    %42 = arith.maxsi %41, %shuffleResult_32 : i32
    %shuffleResult_34, %valid_35 = gpu.shuffle xor %42, %c8_i32, %c32_i32 : i32
    %43 = arith.maxsi %42, %shuffleResult_34 : i32
    %shuffleResult_36, %valid_37 = gpu.shuffle xor %43, %c4_i32, %c32_i32 : i32
    %44 = arith.maxsi %43, %shuffleResult_36 : i32
    %shuffleResult_38, %valid_39 = gpu.shuffle xor %44, %c2_i32, %c32_i32 : i32
    %45 = arith.maxsi %44, %shuffleResult_38 : i32
    %shuffleResult_40, %valid_41 = gpu.shuffle xor %45, %c1_i32, %c32_i32 : i32
    %46 = arith.maxsi %45, %shuffleResult_40 : i32
    %47 = arith.cmpi eq, %8, %39 : i32
    %48 = arith.select %47, %9, %c2147483647_i32 : i32
    %49 = arith.select %47, %10, %8 : i32
    %50 = arith.select %47, %11, %c0_i32 : i32
    %shuffleResult_42, %valid_43 = gpu.shuffle xor %48, %c16_i32, %c32_i32 : i32
    %51 = arith.minsi %48, %shuffleResult_42 : i32
    %shuffleResult_44, %valid_45 = gpu.shuffle xor %51, %c8_i32, %c32_i32 : i32
    %52 = arith.minsi %51, %shuffleResult_44 : i32
    %shuffleResult_46, %valid_47 = gpu.shuffle xor %52, %c4_i32, %c32_i32 : i32
    %53 = arith.minsi %52, %shuffleResult_46 : i32
    %shuffleResult_48, %valid_49 = gpu.shuffle xor %53, %c2_i32, %c32_i32 : i32
    %54 = arith.minsi %53, %shuffleResult_48 : i32
    %shuffleResult_50, %valid_51 = gpu.shuffle xor %54, %c1_i32, %c32_i32 : i32
    %55 = arith.minsi %54, %shuffleResult_50 : i32
    %shuffleResult_52, %valid_53 = gpu.shuffle xor %49, %c16_i32, %c32_i32 : i32
    %56 = arith.maxsi %49, %shuffleResult_52 : i32
    %shuffleResult_54, %valid_55 = gpu.shuffle xor %56, %c8_i32, %c32_i32 : i32
    %57 = arith.maxsi %56, %shuffleResult_54 : i32
    %shuffleResult_56, %valid_57 = gpu.shuffle xor %57, %c4_i32, %c32_i32 : i32
    %58 = arith.maxsi %57, %shuffleResult_56 : i32
    %shuffleResult_58, %valid_59 = gpu.shuffle xor %58, %c2_i32, %c32_i32 : i32
    %59 = arith.maxsi %58, %shuffleResult_58 : i32
    %shuffleResult_60, %valid_61 = gpu.shuffle xor %59, %c1_i32, %c32_i32 : i32
    %60 = arith.maxsi %59, %shuffleResult_60 : i32
    %shuffleResult_62, %valid_63 = gpu.shuffle xor %50, %c16_i32, %c32_i32 : i32
    %61 = arith.addi %50, %shuffleResult_62 : i32
    %shuffleResult_64, %valid_65 = gpu.shuffle xor %61, %c8_i32, %c32_i32 : i32
    %62 = arith.addi %61, %shuffleResult_64 : i32
    %shuffleResult_66, %valid_67 = gpu.shuffle xor %62, %c4_i32, %c32_i32 : i32
    %63 = arith.addi %62, %shuffleResult_66 : i32
    %shuffleResult_68, %valid_69 = gpu.shuffle xor %63, %c2_i32, %c32_i32 : i32
    %64 = arith.addi %63, %shuffleResult_68 : i32
    %shuffleResult_70, %valid_71 = gpu.shuffle xor %64, %c1_i32, %c32_i32 : i32
    %65 = arith.addi %64, %shuffleResult_70 : i32
    gpu.barrier
    scf.if %31 {
      %104 = arith.divui %thread_id_x, %c32 : index
      memref.store %55, %alloca_1[%104] : memref<1xi32, #gpu.address_space<workgroup>>
      memref.store %60, %alloca_2[%104] : memref<1xi32, #gpu.address_space<workgroup>>
      memref.store %65, %alloca_3[%104] : memref<1xi32, #gpu.address_space<workgroup>>
    }
    gpu.barrier
    %66 = memref.load %alloca_1[%32] : memref<1xi32, #gpu.address_space<workgroup>>
    %67 = arith.select %30, %66, %c2147483647_i32 : i32
    %shuffleResult_72, %valid_73 = gpu.shuffle xor %67, %c16_i32, %c32_i32 : i32
    %68 = arith.minsi %67, %shuffleResult_72 : i32
    %shuffleResult_74, %valid_75 = gpu.shuffle xor %68, %c8_i32, %c32_i32 : i32
    %69 = arith.minsi %68, %shuffleResult_74 : i32
    %shuffleResult_76, %valid_77 = gpu.shuffle xor %69, %c4_i32, %c32_i32 : i32
    %70 = arith.minsi %69, %shuffleResult_76 : i32
    %shuffleResult_78, %valid_79 = gpu.shuffle xor %70, %c2_i32, %c32_i32 : i32
    %71 = arith.minsi %70, %shuffleResult_78 : i32
    %shuffleResult_80, %valid_81 = gpu.shuffle xor %71, %c1_i32, %c32_i32 : i32
    %72 = arith.minsi %71, %shuffleResult_80 : i32
    %73 = memref.load %alloca_2[%32] : memref<1xi32, #gpu.address_space<workgroup>>
    %74 = arith.select %30, %73, %c-2139095041_i32 : i32
    %shuffleResult_82, %valid_83 = gpu.shuffle xor %74, %c16_i32, %c32_i32 : i32
    %75 = arith.maxsi %74, %shuffleResult_82 : i32
    %shuffleResult_84, %valid_85 = gpu.shuffle xor %75, %c8_i32, %c32_i32 : i32
    %76 = arith.maxsi %75, %shuffleResult_84 : i32
    %shuffleResult_86, %valid_87 = gpu.shuffle xor %76, %c4_i32, %c32_i32 : i32
    %77 = arith.maxsi %76, %shuffleResult_86 : i32
    %shuffleResult_88, %valid_89 = gpu.shuffle xor %77, %c2_i32, %c32_i32 : i32
    %78 = arith.maxsi %77, %shuffleResult_88 : i32
    %shuffleResult_90, %valid_91 = gpu.shuffle xor %78, %c1_i32, %c32_i32 : i32
    %79 = arith.maxsi %78, %shuffleResult_90 : i32
    %80 = memref.load %alloca_3[%32] : memref<1xi32, #gpu.address_space<workgroup>>
    %81 = arith.select %30, %80, %c0_i32 : i32
    %shuffleResult_92, %valid_93 = gpu.shuffle xor %81, %c16_i32, %c32_i32 : i32
    %82 = arith.addi %81, %shuffleResult_92 : i32
    %shuffleResult_94, %valid_95 = gpu.shuffle xor %82, %c8_i32, %c32_i32 : i32
    %83 = arith.addi %82, %shuffleResult_94 : i32
    %shuffleResult_96, %valid_97 = gpu.shuffle xor %83, %c4_i32, %c32_i32 : i32
    %84 = arith.addi %83, %shuffleResult_96 : i32
    %shuffleResult_98, %valid_99 = gpu.shuffle xor %84, %c2_i32, %c32_i32 : i32
    %85 = arith.addi %84, %shuffleResult_98 : i32
    %shuffleResult_100, %valid_101 = gpu.shuffle xor %85, %c1_i32, %c32_i32 : i32
    %86 = arith.addi %85, %shuffleResult_100 : i32
    %87 = arith.cmpi sgt, %39, %c-2139095041_i32 : i32
    %88 = arith.cmpi slt, %39, %c2139095040_i32 : i32
    %89 = arith.andi %87, %88 : i1
    %c-1_i32 = arith.constant -1 : i32
    %90 = arith.select %89, %72, %c-1_i32 : i32
    %91 = arith.shrsi %39, %c31_i32 : i32
    %92 = arith.andi %91, %c2147483647_i32 : i32
    %93 = arith.xori %39, %92 : i32
    %94 = arith.bitcast %93 : i32 to f32
    %95 = arith.shrsi %79, %c31_i32 : i32
    %96 = arith.andi %95, %c2147483647_i32 : i32
    %97 = arith.xori %79, %96 : i32
    %98 = arith.bitcast %97 : i32 to f32
    %99 = arith.subf %94, %98 : f32
    %100 = arith.bitcast %46 : i32 to f32
    %101 = arith.divf %99, %100 : f32
    %102 = arith.bitcast %101 : f32 to i32
    %103 = arith.cmpi eq, %thread_id_x, %c0 : index
    scf.if %103 {
      memref.store %90, %arg1[%block_id_x] : memref<1xi32>
      memref.store %90, %arg2[%block_id_x, %c0] : memref<1x3xi32>
      memref.store %86, %arg2[%block_id_x, %c1] : memref<1x3xi32>
      memref.store %102, %arg2[%block_id_x, %c2] : memref<1x3xi32>
    }
    return
  }
  func.func private @advance(%arg0: memref<1xi32>, %arg1: memref<1xi32>, %arg2: memref<1xi32>) attributes {access = ["read", "read_write", "read_write"], block = [32, 1, 1], grid = [1, 1, 1], kernel = "hand", means = "advance", numbers = array<i64: 1>, shared_bytes = 0 : i64, tied = [1, 2], work = {bytes = 20 : i64, context = 0 : i64, operations = 0 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    nvvm.griddepcontrol launch_dependents
    nvvm.griddepcontrol wait
    %block_id_x = gpu.block_id x
    %thread_id_x = gpu.thread_id x
    %c1 = arith.constant 1 : index
    %c32 = arith.constant 32 : index
    %0 = arith.muli %block_id_x, %c32 : index
    %1 = arith.addi %0, %thread_id_x : index
    %2 = arith.cmpi ult, %1, %c1 : index
    scf.if %2 {
      %3 = memref.load %arg0[%1] : memref<1xi32>
      %c2147483647_i32 = arith.constant 2147483647 : i32
      %4 = arith.cmpi ult, %3, %c2147483647_i32 : i32
      %c0_i32 = arith.constant 0 : i32
      %5 = arith.select %4, %3, %c0_i32 : i32
      memref.store %5, %arg1[%1] : memref<1xi32>
      %6 = memref.load %arg2[%1] : memref<1xi32>
      %c1_i32 = arith.constant 1 : i32
      %7 = arith.addi %6, %c1_i32 : i32
      memref.store %7, %arg2[%1] : memref<1xi32>
    }
    return
  }
  func.func @decode_greedy_batch1_positions1(%arg0: memref<4xi8>, %arg1: memref<4xi8>, %arg2: memref<65536xi8>, %arg3: memref<16384xi8>, %arg4: memref<512xi8>, %arg5: memref<512xi8>, %arg6: memref<98304xi8>, %arg7: memref<1536xi8>, %arg8: memref<32768xi8>, %arg9: memref<512xi8>, %arg10: memref<512xi8>, %arg11: memref<512xi8>, %arg12: memref<131072xi8>, %arg13: memref<2048xi8>, %arg14: memref<131072xi8>, %arg15: memref<512xi8>, %arg16: memref<512xi8>, %arg17: memref<512xi8>, %arg18: memref<65536xi8>, %arg19: memref<1024xi8>, %arg20: memref<4xi8>, %arg21: memref<12xi8>) attributes {arguments = ["input:tokens", "input:positions", "weight:wte", "weight:wpe", "weight:ln1-w", "weight:ln1-b", "weight:qkv-w", "weight:qkv-b", "weight:proj-w", "weight:proj-b", "weight:ln2-w", "weight:ln2-b", "weight:fc-w", "weight:fc-b", "weight:out-w", "weight:out-b", "weight:lnf-w", "weight:lnf-b", "state:kv", "result:logits", "result:next", "result:report"], entry = "decode-greedy", extents = array<i64: 1, 1>, inputs = {positions = array<i64: 1, 1>, tokens = array<i64: 1, 1>}, repeatable, results = ["result:logits", "result:next", "result:report", "input:tokens", "input:positions", "state:kv"], sizes = ["batch", "positions"], types = [tensor<1xi32>, tensor<1xi32>, tensor<256x128xbf16>, tensor<64x128xbf16>, tensor<1x128xf32>, tensor<1x128xf32>, tensor<1x384x128xbf16>, tensor<1x384xf32>, tensor<1x128x128xbf16>, tensor<1x128xf32>, tensor<1x128xf32>, tensor<1x128xf32>, tensor<1x512x128xbf16>, tensor<1x512xf32>, tensor<1x128x512xbf16>, tensor<1x128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<1x1x2x2x64x64xf32>, tensor<1x256xf32>, tensor<1xi32>, tensor<1x3xi32>]} {
    %c0 = arith.constant 0 : index
    %view = memref.view %arg0[%c0][] : memref<4xi8> to memref<1xi32>
    %c0_0 = arith.constant 0 : index
    %view_1 = memref.view %arg2[%c0_0][] : memref<65536xi8> to memref<256x128xbf16>
    %c0_2 = arith.constant 0 : index
    %view_3 = memref.view %arg1[%c0_2][] : memref<4xi8> to memref<1xi32>
    %c0_4 = arith.constant 0 : index
    %view_5 = memref.view %arg3[%c0_4][] : memref<16384xi8> to memref<64x128xbf16>
    %c0_6 = arith.constant 0 : index
    %view_7 = memref.view %arg4[%c0_6][] : memref<512xi8> to memref<128xf32>
    %c0_8 = arith.constant 0 : index
    %view_9 = memref.view %arg5[%c0_8][] : memref<512xi8> to memref<128xf32>
    %alloc = memref.alloc() : memref<1x128xf32>
    %alloc_10 = memref.alloc() : memref<1x128xf32>
    call @rows_1x128(%view, %view_1, %view_3, %view_5, %view_7, %view_9, %alloc, %alloc_10) : (memref<1xi32>, memref<256x128xbf16>, memref<1xi32>, memref<64x128xbf16>, memref<128xf32>, memref<128xf32>, memref<1x128xf32>, memref<1x128xf32>) -> ()
    %c0_11 = arith.constant 0 : index
    %view_12 = memref.view %arg6[%c0_11][] : memref<98304xi8> to memref<384x128xbf16>
    %c0_13 = arith.constant 0 : index
    %view_14 = memref.view %arg7[%c0_13][] : memref<1536xi8> to memref<384xf32>
    %alloc_15 = memref.alloc() : memref<1x384xf32>
    call @contraction_1x384(%alloc_10, %view_12, %view_14, %alloc_15) : (memref<1x128xf32>, memref<384x128xbf16>, memref<384xf32>, memref<1x384xf32>) -> ()
    %c0_16 = arith.constant 0 : index
    %view_17 = memref.view %arg18[%c0_16][] : memref<65536xi8> to memref<1x2x2x64x64xf32>
    %c0_18 = arith.constant 0 : index
    %view_19 = memref.view %arg1[%c0_18][] : memref<4xi8> to memref<1xi32>
    %alloc_20 = memref.alloc() : memref<1x1x2x64xf32>
    call @attention_1x1x2x64(%view_17, %alloc_15, %view_19, %alloc_20) : (memref<1x2x2x64x64xf32>, memref<1x384xf32>, memref<1xi32>, memref<1x1x2x64xf32>) -> ()
    %c0_21 = arith.constant 0 : index
    %view_22 = memref.view %arg8[%c0_21][] : memref<32768xi8> to memref<128x128xbf16>
    %c0_23 = arith.constant 0 : index
    %view_24 = memref.view %arg9[%c0_23][] : memref<512xi8> to memref<128xf32>
    %alloc_25 = memref.alloc() : memref<1x128xf32>
    call @contraction_1x128(%alloc_20, %view_22, %view_24, %alloc, %alloc_25) : (memref<1x1x2x64xf32>, memref<128x128xbf16>, memref<128xf32>, memref<1x128xf32>, memref<1x128xf32>) -> ()
    %c0_26 = arith.constant 0 : index
    %view_27 = memref.view %arg10[%c0_26][] : memref<512xi8> to memref<128xf32>
    %c0_28 = arith.constant 0 : index
    %view_29 = memref.view %arg11[%c0_28][] : memref<512xi8> to memref<128xf32>
    %c0_30 = arith.constant 0 : index
    %view_31 = memref.view %arg12[%c0_30][] : memref<131072xi8> to memref<512x128xbf16>
    %c0_32 = arith.constant 0 : index
    %view_33 = memref.view %arg13[%c0_32][] : memref<2048xi8> to memref<512xf32>
    %alloc_34 = memref.alloc() : memref<1x512xf32>
    call @contraction_1x512(%alloc_25, %view_27, %view_29, %view_31, %view_33, %alloc_34) : (memref<1x128xf32>, memref<128xf32>, memref<128xf32>, memref<512x128xbf16>, memref<512xf32>, memref<1x512xf32>) -> ()
    %c0_35 = arith.constant 0 : index
    %view_36 = memref.view %arg14[%c0_35][] : memref<131072xi8> to memref<128x512xbf16>
    %c0_37 = arith.constant 0 : index
    %view_38 = memref.view %arg15[%c0_37][] : memref<512xi8> to memref<128xf32>
    %alloc_39 = memref.alloc() : memref<1x128xf32>
    call @contraction_1x128_2(%alloc_34, %view_36, %view_38, %alloc_25, %alloc_39) : (memref<1x512xf32>, memref<128x512xbf16>, memref<128xf32>, memref<1x128xf32>, memref<1x128xf32>) -> ()
    %c0_40 = arith.constant 0 : index
    %view_41 = memref.view %arg16[%c0_40][] : memref<512xi8> to memref<128xf32>
    %c0_42 = arith.constant 0 : index
    %view_43 = memref.view %arg17[%c0_42][] : memref<512xi8> to memref<128xf32>
    %c0_44 = arith.constant 0 : index
    %view_45 = memref.view %arg2[%c0_44][] : memref<65536xi8> to memref<256x128xbf16>
    %c0_46 = arith.constant 0 : index
    %view_47 = memref.view %arg19[%c0_46][] : memref<1024xi8> to memref<1x256xf32>
    call @contraction_1x256(%alloc_39, %view_41, %view_43, %view_45, %view_47) : (memref<1x128xf32>, memref<128xf32>, memref<128xf32>, memref<256x128xbf16>, memref<1x256xf32>) -> ()
    %c0_48 = arith.constant 0 : index
    %view_49 = memref.view %arg19[%c0_48][] : memref<1024xi8> to memref<1x256xf32>
    %alloc_50 = memref.alloc() : memref<1x2x4xi32>
    call @top_chunks(%view_49, %alloc_50) : (memref<1x256xf32>, memref<1x2x4xi32>) -> ()
    %c0_51 = arith.constant 0 : index
    %view_52 = memref.view %arg20[%c0_51][] : memref<4xi8> to memref<1xi32>
    %c0_53 = arith.constant 0 : index
    %view_54 = memref.view %arg21[%c0_53][] : memref<12xi8> to memref<1x3xi32>
    call @choose_top(%alloc_50, %view_52, %view_54) : (memref<1x2x4xi32>, memref<1xi32>, memref<1x3xi32>) -> ()
    %c0_55 = arith.constant 0 : index
    %view_56 = memref.view %arg20[%c0_55][] : memref<4xi8> to memref<1xi32>
    %c0_57 = arith.constant 0 : index
    %view_58 = memref.view %arg0[%c0_57][] : memref<4xi8> to memref<1xi32>
    %c0_59 = arith.constant 0 : index
    %view_60 = memref.view %arg1[%c0_59][] : memref<4xi8> to memref<1xi32>
    call @advance(%view_56, %view_58, %view_60) : (memref<1xi32>, memref<1xi32>, memref<1xi32>) -> ()
    return
  }
}
// ----- becomes
func.func "sums_of_rows_512x128_bf16"
  access = ["read", "read", "write"]
  function_type = (memref<512x128xbf16>, memref<128xf32>, memref<512xf32>) -> ()
  kernel = "contraction"
  sym_visibility = "private"
  tied = [-1]
  1 arith.addf
  1 arith.constant
  1 arith.extf
  1 arith.mulf
  1 bufferization.materialize_in_destination
  2 bufferization.to_tensor
  1 func.return
  1 linalg.contract
  1 linalg.fill
  2 linalg.yield
  1 tensor.empty
func.func "sums_of_rows_384x128_bf16"
  access = ["read", "read", "write"]
  function_type = (memref<384x128xbf16>, memref<128xf32>, memref<384xf32>) -> ()
  kernel = "contraction"
  sym_visibility = "private"
  tied = [-1]
  1 arith.addf
  1 arith.constant
  1 arith.extf
  1 arith.mulf
  1 bufferization.materialize_in_destination
  2 bufferization.to_tensor
  1 func.return
  1 linalg.contract
  1 linalg.fill
  2 linalg.yield
  1 tensor.empty
func.func "decode_greedy_batch1_positions1_shared"
  access = ["read_write", "read_write", "read", "read", "read", "read", "read", "read", "read", "read", "read", "read", "read", "read", "read", "read", "read", "read", "read_write", "write", "write", "write", "read", "read", "read_write", "read", "read_write", "read_write"]
  block = [512, 1, 1]
  cluster = array<i32: 8, 1, 1>
  function_type = (memref<4xi8>, memref<4xi8>, memref<65536xi8>, memref<16384xi8>, memref<512xi8>, memref<512xi8>, memref<98304xi8>, memref<1536xi8>, memref<32768xi8>, memref<512xi8>, memref<512xi8>, memref<512xi8>, memref<131072xi8>, memref<2048xi8>, memref<131072xi8>, memref<512xi8>, memref<512xi8>, memref<512xi8>, memref<65536xi8>, memref<1024xi8>, memref<4xi8>, memref<12xi8>, memref<3072xi8>, memref<4096xi8>, memref<1568xi32>, memref<1xi32>, memref<16x1xi32>, memref<16x3xi32>) -> ()
  grid = [16, 1, 1]
  kernel = "persistent"
  persistent = 8 : i64
  residency = 1 : i32
  shared_bytes = 149696 : i64
  sym_visibility = "private"
  tensor_maps = [{argument = 6 : i64, box = array<i64: 64, 8, 2>, dtype = "bf16", extents = array<i64: 64, 384, 2>, offset = 0 : i64, strides = array<i64: 256, 128>}, {argument = 8 : i64, box = array<i64: 64, 16>, dtype = "bf16", extents = array<i64: 128, 128>, offset = 0 : i64, strides = array<i64: 256>}, {argument = 14 : i64, box = array<i64: 64, 16>, dtype = "bf16", extents = array<i64: 512, 128>, offset = 0 : i64, strides = array<i64: 1024>}, {argument = 2 : i64, box = array<i64: 64, 8, 2>, dtype = "bf16", extents = array<i64: 64, 256, 2>, offset = 0 : i64, strides = array<i64: 256, 128>}, {argument = 12 : i64, box = array<i64: 64, 8, 2>, dtype = "bf16", extents = array<i64: 64, 512, 2>, offset = 0 : i64, strides = array<i64: 256, 128>}, {argument = 18 : i64, box = array<i64: 64, 1, 1, 1>, dtype = "bf16", extents = array<i64: 128, 8, 8, 2>, offset = 0 : i64, strides = array<i64: 256, 2048, 16384>}, {argument = 18 : i64, box = array<i64: 64, 1, 8, 1>, dtype = "bf16", extents = array<i64: 128, 8, 8, 2>, offset = 0 : i64, strides = array<i64: 256, 2048, 16384>}, {argument = 18 : i64, box = array<i64: 64, 1, 1, 1>, dtype = "bf16", extents = array<i64: 128, 8, 8, 2>, offset = 32768 : i64, strides = array<i64: 256, 2048, 16384>}, {argument = 18 : i64, box = array<i64: 64, 1, 8, 1>, dtype = "bf16", extents = array<i64: 128, 8, 8, 2>, offset = 32768 : i64, strides = array<i64: 256, 2048, 16384>}]
  work = {bytes = 482928 : i64, context = 64 : i64, operations = 467084 : i64, position_bytes = 1024 : i64, position_operations = 524 : i64}
  123 arith.addf
  7 arith.addf vector<2xf32>
  684 arith.addi
  106 arith.andi
  220 arith.bitcast
  13 arith.cmpf
  157 arith.cmpi
  1705 arith.constant
  3 arith.divf
  79 arith.divui
  2 arith.extf vector<2xf32>
  27 arith.extui
  32 arith.index_cast
  88 arith.index_castui
  13 arith.maxsi
  42 arith.minsi
  57 arith.mulf
  324 arith.muli
  11 arith.ori
  88 arith.remui
  129 arith.select
  28 arith.shli
  20 arith.shrsi
  54 arith.shrui
  12 arith.sitofp
  52 arith.subf
  57 arith.subi
  132 arith.trunci
  49 arith.xori
  9 builtin.unrealized_conversion_cast
  1 func.return
  2 gpu.barrier
  1 gpu.block_id
  1 gpu.dynamic_shared_memory
  60 gpu.shuffle
  1 gpu.thread_id
  117 llvm.call_intrinsic
  248 llvm.extractvalue
  397 llvm.inline_asm
  19 llvm.inttoptr
  8 math.absf
  21 memref.extract_aligned_pointer_as_index
  10 memref.load
  20 memref.store
  42 memref.view
  2 nvvm.cluster.arrive
  2 nvvm.cluster.wait
  53 scf.condition
  20 scf.for
  93 scf.if
  53 scf.while
  181 scf.yield
  2 vector.bitcast vector<4xf32>
  26 vector.extract vector<2xf32>
  12 vector.extract vector<4xf32>
  9 vector.from_elements vector<2xf32>
  1 vector.from_elements vector<4xf32>
  2 vector.from_elements vector<4xi32>
  2 vector.load vector<2xbf16>
  9 vector.load vector<2xf32>
  2 vector.store vector<2xf32>
func.func "decode_greedy_batch1_positions1"
  arguments = ["input:tokens", "input:positions", "weight:wte", "weight:wpe", "weight:ln1-w", "weight:ln1-b", "weight:qkv-w", "weight:qkv-b", "weight:proj-w", "weight:proj-b", "weight:ln2-w", "weight:ln2-b", "weight:fc-w", "weight:fc-b", "weight:out-w", "weight:out-b", "weight:lnf-w", "weight:lnf-b", "state:kv", "result:logits", "result:next", "result:report", "made:qkv-w+ln1-w+ln1-b, sums of rows", "made:fc-w+ln2-w+ln2-b, sums of rows", "signals:decode_greedy_batch1_positions1_shared/exchange", "control:more", "kept:next", "kept:report"]
  entry = "decode-greedy"
  extents = array<i64: 1, 1>
  function_type = (memref<4xi8>, memref<4xi8>, memref<65536xi8>, memref<16384xi8>, memref<512xi8>, memref<512xi8>, memref<98304xi8>, memref<1536xi8>, memref<32768xi8>, memref<512xi8>, memref<512xi8>, memref<512xi8>, memref<131072xi8>, memref<2048xi8>, memref<131072xi8>, memref<512xi8>, memref<512xi8>, memref<512xi8>, memref<65536xi8>, memref<1024xi8>, memref<4xi8>, memref<12xi8>, memref<3072xi8>, memref<4096xi8>, memref<6272xi8>, memref<4xi8>, memref<64xi8>, memref<192xi8>) -> ()
  inputs = {positions = array<i64: 1, 1>, tokens = array<i64: 1, 1>}
  remarks = ["10 launches are one, of 2 clusters, 2 with 1 heads and 256 hidden units each: modelled 14 us apart, 10 us as one"]
  repeatable = unit
  repeats = {kept = ["next", "report"], most = 16 : i64}
  results = ["result:logits", "result:next", "result:report", "input:tokens", "input:positions", "state:kv"]
  sizes = ["batch", "positions"]
  types = [tensor<1xi32>, tensor<1xi32>, tensor<256x128xbf16>, tensor<64x128xbf16>, tensor<1x128xf32>, tensor<1x128xf32>, tensor<1x384x128xbf16>, tensor<1x384xf32>, tensor<1x128x128xbf16>, tensor<1x128xf32>, tensor<1x128xf32>, tensor<1x128xf32>, tensor<1x512x128xbf16>, tensor<1x512xf32>, tensor<1x128x512xbf16>, tensor<1x128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<1x1x2x2x64x64xf32>, tensor<1x256xf32>, tensor<1xi32>, tensor<1x3xi32>, tensor<1x2x384xf32>, tensor<1x2x512xf32>, tensor<1568xi32>, tensor<1xi32>, tensor<16x1xi32>, tensor<16x1x3xi32>]
  56 arith.constant
  1 func.call
  1 func.return
  28 memref.view
func.func "make_weights"
  arguments = ["weight:qkv-w", "weight:ln1-w", "weight:ln1-b", "made:qkv-w+ln1-w+ln1-b, sums of rows", "weight:fc-w", "weight:ln2-w", "weight:ln2-b", "made:fc-w+ln2-w+ln2-b, sums of rows"]
  entry = "make-weights"
  extents = array<i64>
  function_type = (memref<98304xi8>, memref<512xi8>, memref<512xi8>, memref<3072xi8>, memref<131072xi8>, memref<512xi8>, memref<512xi8>, memref<4096xi8>) -> ()
  inputs = {}
  makes = unit
  results = ["made:qkv-w+ln1-w+ln1-b, sums of rows", "made:fc-w+ln2-w+ln2-b, sums of rows"]
  sizes = []
  types = [tensor<1x384x128xbf16>, tensor<1x128xf32>, tensor<1x128xf32>, tensor<1x2x384xf32>, tensor<1x512x128xbf16>, tensor<1x128xf32>, tensor<1x128xf32>, tensor<1x2x512xf32>]
  12 arith.constant
  4 func.call
  1 func.return
  12 memref.view
