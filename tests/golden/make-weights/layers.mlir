// pass: make-weights
// target: cuda:sm_90a
// show: text
#matrix = affine_map<(d0, d1) -> (d0, d1)>
#vector = affine_map<(d0, d1) -> (d1)>
#result = affine_map<(d0, d1) -> (d0)>
#rows = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
module {
  func.func @y(%x: tensor<3x6xf32>, %w: tensor<2x6x8xbf16>, %v: tensor<2x8xf32>) -> tensor<3x6xf32> attributes {arguments = ["input:x", "weight:w", "weight:v"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 3, 6>}, repeatable, results = ["result:y"], sizes = []} {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<6xf32>
    %start = linalg.fill ins(%zero : f32) outs(%e : tensor<6xf32>) -> tensor<6xf32>
    %w1 = tensor.extract_slice %w[1, 0, 0] [1, 6, 8] [1, 1, 1] : tensor<2x6x8xbf16> to tensor<6x8xbf16>
    %v1 = tensor.extract_slice %v[1, 0] [1, 8] [1, 1] : tensor<2x8xf32> to tensor<8xf32>
    %r1 = linalg.contract indexing_maps = [#matrix, #vector, #result] ins(%w1, %v1 : tensor<6x8xbf16>, tensor<8xf32>) outs(%start : tensor<6xf32>) {once} -> tensor<6xf32>
    %w0 = tensor.extract_slice %w[0, 0, 0] [1, 6, 8] [1, 1, 1] : tensor<2x6x8xbf16> to tensor<6x8xbf16>
    %v0 = tensor.extract_slice %v[0, 0] [1, 8] [1, 1] : tensor<2x8xf32> to tensor<8xf32>
    %r0 = linalg.contract indexing_maps = [#matrix, #vector, #result] ins(%w0, %v0 : tensor<6x8xbf16>, tensor<8xf32>) outs(%start : tensor<6xf32>) {once} -> tensor<6xf32>
    %twice = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%r0 : tensor<6xf32>) outs(%e : tensor<6xf32>) attrs = {once} {
    ^bb0(%in: f32, %o: f32):
      %d = arith.addf %in, %in : f32
      linalg.yield %d : f32
    } -> tensor<6xf32>
    %e2 = tensor.empty() : tensor<3x6xf32>
    %y = linalg.generic {indexing_maps = [#rows, #row, #row, #rows], iterator_types = ["parallel", "parallel"]} ins(%x, %r1, %twice : tensor<3x6xf32>, tensor<6xf32>, tensor<6xf32>) outs(%e2 : tensor<3x6xf32>) {
    ^bb0(%in: f32, %a: f32, %b: f32, %o: f32):
      %s = arith.addf %in, %a : f32
      %t = arith.mulf %s, %b : f32
      linalg.yield %t : f32
    } -> tensor<3x6xf32>
    return %y : tensor<3x6xf32>
  }
  func.func @z(%v: tensor<2x8xf32>, %u: tensor<8xf32>, %w: tensor<2x6x8xbf16>) -> (tensor<6xf32>, tensor<8xf32>) attributes {arguments = ["weight:v", "weight:u", "weight:w"], entry = "z", extents = array<i64>, inputs = {}, repeatable, results = ["result:z", "weight:u"], sizes = []} {
    %e = tensor.empty() : tensor<6xf32>
    %zero = arith.constant 0.0 : f32
    %start = linalg.fill ins(%zero : f32) outs(%e : tensor<6xf32>) -> tensor<6xf32>
    %w0 = tensor.extract_slice %w[0, 0, 0] [1, 6, 8] [1, 1, 1] : tensor<2x6x8xbf16> to tensor<6x8xbf16>
    %v0 = tensor.extract_slice %v[0, 0] [1, 8] [1, 1] : tensor<2x8xf32> to tensor<8xf32>
    %r0 = linalg.contract indexing_maps = [#matrix, #vector, #result] ins(%w0, %v0 : tensor<6x8xbf16>, tensor<8xf32>) outs(%start : tensor<6xf32>) {once} -> tensor<6xf32>
    %changing = linalg.contract indexing_maps = [#matrix, #vector, #result] ins(%w0, %u : tensor<6x8xbf16>, tensor<8xf32>) outs(%r0 : tensor<6xf32>) {once} -> tensor<6xf32>
    %e8 = tensor.empty() : tensor<8xf32>
    %u1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%u, %v0 : tensor<8xf32>, tensor<8xf32>) outs(%e8 : tensor<8xf32>) {
    ^bb0(%in: f32, %b: f32, %o: f32):
      %s = arith.addf %in, %b : f32
      linalg.yield %s : f32
    } -> tensor<8xf32>
    return %changing, %u1 : tensor<6xf32>, tensor<8xf32>
  }
}
// ----- becomes
module {
  func.func @y(%arg0: tensor<3x6xf32>, %arg1: tensor<2x6x8xbf16>, %arg2: tensor<2x8xf32>, %arg3: tensor<2x6xf32>, %arg4: tensor<6xf32>) -> tensor<3x6xf32> attributes {arguments = ["input:x", "weight:w", "weight:v", "made:w+v.de412579", "made:w+v.d7a17472"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 3, 6>}, repeatable, results = ["result:y"], sizes = []} {
    %extract_slice_0 = tensor.extract_slice %arg3[1, 0] [1, 6] [1, 1] : tensor<2x6xf32> to tensor<6xf32>
    %empty_0 = tensor.empty() : tensor<3x6xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%arg0, %extract_slice_0, %arg4 : tensor<3x6xf32>, tensor<6xf32>, tensor<6xf32>) outs(%empty_0 : tensor<3x6xf32>) {
    ^bb0(%in: f32, %in_0: f32, %in_1: f32, %out: f32):
      %addf_0 = arith.addf %in, %in_0 : f32
      %mulf_0 = arith.mulf %addf_0, %in_1 : f32
      linalg.yield %mulf_0 : f32
    } -> tensor<3x6xf32>
    return %generic_0 : tensor<3x6xf32>
  }
  func.func @z(%arg0: tensor<2x8xf32>, %arg1: tensor<8xf32>, %arg2: tensor<2x6x8xbf16>, %arg3: tensor<2x6xf32>) -> (tensor<6xf32>, tensor<8xf32>) attributes {arguments = ["weight:v", "weight:u", "weight:w", "made:w+v.de412579"], entry = "z", extents = array<i64>, inputs = {}, repeatable, results = ["result:z", "weight:u"], sizes = []} {
    %extract_slice_0 = tensor.extract_slice %arg3[0, 0] [1, 6] [1, 1] : tensor<2x6xf32> to tensor<6xf32>
    %extract_slice_1 = tensor.extract_slice %arg2[0, 0, 0] [1, 6, 8] [1, 1, 1] : tensor<2x6x8xbf16> to tensor<6x8xbf16>
    %extract_slice_2 = tensor.extract_slice %arg0[0, 0] [1, 8] [1, 1] : tensor<2x8xf32> to tensor<8xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0)>] ins(%extract_slice_1, %arg1 : tensor<6x8xbf16>, tensor<8xf32>) outs(%extract_slice_0 : tensor<6xf32>) -> tensor<6xf32>
    %empty_0 = tensor.empty() : tensor<8xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%arg1, %extract_slice_2 : tensor<8xf32>, tensor<8xf32>) outs(%empty_0 : tensor<8xf32>) {
    ^bb0(%in: f32, %in_2: f32, %out: f32):
      %addf_0 = arith.addf %in, %in_2 : f32
      linalg.yield %addf_0 : f32
    } -> tensor<8xf32>
    return %contract_0, %generic_0 : tensor<6xf32>, tensor<8xf32>
  }
  func.func @make_weights(%arg0: tensor<2x6x8xbf16>, %arg1: tensor<2x8xf32>) -> (tensor<2x6xf32>, tensor<6xf32>) attributes {arguments = ["weight:w", "weight:v"], entry = "make-weights", extents = array<i64>, inputs = {}, makes, results = ["made:w+v.de412579", "made:w+v.d7a17472"], sizes = []} {
    %extract_slice_0 = tensor.extract_slice %arg0[0, 0, 0] [1, 6, 8] [1, 1, 1] : tensor<2x6x8xbf16> to tensor<6x8xbf16>
    %extract_slice_1 = tensor.extract_slice %arg1[0, 0] [1, 8] [1, 1] : tensor<2x8xf32> to tensor<8xf32>
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<6xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<6xf32>) -> tensor<6xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0)>] ins(%extract_slice_0, %extract_slice_1 : tensor<6x8xbf16>, tensor<8xf32>) outs(%fill_0 : tensor<6xf32>) -> tensor<6xf32>
    %extract_slice_2 = tensor.extract_slice %arg0[1, 0, 0] [1, 6, 8] [1, 1, 1] : tensor<2x6x8xbf16> to tensor<6x8xbf16>
    %extract_slice_3 = tensor.extract_slice %arg1[1, 0] [1, 8] [1, 1] : tensor<2x8xf32> to tensor<8xf32>
    %constant_1 = arith.constant 0.000000e+00 : f32
    %empty_1 = tensor.empty() : tensor<6xf32>
    %fill_1 = linalg.fill ins(%constant_1 : f32) outs(%empty_1 : tensor<6xf32>) -> tensor<6xf32>
    %contract_1 = linalg.contract indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0)>] ins(%extract_slice_2, %extract_slice_3 : tensor<6x8xbf16>, tensor<8xf32>) outs(%fill_1 : tensor<6xf32>) -> tensor<6xf32>
    %empty_2 = tensor.empty() : tensor<2x6xf32>
    %insert_slice_0 = tensor.insert_slice %contract_0 into %empty_2[0, 0] [1, 6] [1, 1] : tensor<6xf32> into tensor<2x6xf32>
    %insert_slice_1 = tensor.insert_slice %contract_1 into %insert_slice_0[1, 0] [1, 6] [1, 1] : tensor<6xf32> into tensor<2x6xf32>
    %extract_slice_4 = tensor.extract_slice %arg0[0, 0, 0] [1, 6, 8] [1, 1, 1] : tensor<2x6x8xbf16> to tensor<6x8xbf16>
    %extract_slice_5 = tensor.extract_slice %arg1[0, 0] [1, 8] [1, 1] : tensor<2x8xf32> to tensor<8xf32>
    %constant_2 = arith.constant 0.000000e+00 : f32
    %empty_3 = tensor.empty() : tensor<6xf32>
    %fill_2 = linalg.fill ins(%constant_2 : f32) outs(%empty_3 : tensor<6xf32>) -> tensor<6xf32>
    %contract_2 = linalg.contract indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0)>] ins(%extract_slice_4, %extract_slice_5 : tensor<6x8xbf16>, tensor<8xf32>) outs(%fill_2 : tensor<6xf32>) -> tensor<6xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%contract_2 : tensor<6xf32>) outs(%empty_3 : tensor<6xf32>) {
    ^bb0(%in: f32, %out: f32):
      %addf_0 = arith.addf %in, %in : f32
      linalg.yield %addf_0 : f32
    } -> tensor<6xf32>
    return %insert_slice_1, %generic_0 : tensor<2x6xf32>, tensor<6xf32>
  }
}
