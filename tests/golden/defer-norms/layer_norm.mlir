// pass: defer-norms{rows=2 most-rows=4 group=4}
// target: cuda:sm_90a
// show: text
#rows = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>
#each = affine_map<(d0) -> (d0)>
#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d1, d2)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
module {
  func.func @y(%a: tensor<2x4xf32>, %r: tensor<2x8xf32>, %u: tensor<8x4xbf16>, %w: tensor<6x8xbf16>, %gamma: tensor<8xf32>, %beta: tensor<8xf32>, %bias: tensor<6xf32>) -> tensor<2x6xf32> attributes {arguments = ["input:a", "input:r", "weight:u", "weight:w", "weight:gamma", "weight:beta", "weight:bias"], entry = "y", extents = array<i64>, inputs = {a = array<i64: 2, 4>, r = array<i64: 2, 8>}, repeatable, results = ["result:y"], sizes = []} {
    %zero = arith.constant 0.0 : f32
    %e8 = tensor.empty() : tensor<2x8xf32>
    %e6 = tensor.empty() : tensor<2x6xf32>
    %e = tensor.empty() : tensor<2xf32>
    %s8 = linalg.fill ins(%zero : f32) outs(%e8 : tensor<2x8xf32>) -> tensor<2x8xf32>
    %s6 = linalg.fill ins(%zero : f32) outs(%e6 : tensor<2x6xf32>) -> tensor<2x6xf32>
    %s = linalg.fill ins(%zero : f32) outs(%e : tensor<2xf32>) -> tensor<2xf32>
    %made = linalg.contract indexing_maps = [#left, #right, #out] ins(%a, %u : tensor<2x4xf32>, tensor<8x4xbf16>) outs(%s8 : tensor<2x8xf32>) -> tensor<2x8xf32>
    %x = linalg.generic {indexing_maps = [#rows, #rows, #rows], iterator_types = ["parallel", "parallel"]} ins(%made, %r : tensor<2x8xf32>, tensor<2x8xf32>) outs(%e8 : tensor<2x8xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %d = arith.addf %p, %q : f32
      linalg.yield %d : f32
    } -> tensor<2x8xf32>
    %sum = linalg.reduce { arith.addf } ins(%x : tensor<2x8xf32>) outs(%s : tensor<2xf32>) dimensions = [1]
    %mean = linalg.generic {indexing_maps = [#each, #each], iterator_types = ["parallel"]} ins(%sum : tensor<2xf32>) outs(%e : tensor<2xf32>) {
    ^bb0(%p: f32, %o: f32):
      %n = arith.constant 8.0 : f32
      %d = arith.divf %p, %n : f32
      linalg.yield %d : f32
    } -> tensor<2xf32>
    %centred = linalg.generic {indexing_maps = [#rows, #row, #rows], iterator_types = ["parallel", "parallel"]} ins(%x, %mean : tensor<2x8xf32>, tensor<2xf32>) outs(%e8 : tensor<2x8xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %d = arith.subf %p, %q : f32
      linalg.yield %d : f32
    } -> tensor<2x8xf32>
    %square = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]} ins(%centred : tensor<2x8xf32>) outs(%e8 : tensor<2x8xf32>) {
    ^bb0(%p: f32, %o: f32):
      %d = arith.mulf %p, %p : f32
      linalg.yield %d : f32
    } -> tensor<2x8xf32>
    %squares = linalg.reduce { arith.addf } ins(%square : tensor<2x8xf32>) outs(%s : tensor<2xf32>) dimensions = [1]
    %scale = linalg.generic {indexing_maps = [#each, #each], iterator_types = ["parallel"]} ins(%squares : tensor<2xf32>) outs(%e : tensor<2xf32>) {
    ^bb0(%p: f32, %o: f32):
      %n = arith.constant 8.0 : f32
      %d = arith.divf %p, %n : f32
      %epsilon = arith.constant 1.0e-5 : f32
      %f = arith.addf %d, %epsilon : f32
      %g = math.rsqrt %f : f32
      linalg.yield %g : f32
    } -> tensor<2xf32>
    %n = linalg.generic {indexing_maps = [#rows, #row, #column, #column, #rows], iterator_types = ["parallel", "parallel"]} ins(%centred, %scale, %gamma, %beta : tensor<2x8xf32>, tensor<2xf32>, tensor<8xf32>, tensor<8xf32>) outs(%e8 : tensor<2x8xf32>) {
    ^bb0(%p: f32, %q: f32, %g: f32, %h: f32, %o: f32):
      %d = arith.mulf %p, %q : f32
      %f = arith.mulf %d, %g : f32
      %k = arith.addf %f, %h : f32
      linalg.yield %k : f32
    } -> tensor<2x8xf32>
    %y = linalg.contract indexing_maps = [#left, #right, #out] ins(%n, %w : tensor<2x8xf32>, tensor<6x8xbf16>) outs(%s6 : tensor<2x6xf32>) -> tensor<2x6xf32>
    %biased = linalg.generic {indexing_maps = [#rows, #column, #rows], iterator_types = ["parallel", "parallel"]} ins(%y, %bias : tensor<2x6xf32>, tensor<6xf32>) outs(%e6 : tensor<2x6xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %d = arith.addf %p, %q : f32
      linalg.yield %d : f32
    } -> tensor<2x6xf32>
    return %biased : tensor<2x6xf32>
  }
}
// ----- becomes
module {
  func.func @y(%arg0: tensor<2x4xf32>, %arg1: tensor<2x8xf32>, %arg2: tensor<8x4xbf16>, %arg3: tensor<6x8xbf16>, %arg4: tensor<8xf32>, %arg5: tensor<8xf32>, %arg6: tensor<6xf32>) -> tensor<2x6xf32> attributes {arguments = ["input:a", "input:r", "weight:u", "weight:w", "weight:gamma", "weight:beta", "weight:bias"], entry = "y", extents = array<i64>, inputs = {a = array<i64: 2, 4>, r = array<i64: 2, 8>}, repeatable, results = ["result:y"], sizes = []} {
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<2x8xf32>
    %empty_1 = tensor.empty() : tensor<2x6xf32>
    %empty_2 = tensor.empty() : tensor<2xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<2x8xf32>) -> tensor<2x8xf32>
    %fill_1 = linalg.fill ins(%constant_0 : f32) outs(%empty_1 : tensor<2x6xf32>) -> tensor<2x6xf32>
    %fill_2 = linalg.fill ins(%constant_0 : f32) outs(%empty_2 : tensor<2xf32>) -> tensor<2xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%arg0, %arg2 : tensor<2x4xf32>, tensor<8x4xbf16>) outs(%fill_0 : tensor<2x8xf32>) -> tensor<2x8xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%contract_0, %arg1 : tensor<2x8xf32>, tensor<2x8xf32>) outs(%empty_0 : tensor<2x8xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %addf_0 = arith.addf %in, %in_11 : f32
      linalg.yield %addf_0 : f32
    } -> tensor<2x8xf32>
    %reduce_0 = linalg.reduce { arith.addf } ins(%generic_0 : tensor<2x8xf32>) outs(%fill_2 : tensor<2xf32>) dimensions = [1] 
    %generic_1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%reduce_0 : tensor<2xf32>) outs(%empty_2 : tensor<2xf32>) {
    ^bb0(%in: f32, %out: f32):
      %constant_1 = arith.constant 8.000000e+00 : f32
      %divf_0 = arith.divf %in, %constant_1 : f32
      linalg.yield %divf_0 : f32
    } -> tensor<2xf32>
    %generic_2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%generic_0, %generic_1 : tensor<2x8xf32>, tensor<2xf32>) outs(%empty_0 : tensor<2x8xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %subf_0 = arith.subf %in, %in_11 : f32
      linalg.yield %subf_0 : f32
    } -> tensor<2x8xf32>
    %generic_3 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%generic_2 : tensor<2x8xf32>) outs(%empty_0 : tensor<2x8xf32>) {
    ^bb0(%in: f32, %out: f32):
      %mulf_0 = arith.mulf %in, %in : f32
      linalg.yield %mulf_0 : f32
    } -> tensor<2x8xf32>
    %reduce_1 = linalg.reduce { arith.addf } ins(%generic_3 : tensor<2x8xf32>) outs(%fill_2 : tensor<2xf32>) dimensions = [1] 
    %generic_4 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%reduce_1 : tensor<2xf32>) outs(%empty_2 : tensor<2xf32>) {
    ^bb0(%in: f32, %out: f32):
      %constant_2 = arith.constant 8.000000e+00 : f32
      %divf_1 = arith.divf %in, %constant_2 : f32
      %constant_3 = arith.constant 9.99999974E-6 : f32
      %addf_1 = arith.addf %divf_1, %constant_3 : f32
      %rsqrt_0 = math.rsqrt %addf_1 : f32
      linalg.yield %rsqrt_0 : f32
    } -> tensor<2xf32>
    %empty_3 = tensor.empty() : tensor<2x8xf32>
    %generic_5 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%generic_0, %arg4 : tensor<2x8xf32>, tensor<8xf32>) outs(%empty_3 : tensor<2x8xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %mulf_1 = arith.mulf %in, %in_11 : f32
      linalg.yield %mulf_1 : f32
    } -> tensor<2x8xf32>
    %expand_shape_0 = tensor.expand_shape %generic_0 [[0], [1, 2]] output_shape [2, 2, 4] : tensor<2x8xf32> into tensor<2x2x4xf32>
    %empty_4 = tensor.empty() : tensor<2x2xf32>
    %constant_4 = arith.constant 0.000000e+00 : f32
    %fill_3 = linalg.fill ins(%constant_4 : f32) outs(%empty_4 : tensor<2x2xf32>) -> tensor<2x2xf32>
    %reduce_2 = linalg.reduce ins(%expand_shape_0 : tensor<2x2x4xf32>) outs(%fill_3 : tensor<2x2xf32>) dimensions = [2]  {beside, moment = "sum"}
      (%in: f32, %init: f32) {
        %addf_2 = arith.addf %in, %init : f32
        linalg.yield %addf_2 : f32
      }
    %empty_5 = tensor.empty() : tensor<2x2x4xf32>
    %generic_6 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%expand_shape_0, %reduce_2 : tensor<2x2x4xf32>, tensor<2x2xf32>) outs(%empty_5 : tensor<2x2x4xf32>) attrs =  {beside} {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %constant_5 = arith.constant 2.500000e-01 : f32
      %mulf_2 = arith.mulf %in_11, %constant_5 : f32
      %subf_1 = arith.subf %in, %mulf_2 : f32
      linalg.yield %subf_1 : f32
    } -> tensor<2x2x4xf32>
    %empty_6 = tensor.empty() : tensor<2x2x4xf32>
    %generic_7 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%generic_6 : tensor<2x2x4xf32>) outs(%empty_6 : tensor<2x2x4xf32>) attrs =  {beside} {
    ^bb0(%in: f32, %out: f32):
      %mulf_3 = arith.mulf %in, %in : f32
      linalg.yield %mulf_3 : f32
    } -> tensor<2x2x4xf32>
    %empty_7 = tensor.empty() : tensor<2x2xf32>
    %constant_6 = arith.constant 0.000000e+00 : f32
    %fill_4 = linalg.fill ins(%constant_6 : f32) outs(%empty_7 : tensor<2x2xf32>) -> tensor<2x2xf32>
    %reduce_3 = linalg.reduce ins(%generic_7 : tensor<2x2x4xf32>) outs(%fill_4 : tensor<2x2xf32>) dimensions = [2]  {beside, moment = "deviations"}
      (%in: f32, %init: f32) {
        %addf_3 = arith.addf %in, %init : f32
        linalg.yield %addf_3 : f32
      }
    %generic_8 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%generic_2, %generic_4, %arg4, %arg5 : tensor<2x8xf32>, tensor<2xf32>, tensor<8xf32>, tensor<8xf32>) outs(%empty_0 : tensor<2x8xf32>) {
    ^bb0(%in: f32, %in_11: f32, %in_12: f32, %in_13: f32, %out: f32):
      %mulf_4 = arith.mulf %in, %in_11 : f32
      %mulf_5 = arith.mulf %mulf_4, %in_12 : f32
      %addf_4 = arith.addf %mulf_5, %in_13 : f32
      linalg.yield %addf_4 : f32
    } -> tensor<2x8xf32>
    %contract_1 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%generic_8, %arg3 : tensor<2x8xf32>, tensor<6x8xbf16>) outs(%fill_1 : tensor<2x6xf32>) -> tensor<2x6xf32>
    %empty_8 = tensor.empty() : tensor<6xf32>
    %constant_7 = arith.constant 0.000000e+00 : f32
    %fill_5 = linalg.fill ins(%constant_7 : f32) outs(%empty_8 : tensor<6xf32>) -> tensor<6xf32>
    %contract_2 = linalg.contract indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0)>] {once} ins(%arg3, %arg4 : tensor<6x8xbf16>, tensor<8xf32>) outs(%fill_5 : tensor<6xf32>) -> tensor<6xf32>
    %empty_9 = tensor.empty() : tensor<6xf32>
    %constant_8 = arith.constant 0.000000e+00 : f32
    %fill_6 = linalg.fill ins(%constant_8 : f32) outs(%empty_9 : tensor<6xf32>) -> tensor<6xf32>
    %contract_3 = linalg.contract indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0)>] {once} ins(%arg3, %arg5 : tensor<6x8xbf16>, tensor<8xf32>) outs(%fill_6 : tensor<6xf32>) -> tensor<6xf32>
    %empty_10 = tensor.empty() : tensor<6xf32>
    %generic_9 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%arg6, %contract_3 : tensor<6xf32>, tensor<6xf32>) outs(%empty_10 : tensor<6xf32>) attrs =  {once} {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %addf_5 = arith.addf %in, %in_11 : f32
      linalg.yield %addf_5 : f32
    } -> tensor<6xf32>
    %empty_11 = tensor.empty() : tensor<2xf32>
    %constant_9 = arith.constant 0.000000e+00 : f32
    %fill_7 = linalg.fill ins(%constant_9 : f32) outs(%empty_11 : tensor<2xf32>) -> tensor<2xf32>
    %reduce_4 = linalg.reduce ins(%reduce_2 : tensor<2x2xf32>) outs(%fill_7 : tensor<2xf32>) dimensions = [1]  {inline}
      (%in: f32, %init: f32) {
        %addf_6 = arith.addf %in, %init : f32
        linalg.yield %addf_6 : f32
      }
    %empty_12 = tensor.empty() : tensor<2xf32>
    %generic_10 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%reduce_4 : tensor<2xf32>) outs(%empty_12 : tensor<2xf32>) attrs =  {inline} {
    ^bb0(%in: f32, %out: f32):
      %constant_10 = arith.constant 1.250000e-01 : f32
      %mulf_6 = arith.mulf %in, %constant_10 : f32
      linalg.yield %mulf_6 : f32
    } -> tensor<2xf32>
    %empty_13 = tensor.empty() : tensor<2x2xf32>
    %generic_11 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%reduce_2, %reduce_3, %generic_10 : tensor<2x2xf32>, tensor<2x2xf32>, tensor<2xf32>) outs(%empty_13 : tensor<2x2xf32>) attrs =  {inline} {
    ^bb0(%in: f32, %in_11: f32, %in_12: f32, %out: f32):
      %constant_11 = arith.constant 2.500000e-01 : f32
      %mulf_7 = arith.mulf %in, %constant_11 : f32
      %subf_2 = arith.subf %mulf_7, %in_12 : f32
      %constant_12 = arith.constant 4.000000e+00 : f32
      %mulf_8 = arith.mulf %subf_2, %constant_12 : f32
      %fma_0 = math.fma %mulf_8, %subf_2, %in_11 : f32
      linalg.yield %fma_0 : f32
    } -> tensor<2x2xf32>
    %empty_14 = tensor.empty() : tensor<2xf32>
    %constant_13 = arith.constant 0.000000e+00 : f32
    %fill_8 = linalg.fill ins(%constant_13 : f32) outs(%empty_14 : tensor<2xf32>) -> tensor<2xf32>
    %reduce_5 = linalg.reduce ins(%generic_11 : tensor<2x2xf32>) outs(%fill_8 : tensor<2xf32>) dimensions = [1]  {inline}
      (%in: f32, %init: f32) {
        %addf_7 = arith.addf %in, %init : f32
        linalg.yield %addf_7 : f32
      }
    %empty_15 = tensor.empty() : tensor<2xf32>
    %generic_12 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%reduce_5 : tensor<2xf32>) outs(%empty_15 : tensor<2xf32>) attrs =  {inline} {
    ^bb0(%in: f32, %out: f32):
      %constant_14 = arith.constant 1.250000e-01 : f32
      %mulf_9 = arith.mulf %in, %constant_14 : f32
      %constant_15 = arith.constant 9.99999974E-6 : f32
      %addf_8 = arith.addf %mulf_9, %constant_15 : f32
      %rsqrt_1 = math.rsqrt %addf_8 : f32
      linalg.yield %rsqrt_1 : f32
    } -> tensor<2xf32>
    %contract_4 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%generic_5, %arg3 : tensor<2x8xf32>, tensor<6x8xbf16>) outs(%fill_1 : tensor<2x6xf32>) -> tensor<2x6xf32>
    %empty_16 = tensor.empty() : tensor<2x6xf32>
    %generic_13 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%contract_4, %generic_12, %generic_10, %contract_2, %generic_9 : tensor<2x6xf32>, tensor<2xf32>, tensor<2xf32>, tensor<6xf32>, tensor<6xf32>) outs(%empty_16 : tensor<2x6xf32>) {
    ^bb0(%in: f32, %in_11: f32, %in_12: f32, %in_13: f32, %in_14: f32, %out: f32):
      %mulf_10 = arith.mulf %in_12, %in_13 : f32
      %subf_3 = arith.subf %in, %mulf_10 : f32
      %mulf_11 = arith.mulf %subf_3, %in_11 : f32
      %addf_9 = arith.addf %mulf_11, %in_14 : f32
      linalg.yield %addf_9 : f32
    } -> tensor<2x6xf32>
    %generic_14 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%contract_1, %arg6 : tensor<2x6xf32>, tensor<6xf32>) outs(%empty_1 : tensor<2x6xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %addf_10 = arith.addf %in, %in_11 : f32
      linalg.yield %addf_10 : f32
    } -> tensor<2x6xf32>
    return %generic_13 : tensor<2x6xf32>
  }
}
