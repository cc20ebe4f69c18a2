// pass: store-parts{rows=2}
// target: cuda:sm_90a
// show: text
#rows = affine_map<(d0, d1) -> (d0, d1)>
#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d1, d2)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
module {
  func.func @y(%x: tensor<2x2x4xf32>, %w: tensor<6x8xbf16>, %v: tensor<6x8xf32>) -> (tensor<2x6xf32>, tensor<2x6xf32>) attributes {arguments = ["input:x", "weight:w", "weight:v"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 2, 2, 4>}, repeatable, results = ["result:y", "result:z"], sizes = []} {
    %e = tensor.empty() : tensor<2x2x4xf32>
    %map = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>, affine_map<(a, b, c) -> (a, b, c)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x : tensor<2x2x4xf32>) outs(%e : tensor<2x2x4xf32>) {
    ^bb0(%in: f32, %o: f32):
      %d = arith.addf %in, %in : f32
      linalg.yield %d : f32
    } -> tensor<2x2x4xf32>
    %flat = tensor.collapse_shape %map [[0], [1, 2]] : tensor<2x2x4xf32> into tensor<2x8xf32>
    %other = tensor.collapse_shape %x [[0], [1, 2]] : tensor<2x2x4xf32> into tensor<2x8xf32>
    %empty = tensor.empty() : tensor<2x6xf32>
    %zero = arith.constant 0.0 : f32
    %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<2x6xf32>) -> tensor<2x6xf32>
    %y = linalg.contract indexing_maps = [#left, #right, #out] ins(%flat, %w : tensor<2x8xf32>, tensor<6x8xbf16>) outs(%start : tensor<2x6xf32>) -> tensor<2x6xf32>
    %z = linalg.contract indexing_maps = [#left, #right, #out] ins(%other, %v : tensor<2x8xf32>, tensor<6x8xf32>) outs(%start : tensor<2x6xf32>) -> tensor<2x6xf32>
    return %y, %z : tensor<2x6xf32>, tensor<2x6xf32>
  }
}
// ----- becomes
module {
  func.func @y(%arg0: tensor<2x2x4xf32>, %arg1: tensor<6x8xbf16>, %arg2: tensor<6x8xf32>) -> (tensor<2x6xf32>, tensor<2x6xf32>) attributes {arguments = ["input:x", "weight:w", "weight:v"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 2, 2, 4>}, repeatable, results = ["result:y", "result:z"], sizes = []} {
    %empty_0 = tensor.empty() : tensor<2x2x4xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%arg0 : tensor<2x2x4xf32>) outs(%empty_0 : tensor<2x2x4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %addf_0 = arith.addf %in, %in : f32
      linalg.yield %addf_0 : f32
    } -> tensor<2x2x4xf32>
    %empty_1 = tensor.empty() : tensor<2x2x4xbf16>
    %generic_1 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%generic_0 : tensor<2x2x4xf32>) outs(%empty_1 : tensor<2x2x4xbf16>) {
    ^bb0(%in: f32, %out: bf16):
      %bitcast_0 = arith.bitcast %in : f32 to i32
      %c-65536_i32 = arith.constant -65536 : i32
      %andi_0 = arith.andi %bitcast_0, %c-65536_i32 : i32
      %bitcast_1 = arith.bitcast %andi_0 : i32 to f32
      %truncf_0 = arith.truncf %bitcast_1 : f32 to bf16
      linalg.yield %truncf_0 : bf16
    } -> tensor<2x2x4xbf16>
    %empty_2 = tensor.empty() : tensor<2x2x4xbf16>
    %generic_2 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%generic_0 : tensor<2x2x4xf32>) outs(%empty_2 : tensor<2x2x4xbf16>) {
    ^bb0(%in: f32, %out: bf16):
      %bitcast_2 = arith.bitcast %in : f32 to i32
      %c-65536_i32 = arith.constant -65536 : i32
      %andi_1 = arith.andi %bitcast_2, %c-65536_i32 : i32
      %bitcast_3 = arith.bitcast %andi_1 : i32 to f32
      %subf_0 = arith.subf %in, %bitcast_3 : f32
      %truncf_1 = arith.truncf %subf_0 : f32 to bf16
      linalg.yield %truncf_1 : bf16
    } -> tensor<2x2x4xbf16>
    %empty_3 = tensor.empty() : tensor<2x2x4xf32>
    %generic_3 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%generic_1, %generic_2 : tensor<2x2x4xbf16>, tensor<2x2x4xbf16>) outs(%empty_3 : tensor<2x2x4xf32>) attrs =  {inline} {
    ^bb0(%in: bf16, %in_1: bf16, %out: f32):
      %extf_0 = arith.extf %in : bf16 to f32
      %extf_1 = arith.extf %in_1 : bf16 to f32
      %addf_1 = arith.addf %extf_0, %extf_1 : f32
      linalg.yield %addf_1 : f32
    } -> tensor<2x2x4xf32>
    %collapse_shape_0 = tensor.collapse_shape %generic_3 [[0], [1, 2]] : tensor<2x2x4xf32> into tensor<2x8xf32>
    %collapse_shape_1 = tensor.collapse_shape %arg0 [[0], [1, 2]] : tensor<2x2x4xf32> into tensor<2x8xf32>
    %empty_4 = tensor.empty() : tensor<2x6xf32>
    %constant_0 = arith.constant 0.000000e+00 : f32
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_4 : tensor<2x6xf32>) -> tensor<2x6xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%collapse_shape_0, %arg1 : tensor<2x8xf32>, tensor<6x8xbf16>) outs(%fill_0 : tensor<2x6xf32>) -> tensor<2x6xf32>
    %contract_1 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%collapse_shape_1, %arg2 : tensor<2x8xf32>, tensor<6x8xf32>) outs(%fill_0 : tensor<2x6xf32>) -> tensor<2x6xf32>
    return %contract_0, %contract_1 : tensor<2x6xf32>, tensor<2x6xf32>
  }
}
