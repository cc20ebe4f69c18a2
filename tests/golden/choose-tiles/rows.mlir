// pass: choose-tiles{use=rows}
// target: rocm:gfx1151
// show: text
module {
  func.func private @rows_2x8(%arg0: memref<2x8xf32>, %arg1: memref<2x8xf32>) attributes {access = ["read", "write"], kernel = "rows", tied = [-1], work = {bytes = 128 : i64, context = 0 : i64, operations = 96 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<2x8xf32> to tensor<2x8xf32>
    %empty_0 = tensor.empty() : tensor<2x8xf32>
    %constant_0 = arith.constant 1.000000e+00 : f32
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%to_tensor_0 : tensor<2x8xf32>) outs(%empty_0 : tensor<2x8xf32>) {
    ^bb0(%in: f32, %out: f32):
      %addf_0 = arith.addf %in, %constant_0 : f32
      linalg.yield %addf_0 : f32
    } -> tensor<2x8xf32>
    %softmax_0 = linalg.softmax dimension(1) ins(%generic_0 : tensor<2x8xf32>) outs(%empty_0 : tensor<2x8xf32>) -> tensor<2x8xf32>
    bufferization.materialize_in_destination %softmax_0 in restrict writable %arg1 : (tensor<2x8xf32>, memref<2x8xf32>) -> ()
    return
  }
  func.func @y(%arg0: memref<64xi8>, %arg1: memref<64xi8>) attributes {arguments = ["input:x", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 2, 8>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<2x8xf32>, tensor<2x8xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<64xi8> to memref<2x8xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<64xi8> to memref<2x8xf32>
    call @rows_2x8(%view_0, %view_1) : (memref<2x8xf32>, memref<2x8xf32>) -> ()
    return
  }
}
// ----- becomes
module {
  func.func private @rows_2x8(%arg0: memref<2x8xf32>, %arg1: memref<2x8xf32>) attributes {access = ["read", "write"], kernel = "rows", tied = [-1], tile = {grid = array<i64: 2>, residency = 0 : i64, threads = 32 : i64}, tiles = "rows", work = {bytes = 128 : i64, context = 0 : i64, operations = 96 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<2x8xf32> to tensor<2x8xf32>
    %empty_0 = tensor.empty() : tensor<2x8xf32>
    %constant_0 = arith.constant 1.000000e+00 : f32
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%to_tensor_0 : tensor<2x8xf32>) outs(%empty_0 : tensor<2x8xf32>) {
    ^bb0(%in: f32, %out: f32):
      %addf_0 = arith.addf %in, %constant_0 : f32
      linalg.yield %addf_0 : f32
    } -> tensor<2x8xf32>
    %softmax_0 = linalg.softmax dimension(1) ins(%generic_0 : tensor<2x8xf32>) outs(%empty_0 : tensor<2x8xf32>) -> tensor<2x8xf32>
    bufferization.materialize_in_destination %softmax_0 in restrict writable %arg1 : (tensor<2x8xf32>, memref<2x8xf32>) -> ()
    %block_id_0 = gpu.block_id x
    %view_0 = "tile.view"(%softmax_0) {batch = array<i64>, inner = array<i64: 1>, outer = array<i64: 0>} : (tensor<2x8xf32>) -> tensor<1x2x8xf32>
    %team_0 = "tile.team"() {bytes = 4 : i64, teams = 1 : i64, threads = 32 : i64, together = 1 : i64} : () -> index
    %constant_1 = arith.constant 0 : index
    %constant_2 = arith.constant 0 : index
    "tile.ask"(%view_0, %constant_1, %block_id_0, %constant_2) {columns = 128 : i64, early = true} : (tensor<1x2x8xf32>, index, index, index) -> ()
    %constant_3 = arith.constant 0 : index
    %constant_4 = arith.constant 0 : index
    %load_0 = "tile.load"(%view_0, %constant_3, %block_id_0, %constant_4) : (tensor<1x2x8xf32>, index, index, index) -> tensor<128xf32, {layout = "row", teams = array<i64: 32, 1>, unit = "thread"}>
    %constant_5 = arith.constant 0 : index
    %constant_6 = arith.constant 0 : index
    "tile.store"(%load_0, %softmax_0, %constant_5, %block_id_0, %constant_6) : (tensor<128xf32, {layout = "row", teams = array<i64: 32, 1>, unit = "thread"}>, tensor<2x8xf32>, index, index, index) -> ()
    return
  }
  func.func @y(%arg0: memref<64xi8>, %arg1: memref<64xi8>) attributes {arguments = ["input:x", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 2, 8>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<2x8xf32>, tensor<2x8xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<64xi8> to memref<2x8xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<64xi8> to memref<2x8xf32>
    call @rows_2x8(%view_0, %view_1) : (memref<2x8xf32>, memref<2x8xf32>) -> ()
    return
  }
}
