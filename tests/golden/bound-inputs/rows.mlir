// pass: bound-inputs
// target: cpu:x86-64-v3
// show: text
module {
  func.func @embed(%arg0: tensor<2x2xi32>, %arg1: tensor<3xi32>, %arg2: tensor<10x8xf32>, %arg3: tensor<6x8xf32>) -> (tensor<4x8xf32>, tensor<6x8xf32>) attributes {arguments = ["input:tokens", "input:places", "weight:table", "state:s"], entry = "embed", extents = array<i64>, inputs = {places = array<i64: 3>, tokens = array<i64: 2, 2>}, results = ["result:embed", "state:s"], sizes = []} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %flat = tensor.collapse_shape %arg0 [[0, 1]] : tensor<2x2xi32> into tensor<4xi32>
    %empty = tensor.empty() : tensor<4x8xf32>
    %rows = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%flat : tensor<4xi32>) outs(%empty : tensor<4x8xf32>) {
    ^bb0(%in: i32, %out: f32):
      %row = arith.index_cast %in : i32 to index
      %next = arith.addi %row, %c1 : index
      %column = linalg.index 1 : index
      %element = tensor.extract %arg2[%next, %column] : tensor<10x8xf32>
      linalg.yield %element : f32
    } -> tensor<4x8xf32>
    %where = tensor.extract %arg1[%c1] : tensor<3xi32>
    %place = arith.index_cast %where : i32 to index
    %two = tensor.extract_slice %rows[0, 0] [2, 8] [1, 1] : tensor<4x8xf32> to tensor<2x8xf32>
    %put = tensor.insert_slice %two into %arg3[%place, 0] [2, 8] [1, 1] : tensor<2x8xf32> into tensor<6x8xf32>
    return %rows, %put : tensor<4x8xf32>, tensor<6x8xf32>
  }
}
// ----- becomes
module {
  func.func @embed(%arg0: tensor<2x2xi32>, %arg1: tensor<3xi32>, %arg2: tensor<10x8xf32>, %arg3: tensor<6x8xf32>) -> (tensor<4x8xf32>, tensor<6x8xf32>) attributes {arguments = ["input:tokens", "input:places", "weight:table", "state:s"], bounds = [{first = -1 : i64, input = "tokens", last = 8 : i64}, {first = 0 : i64, input = "places", last = 4 : i64, offsets = array<i64: 1>, sizes = array<i64: 1>}], entry = "embed", extents = array<i64>, inputs = {places = array<i64: 3>, tokens = array<i64: 2, 2>}, results = ["result:embed", "state:s"], sizes = []} {
    %constant_0 = arith.constant 0 : index
    %constant_1 = arith.constant 1 : index
    %collapse_shape_0 = tensor.collapse_shape %arg0 [[0, 1]] : tensor<2x2xi32> into tensor<4xi32>
    %empty_0 = tensor.empty() : tensor<4x8xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%collapse_shape_0 : tensor<4xi32>) outs(%empty_0 : tensor<4x8xf32>) {
    ^bb0(%in: i32, %out: f32):
      %index_cast_0 = arith.index_cast %in : i32 to index
      %addi_0 = arith.addi %index_cast_0, %constant_1 : index
      %index_0 = linalg.index 1 : index
      %extract_0 = tensor.extract %arg2[%addi_0, %index_0] : tensor<10x8xf32>
      linalg.yield %extract_0 : f32
    } -> tensor<4x8xf32>
    %extract_1 = tensor.extract %arg1[%constant_1] : tensor<3xi32>
    %index_cast_1 = arith.index_cast %extract_1 : i32 to index
    %extract_slice_0 = tensor.extract_slice %generic_0[0, 0] [2, 8] [1, 1] : tensor<4x8xf32> to tensor<2x8xf32>
    %insert_slice_0 = tensor.insert_slice %extract_slice_0 into %arg3[%index_cast_1, 0] [2, 8] [1, 1] : tensor<2x8xf32> into tensor<6x8xf32>
    return %generic_0, %insert_slice_0 : tensor<4x8xf32>, tensor<6x8xf32>
  }
}
