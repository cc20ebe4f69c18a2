// pass: drop-empty
// target: cpu:x86-64-v3
// show: text
module {
  func.func @e(%x: tensor<4x0xf32>, %none: tensor<0x3xf32>, %h: tensor<3xf32>) -> (tensor<0x3xf32>, tensor<4xf32>, tensor<3xf32>, tensor<2x3xf32>, tensor<0x3xf32>) attributes {arguments = ["input:x", "state:s", "input:h"], entry = "e", extents = array<i64>, inputs = {h = array<i64: 3>, x = array<i64: 4, 0>}, results = ["result:none", "result:sum", "result:last", "result:joined", "state:s"], sizes = []} {
    %zero = arith.constant 0.000000e+00 : f32
    %i0 = arith.constant 0 : index
    %i1 = arith.constant 1 : index
    %i2 = arith.constant 2 : index
    %empty = tensor.empty() : tensor<4xf32>
    %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<4xf32>) -> tensor<4xf32>
    %sum = linalg.reduce { arith.addf } ins(%x : tensor<4x0xf32>) outs(%zeros : tensor<4xf32>) dimensions = [1]
    %pair = tensor.empty() : tensor<2x3xf32>
    %ones = linalg.fill ins(%zero : f32) outs(%pair : tensor<2x3xf32>) -> tensor<2x3xf32>
    %joined = tensor.insert_slice %none into %ones[0, 0] [0, 3] [1, 1] : tensor<0x3xf32> into tensor<2x3xf32>
    %rounds:2 = scf.for %i = %i0 to %i2 step %i1 iter_args(%a = %none, %b = %h) -> (tensor<0x3xf32>, tensor<3xf32>) {
      %room = tensor.empty() : tensor<3xf32>
      %more = linalg.add ins(%b, %h : tensor<3xf32>, tensor<3xf32>) outs(%room : tensor<3xf32>) -> tensor<3xf32>
      %twice = linalg.add ins(%a, %a : tensor<0x3xf32>, tensor<0x3xf32>) outs(%a : tensor<0x3xf32>) -> tensor<0x3xf32>
      scf.yield %twice, %more : tensor<0x3xf32>, tensor<3xf32>
    }
    %last = scf.for %i = %i0 to %i0 step %i1 iter_args(%b = %rounds#1) -> (tensor<3xf32>) {
      scf.yield %h : tensor<3xf32>
    }
    return %rounds#0, %sum, %last, %joined, %rounds#0 : tensor<0x3xf32>, tensor<4xf32>, tensor<3xf32>, tensor<2x3xf32>, tensor<0x3xf32>
  }
}
// ----- becomes
module {
  func.func @e(%arg0: tensor<4x0xf32>, %arg1: tensor<0x3xf32>, %arg2: tensor<3xf32>) -> (tensor<4xf32>, tensor<3xf32>, tensor<2x3xf32>) attributes {arguments = ["input:x", "state:s", "input:h"], entry = "e", extents = array<i64>, gives = ["result:none", "result:sum", "result:last", "result:joined"], inputs = {h = array<i64: 3>, x = array<i64: 4, 0>}, results = ["result:sum", "result:last", "result:joined"], sizes = [], unmade = {"result:none" = tensor<0x3xf32>}} {
    %constant_0 = arith.constant 0.000000e+00 : f32
    %constant_1 = arith.constant 0 : index
    %constant_2 = arith.constant 1 : index
    %constant_3 = arith.constant 2 : index
    %empty_0 = tensor.empty() : tensor<4xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<4xf32>) -> tensor<4xf32>
    %empty_1 = tensor.empty() : tensor<2x3xf32>
    %fill_1 = linalg.fill ins(%constant_0 : f32) outs(%empty_1 : tensor<2x3xf32>) -> tensor<2x3xf32>
    %empty_2 = tensor.empty() : tensor<0x3xf32>
    %for_0 = scf.for %arg3 = %constant_1 to %constant_3 step %constant_2 iter_args(%arg4 = %arg2) -> (tensor<3xf32>) {
      %empty_3 = tensor.empty() : tensor<0x3xf32>
      %empty_4 = tensor.empty() : tensor<3xf32>
      %add_0 = linalg.add ins(%arg4, %arg2 : tensor<3xf32>, tensor<3xf32>) outs(%empty_4 : tensor<3xf32>) -> tensor<3xf32>
      scf.yield %add_0 : tensor<3xf32>
    }
    return %fill_0, %for_0, %fill_1 : tensor<4xf32>, tensor<3xf32>, tensor<2x3xf32>
  }
}
