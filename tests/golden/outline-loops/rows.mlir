// pass: outline-loops
// target: cpu:x86-64-v3
// show: text
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d1, d2)>
#map2 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map3 = affine_map<(d0, d1) -> (d0, d1)>
module {
  func.func @rnn(%arg0: tensor<10x2x4xf32>, %arg1: tensor<2x4xf32>, %arg2: tensor<4x4xf32>) -> (tensor<2x4xf32>, tensor<10x2x4xf32>) attributes {arguments = ["input:x", "input:h", "input:w"], entry = "rnn", extents = array<i64>, inputs = {h = array<i64: 2, 4>, w = array<i64: 4, 4>, x = array<i64: 10, 2, 4>}, repeatable, results = ["result:last", "result:all"], sizes = []} {
    %0 = tensor.empty() : tensor<10x2x4xf32>
    %c0 = arith.constant 0 : index
    %c10 = arith.constant 10 : index
    %c1 = arith.constant 1 : index
    %1:2 = scf.for %arg3 = %c0 to %c10 step %c1 iter_args(%arg4 = %arg1, %arg5 = %0) -> (tensor<2x4xf32>, tensor<10x2x4xf32>) {
      %c9 = arith.constant 9 : index
      %2 = arith.subi %c9, %arg3 : index
      %extracted_slice = tensor.extract_slice %arg0[%2, 0, 0] [1, 2, 4] [1, 1, 1] : tensor<10x2x4xf32> to tensor<2x4xf32>
      %cst = arith.constant 0.000000e+00 : f32
      %3 = tensor.empty() : tensor<2x4xf32>
      %4 = linalg.fill ins(%cst : f32) outs(%3 : tensor<2x4xf32>) -> tensor<2x4xf32>
      %5 = linalg.contract indexing_maps = [#map, #map1, #map2] ins(%arg4, %arg2 : tensor<2x4xf32>, tensor<4x4xf32>) outs(%4 : tensor<2x4xf32>) -> tensor<2x4xf32>
      %6 = tensor.empty() : tensor<2x4xf32>
      %7 = linalg.generic {indexing_maps = [#map3, #map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%5, %extracted_slice : tensor<2x4xf32>, tensor<2x4xf32>) outs(%6 : tensor<2x4xf32>) {
      ^bb0(%in: f32, %in_1: f32, %out: f32):
        %13 = arith.addf %in, %in_1 : f32
        linalg.yield %13 : f32
      } -> tensor<2x4xf32>
      %8 = tensor.empty() : tensor<2x4xf32>
      %9 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%7 : tensor<2x4xf32>) outs(%8 : tensor<2x4xf32>) {
      ^bb0(%in: f32, %out: f32):
        %13 = math.tanh %in : f32
        linalg.yield %13 : f32
      } -> tensor<2x4xf32>
      %10 = tensor.empty() : tensor<2x4xf32>
      %11 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%9 : tensor<2x4xf32>) outs(%10 : tensor<2x4xf32>) {
      ^bb0(%in: f32, %out: f32):
        %cst_1 = arith.constant 2.000000e+00 : f32
        %13 = arith.mulf %cst_1, %in : f32
        linalg.yield %13 : f32
      } -> tensor<2x4xf32>
      %c9_0 = arith.constant 9 : index
      %12 = arith.subi %c9_0, %arg3 : index
      %inserted_slice = tensor.insert_slice %11 into %arg5[%12, 0, 0] [1, 2, 4] [1, 1, 1] : tensor<2x4xf32> into tensor<10x2x4xf32>
      scf.yield %9, %inserted_slice : tensor<2x4xf32>, tensor<10x2x4xf32>
    }
    return %1#0, %1#1 : tensor<2x4xf32>, tensor<10x2x4xf32>
  }
}
// ----- becomes
module {
  func.func private @rnn_loop1_rounds(%arg0: tensor<2x4xf32>, %arg1: tensor<2x4xf32>, %arg2: tensor<4x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>) attributes {arguments = ["state:0", "given:1.9.-1", "given:2"], entry = "rnn_loop1", extents = array<i64>, inputs = {}, results = ["result:1", "state:0"], rounds, sizes = []} {
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<2x4xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<2x4xf32>) -> tensor<2x4xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%arg0, %arg2 : tensor<2x4xf32>, tensor<4x4xf32>) outs(%fill_0 : tensor<2x4xf32>) -> tensor<2x4xf32>
    %empty_1 = tensor.empty() : tensor<2x4xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%contract_0, %arg1 : tensor<2x4xf32>, tensor<2x4xf32>) outs(%empty_1 : tensor<2x4xf32>) {
    ^bb0(%in: f32, %in_0: f32, %out: f32):
      %addf_0 = arith.addf %in, %in_0 : f32
      linalg.yield %addf_0 : f32
    } -> tensor<2x4xf32>
    %empty_2 = tensor.empty() : tensor<2x4xf32>
    %generic_1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%generic_0 : tensor<2x4xf32>) outs(%empty_2 : tensor<2x4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %tanh_0 = math.tanh %in : f32
      linalg.yield %tanh_0 : f32
    } -> tensor<2x4xf32>
    %empty_3 = tensor.empty() : tensor<2x4xf32>
    %generic_2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%generic_1 : tensor<2x4xf32>) outs(%empty_3 : tensor<2x4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %constant_1 = arith.constant 2.000000e+00 : f32
      %mulf_0 = arith.mulf %constant_1, %in : f32
      linalg.yield %mulf_0 : f32
    } -> tensor<2x4xf32>
    return %generic_2, %generic_1 : tensor<2x4xf32>, tensor<2x4xf32>
  }
  func.func private @rnn_loop1(tensor<2x4xf32>, tensor<10x2x4xf32>, tensor<4x4xf32>) -> (tensor<2x4xf32>, tensor<10x2x4xf32>) attributes {access = ["read_write", "read", "read", "write"], loop = {body = "rnn_loop1_rounds", names = ["state:0", "result:1", "given:1.9.-1", "given:2"], operands = array<i64: 0, 3, 1, 2>, rounds = 10 : i64, starts = array<i64: 0, 288, 288, 0>, strides = array<i64: 0, -32, -32, 0>, ties = array<i64: 0, -1>}}
  func.func @rnn(%arg0: tensor<10x2x4xf32>, %arg1: tensor<2x4xf32>, %arg2: tensor<4x4xf32>) -> (tensor<2x4xf32>, tensor<10x2x4xf32>) attributes {arguments = ["input:x", "input:h", "input:w"], entry = "rnn", extents = array<i64>, inputs = {h = array<i64: 2, 4>, w = array<i64: 4, 4>, x = array<i64: 10, 2, 4>}, repeatable, results = ["result:last", "result:all"], sizes = []} {
    %empty_0 = tensor.empty() : tensor<10x2x4xf32>
    %constant_0 = arith.constant 0 : index
    %constant_1 = arith.constant 10 : index
    %constant_2 = arith.constant 1 : index
    %call_0:2 = call @rnn_loop1(%arg1, %arg0, %arg2) {loop} : (tensor<2x4xf32>, tensor<10x2x4xf32>, tensor<4x4xf32>) -> (tensor<2x4xf32>, tensor<10x2x4xf32>)
    return %call_0#0, %call_0#1 : tensor<2x4xf32>, tensor<10x2x4xf32>
  }
}
