// pass: widen-weights{when=always rows=2}
// target: cuda:sm_90a
// show: text
#rows = affine_map<(d0, d1) -> (d0, d1)>
#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d1, d2)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
module {
  func.func @y(%x: tensor<2x32xbf16>, %one: tensor<1x32xbf16>, %w: tensor<6x1x34xi8>, %v: tensor<6x1x34xi8>) -> (tensor<2x6xf32>, tensor<1x6xf32>, tensor<2x6xf32>) attributes {arguments = ["input:x", "input:one", "weight:w", "weight:v"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 2, 32>, one = array<i64: 1, 32>}, repeatable, results = ["result:y", "result:z", "result:e"], sizes = []} {
    %zero = arith.constant 0.0 : f32
    %many = tensor.empty() : tensor<2x6xf32>
    %few = tensor.empty() : tensor<1x6xf32>
    %start = linalg.fill ins(%zero : f32) outs(%many : tensor<2x6xf32>) -> tensor<2x6xf32>
    %begin = linalg.fill ins(%zero : f32) outs(%few : tensor<1x6xf32>) -> tensor<1x6xf32>
    %room = tensor.empty() : tensor<6x32xf32>
    %a = tensor.extract_slice %w[0, 0, 2] [6, 1, 32] [1, 1, 1] : tensor<6x1x34xi8> to tensor<6x1x32xi8>
    %b = tensor.collapse_shape %a [[0], [1, 2]] : tensor<6x1x32xi8> into tensor<6x32xi8>
    %rounded = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]} ins(%b : tensor<6x32xi8>) outs(%room : tensor<6x32xf32>) attrs = {blocks = "q8_0", inline, rounded} {
    ^bb0(%in: i8, %o: f32):
      %f = arith.sitofp %in : i8 to f32
      linalg.yield %f : f32
    } -> tensor<6x32xf32>
    %c = tensor.extract_slice %v[0, 0, 2] [6, 1, 32] [1, 1, 1] : tensor<6x1x34xi8> to tensor<6x1x32xi8>
    %d = tensor.collapse_shape %c [[0], [1, 2]] : tensor<6x1x32xi8> into tensor<6x32xi8>
    %exact = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]} ins(%d : tensor<6x32xi8>) outs(%room : tensor<6x32xf32>) attrs = {blocks = "q8_0", inline} {
    ^bb0(%in: i8, %o: f32):
      %f = arith.sitofp %in : i8 to f32
      linalg.yield %f : f32
    } -> tensor<6x32xf32>
    %y = linalg.contract indexing_maps = [#left, #right, #out] ins(%x, %rounded : tensor<2x32xbf16>, tensor<6x32xf32>) outs(%start : tensor<2x6xf32>) -> tensor<2x6xf32>
    %z = linalg.contract indexing_maps = [#left, #right, #out] ins(%one, %rounded : tensor<1x32xbf16>, tensor<6x32xf32>) outs(%begin : tensor<1x6xf32>) -> tensor<1x6xf32>
    %e = linalg.contract indexing_maps = [#left, #right, #out] ins(%x, %exact : tensor<2x32xbf16>, tensor<6x32xf32>) outs(%start : tensor<2x6xf32>) -> tensor<2x6xf32>
    return %y, %z, %e : tensor<2x6xf32>, tensor<1x6xf32>, tensor<2x6xf32>
  }
}
// ----- becomes
module {
  func.func @y(%arg0: tensor<2x32xbf16>, %arg1: tensor<1x32xbf16>, %arg2: tensor<6x1x34xi8>, %arg3: tensor<6x1x34xi8>) -> (tensor<2x6xf32>, tensor<1x6xf32>, tensor<2x6xf32>) attributes {arguments = ["input:x", "input:one", "weight:w", "weight:v"], entry = "y", extents = array<i64>, inputs = {one = array<i64: 1, 32>, x = array<i64: 2, 32>}, repeatable, results = ["result:y", "result:z", "result:e"], sizes = []} {
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<2x6xf32>
    %empty_1 = tensor.empty() : tensor<1x6xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<2x6xf32>) -> tensor<2x6xf32>
    %fill_1 = linalg.fill ins(%constant_0 : f32) outs(%empty_1 : tensor<1x6xf32>) -> tensor<1x6xf32>
    %empty_2 = tensor.empty() : tensor<6x32xf32>
    %extract_slice_0 = tensor.extract_slice %arg2[0, 0, 2] [6, 1, 32] [1, 1, 1] : tensor<6x1x34xi8> to tensor<6x1x32xi8>
    %collapse_shape_0 = tensor.collapse_shape %extract_slice_0 [[0], [1, 2]] : tensor<6x1x32xi8> into tensor<6x32xi8>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%collapse_shape_0 : tensor<6x32xi8>) outs(%empty_2 : tensor<6x32xf32>) attrs =  {blocks = "q8_0", inline, rounded} {
    ^bb0(%in: i8, %out: f32):
      %sitofp_0 = arith.sitofp %in : i8 to f32
      linalg.yield %sitofp_0 : f32
    } -> tensor<6x32xf32>
    %extract_slice_1 = tensor.extract_slice %arg3[0, 0, 2] [6, 1, 32] [1, 1, 1] : tensor<6x1x34xi8> to tensor<6x1x32xi8>
    %collapse_shape_1 = tensor.collapse_shape %extract_slice_1 [[0], [1, 2]] : tensor<6x1x32xi8> into tensor<6x32xi8>
    %generic_1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%collapse_shape_1 : tensor<6x32xi8>) outs(%empty_2 : tensor<6x32xf32>) attrs =  {blocks = "q8_0", inline} {
    ^bb0(%in: i8, %out: f32):
      %sitofp_1 = arith.sitofp %in : i8 to f32
      linalg.yield %sitofp_1 : f32
    } -> tensor<6x32xf32>
    %empty_3 = tensor.empty() : tensor<6x32xbf16>
    %generic_2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%generic_0 : tensor<6x32xf32>) outs(%empty_3 : tensor<6x32xbf16>) attrs =  {widens} {
    ^bb0(%in: f32, %out: bf16):
      %truncf_0 = arith.truncf %in : f32 to bf16
      linalg.yield %truncf_0 : bf16
    } -> tensor<6x32xbf16>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%arg0, %generic_2 : tensor<2x32xbf16>, tensor<6x32xbf16>) outs(%fill_0 : tensor<2x6xf32>) -> tensor<2x6xf32>
    %contract_1 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%arg1, %generic_0 : tensor<1x32xbf16>, tensor<6x32xf32>) outs(%fill_1 : tensor<1x6xf32>) -> tensor<1x6xf32>
    %contract_2 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%arg0, %generic_1 : tensor<2x32xbf16>, tensor<6x32xf32>) outs(%fill_0 : tensor<2x6xf32>) -> tensor<2x6xf32>
    return %contract_0, %contract_1, %contract_2 : tensor<2x6xf32>, tensor<1x6xf32>, tensor<2x6xf32>
  }
}
