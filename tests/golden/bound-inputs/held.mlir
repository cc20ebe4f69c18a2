// pass: bound-inputs
// target: cpu:x86-64-v3
// show: text
module {
  func.func @picked(%k: tensor<3xi32>, %x: tensor<5xf32>) -> (tensor<3xf32>, tensor<2xf32>) attributes {arguments = ["input:k", "input:x"], entry = "picked", extents = array<i64>, inputs = {k = array<i64: 3>, x = array<i64: 5>}, results = ["result:a", "result:b"], sizes = []} {
    %c0 = arith.constant 0 : index
    %c4 = arith.constant 4 : index
    %empty = tensor.empty() : tensor<3xf32>
    %rows = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%k : tensor<3xi32>) outs(%empty : tensor<3xf32>) {
    ^bb0(%in: i32, %out: f32):
      %square = arith.muli %in, %in : i32
      %row = arith.index_cast %square : i32 to index
      %column = linalg.index 0 : index
      %last = arith.subi %c4, %column : index
      %first = tensor.extract %x[%row] : tensor<5xf32>
      %second = tensor.extract %x[%last] : tensor<5xf32>
      %sum = arith.addf %first, %second : f32
      linalg.yield %sum : f32
    } -> tensor<3xf32>
    %number = tensor.extract %k[%c0] : tensor<3xi32>
    %twice = arith.addi %number, %number : i32
    %place = arith.index_cast %twice : i32 to index
    %two = tensor.extract_slice %x[%place] [2] [1] : tensor<5xf32> to tensor<2xf32>
    return %rows, %two : tensor<3xf32>, tensor<2xf32>
  }
}
// ----- becomes
module {
  func.func @picked(%arg0: tensor<3xi32>, %arg1: tensor<5xf32>) -> (tensor<3xf32>, tensor<2xf32>) attributes {arguments = ["input:k", "input:x"], entry = "picked", extents = array<i64>, inputs = {k = array<i64: 3>, x = array<i64: 5>}, results = ["result:a", "result:b"], sizes = []} {
    %constant_0 = arith.constant 0 : index
    %constant_1 = arith.constant 4 : index
    %empty_0 = tensor.empty() : tensor<3xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%arg0 : tensor<3xi32>) outs(%empty_0 : tensor<3xf32>) {
    ^bb0(%in: i32, %out: f32):
      %muli_0 = arith.muli %in, %in : i32
      %index_cast_0 = arith.index_cast %muli_0 : i32 to index
      %constant_2 = arith.constant 0 : index
      %maxsi_0 = arith.maxsi %index_cast_0, %constant_2 : index
      %constant_3 = arith.constant 4 : index
      %minsi_0 = arith.minsi %maxsi_0, %constant_3 : index
      %index_0 = linalg.index 0 : index
      %subi_0 = arith.subi %constant_1, %index_0 : index
      %extract_0 = tensor.extract %arg1[%minsi_0] : tensor<5xf32>
      %extract_1 = tensor.extract %arg1[%subi_0] : tensor<5xf32>
      %addf_0 = arith.addf %extract_0, %extract_1 : f32
      linalg.yield %addf_0 : f32
    } -> tensor<3xf32>
    %extract_2 = tensor.extract %arg0[%constant_0] : tensor<3xi32>
    %addi_0 = arith.addi %extract_2, %extract_2 : i32
    %index_cast_1 = arith.index_cast %addi_0 : i32 to index
    %constant_4 = arith.constant 0 : index
    %maxsi_1 = arith.maxsi %index_cast_1, %constant_4 : index
    %constant_5 = arith.constant 3 : index
    %minsi_1 = arith.minsi %maxsi_1, %constant_5 : index
    %extract_slice_0 = tensor.extract_slice %arg1[%minsi_1] [2] [1] : tensor<5xf32> to tensor<2xf32>
    return %generic_0, %extract_slice_0 : tensor<3xf32>, tensor<2xf32>
  }
}
