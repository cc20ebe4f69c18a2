// pass: choose-tiles{use=column-sums}
// target: rocm:gfx1151
// show: text
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d1)>
#map2 = affine_map<(d0) -> ()>
#map3 = affine_map<(d0) -> (d0)>
#map4 = affine_map<(d0, d1) -> (d0)>
module {
  func.func private @rows_2048x256(%arg0: memref<2048x256xf32>, %arg1: memref<256xf32>, %arg2: memref<2048x256xf32>, %arg3: memref<128x256xf32>) attributes {access = ["read", "read", "write", "write"], kernel = "rows", tied = [-1, -1], work = {bytes = 4326400 : i64, context = 0 : i64, operations = 2097152 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %0 = bufferization.to_tensor %arg0 restrict : memref<2048x256xf32> to tensor<2048x256xf32>
    %1 = bufferization.to_tensor %arg1 restrict : memref<256xf32> to tensor<256xf32>
    %2 = tensor.empty() : tensor<2048x256xf32>
    %3 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%0, %1 : tensor<2048x256xf32>, tensor<256xf32>) outs(%2 : tensor<2048x256xf32>) {
    ^bb0(%in: f32, %in_1: f32, %out: f32):
      %12 = arith.addf %in, %in_1 : f32
      linalg.yield %12 : f32
    } -> tensor<2048x256xf32>
    %cst = arith.constant 1.000000e+00 : f32
    %4 = tensor.empty() : tensor<f32>
    %5 = linalg.fill ins(%cst : f32) outs(%4 : tensor<f32>) -> tensor<f32>
    %6 = tensor.empty() : tensor<2048xf32>
    %7 = linalg.generic {indexing_maps = [#map2, #map3], iterator_types = ["parallel"]} ins(%5 : tensor<f32>) outs(%6 : tensor<2048xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2048xf32>
    %8 = linalg.generic {indexing_maps = [#map4, #map], iterator_types = ["parallel", "parallel"]} ins(%7 : tensor<2048xf32>) outs(%2 : tensor<2048x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2048x256xf32>
    %9 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%8, %3 : tensor<2048x256xf32>, tensor<2048x256xf32>) outs(%2 : tensor<2048x256xf32>) {
    ^bb0(%in: f32, %in_1: f32, %out: f32):
      %12 = arith.mulf %in, %in_1 : f32
      %13 = arith.addf %12, %12 : f32
      linalg.yield %13 : f32
    } -> tensor<2048x256xf32>
    %expanded = tensor.expand_shape %9 [[0, 1], [2]] output_shape [128, 16, 256] : tensor<2048x256xf32> into tensor<128x16x256xf32>
    %cst_0 = arith.constant 0.000000e+00 : f32
    %10 = tensor.empty() : tensor<128x256xf32>
    %11 = linalg.fill ins(%cst_0 : f32) outs(%10 : tensor<128x256xf32>) -> tensor<128x256xf32>
    %reduced = linalg.reduce { arith.addf } ins(%expanded : tensor<128x16x256xf32>) outs(%11 : tensor<128x256xf32>) dimensions = [1] 
    bufferization.materialize_in_destination %9 in restrict writable %arg2 : (tensor<2048x256xf32>, memref<2048x256xf32>) -> ()
    bufferization.materialize_in_destination %reduced in restrict writable %arg3 : (tensor<128x256xf32>, memref<128x256xf32>) -> ()
    return
  }
  func.func private @generic_256(%arg0: memref<128x256xf32>, %arg1: memref<256xf32>) attributes {access = ["read", "write"], kernel = "generic", tied = [-1], work = {bytes = 132096 : i64, context = 0 : i64, operations = 32768 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %0 = bufferization.to_tensor %arg0 restrict : memref<128x256xf32> to tensor<128x256xf32>
    %cst = arith.constant 0.000000e+00 : f32
    %1 = tensor.empty() : tensor<256xf32>
    %2 = linalg.fill ins(%cst : f32) outs(%1 : tensor<256xf32>) -> tensor<256xf32>
    %reduced = linalg.reduce { arith.addf } ins(%0 : tensor<128x256xf32>) outs(%2 : tensor<256xf32>) dimensions = [0] 
    bufferization.materialize_in_destination %reduced in restrict writable %arg1 : (tensor<256xf32>, memref<256xf32>) -> ()
    return
  }
  func.func @f(%arg0: memref<2097152xi8>, %arg1: memref<1024xi8>, %arg2: memref<2097152xi8>, %arg3: memref<1024xi8>) attributes {arguments = ["input:x", "input:b", "result:dx", "result:db"], entry = "f", extents = array<i64>, inputs = {b = array<i64: 256>, x = array<i64: 2048, 256>}, repeatable, results = ["result:dx", "result:db"], sizes = [], types = [tensor<2048x256xf32>, tensor<256xf32>, tensor<2048x256xf32>, tensor<256xf32>]} {
    %c0 = arith.constant 0 : index
    %view = memref.view %arg0[%c0][] : memref<2097152xi8> to memref<2048x256xf32>
    %c0_0 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%c0_0][] : memref<1024xi8> to memref<256xf32>
    %c0_2 = arith.constant 0 : index
    %view_3 = memref.view %arg2[%c0_2][] : memref<2097152xi8> to memref<2048x256xf32>
    %alloc = memref.alloc() : memref<128x256xf32>
    call @rows_2048x256(%view, %view_1, %view_3, %alloc) : (memref<2048x256xf32>, memref<256xf32>, memref<2048x256xf32>, memref<128x256xf32>) -> ()
    %c0_4 = arith.constant 0 : index
    %view_5 = memref.view %arg3[%c0_4][] : memref<1024xi8> to memref<256xf32>
    call @generic_256(%alloc, %view_5) : (memref<128x256xf32>, memref<256xf32>) -> ()
    return
  }
}
// ----- becomes
module {
  func.func private @rows_2048x256(%arg0: memref<2048x256xf32>, %arg1: memref<256xf32>, %arg2: memref<2048x256xf32>, %arg3: memref<128x256xf32>) attributes {access = ["read", "read", "write", "write"], kernel = "rows", tied = [-1, -1], tile = {grid = array<i64: 128>, residency = 4 : i64, threads = 64 : i64}, tiles = "column-sums", work = {bytes = 4326400 : i64, context = 0 : i64, operations = 2097152 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<2048x256xf32> to tensor<2048x256xf32>
    %to_tensor_1 = bufferization.to_tensor %arg1 restrict : memref<256xf32> to tensor<256xf32>
    %empty_0 = tensor.empty() : tensor<2048x256xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%to_tensor_0, %to_tensor_1 : tensor<2048x256xf32>, tensor<256xf32>) outs(%empty_0 : tensor<2048x256xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %addf_0 = arith.addf %in, %in_7 : f32
      linalg.yield %addf_0 : f32
    } -> tensor<2048x256xf32>
    %constant_0 = arith.constant 1.000000e+00 : f32
    %empty_1 = tensor.empty() : tensor<f32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_1 : tensor<f32>) -> tensor<f32>
    %empty_2 = tensor.empty() : tensor<2048xf32>
    %generic_1 = linalg.generic {indexing_maps = [affine_map<(d0) -> ()>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%fill_0 : tensor<f32>) outs(%empty_2 : tensor<2048xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2048xf32>
    %generic_2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%generic_1 : tensor<2048xf32>) outs(%empty_0 : tensor<2048x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2048x256xf32>
    %generic_3 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%generic_2, %generic_0 : tensor<2048x256xf32>, tensor<2048x256xf32>) outs(%empty_0 : tensor<2048x256xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %mulf_0 = arith.mulf %in, %in_7 : f32
      %addf_1 = arith.addf %mulf_0, %mulf_0 : f32
      linalg.yield %addf_1 : f32
    } -> tensor<2048x256xf32>
    %expand_shape_0 = tensor.expand_shape %generic_3 [[0, 1], [2]] output_shape [128, 16, 256] : tensor<2048x256xf32> into tensor<128x16x256xf32>
    %constant_1 = arith.constant 0.000000e+00 : f32
    %empty_3 = tensor.empty() : tensor<128x256xf32>
    %fill_1 = linalg.fill ins(%constant_1 : f32) outs(%empty_3 : tensor<128x256xf32>) -> tensor<128x256xf32>
    %reduce_0 = linalg.reduce { arith.addf } ins(%expand_shape_0 : tensor<128x16x256xf32>) outs(%fill_1 : tensor<128x256xf32>) dimensions = [1] 
    bufferization.materialize_in_destination %generic_3 in restrict writable %arg2 : (tensor<2048x256xf32>, memref<2048x256xf32>) -> ()
    bufferization.materialize_in_destination %reduce_0 in restrict writable %arg3 : (tensor<128x256xf32>, memref<128x256xf32>) -> ()
    %view_0 = "tile.view"(%generic_3) {batch = array<i64: 0>, inner = array<i64: 1>, outer = array<i64>} : (tensor<2048x256xf32>) -> tensor<2048x1x256xf32>
    %view_1 = "tile.view"(%generic_3) {batch = array<i64: 0>, inner = array<i64: 1>, outer = array<i64>} : (tensor<2048x256xf32>) -> tensor<2048x1x256xf32>
    %team_0 = "tile.team"() {bytes = 4 : i64, teams = 1 : i64, threads = 64 : i64, together = 1 : i64} : () -> index
    %block_id_0 = gpu.block_id x
    %view_2 = "tile.view"(%to_tensor_1) {batch = array<i64>, inner = array<i64: 0>, outer = array<i64>} : (tensor<256xf32>) -> tensor<1x1x256xf32>
    %constant_2 = arith.constant 0 : index
    %constant_3 = arith.constant 0 : index
    %constant_4 = arith.constant 0 : index
    "tile.ask"(%view_2, %constant_2, %constant_3, %constant_4) {columns = 256 : i64} : (tensor<1x1x256xf32>, index, index, index) -> ()
    %constant_5 = arith.constant dense<0.000000e+00> : tensor<256xf32, {layout = "row", teams = array<i64: 64, 1>, unit = "thread"}>
    %constant_6 = arith.constant 0 : index
    %constant_7 = arith.constant 16 : index
    %constant_8 = arith.constant 2 : index
    %for_0 = scf.for %arg4 = %constant_6 to %constant_7 step %constant_8 iter_args(%arg5 = %constant_5) -> (tensor<256xf32, {layout = "row", teams = array<i64: 64, 1>, unit = "thread"}>) {
      %constant_9 = arith.constant 16 : index
      %muli_0 = arith.muli %block_id_0, %constant_9 : index
      %addi_0 = arith.addi %muli_0, %arg4 : index
      %constant_10 = arith.constant 0 : index
      %addi_1 = arith.addi %addi_0, %constant_10 : index
      %constant_11 = arith.constant 16 : index
      %muli_1 = arith.muli %block_id_0, %constant_11 : index
      %addi_2 = arith.addi %muli_1, %arg4 : index
      %constant_12 = arith.constant 1 : index
      %addi_3 = arith.addi %addi_2, %constant_12 : index
      %constant_13 = arith.constant 0 : index
      %constant_14 = arith.constant 0 : index
      "tile.ask"(%view_0, %addi_1, %constant_13, %constant_14) {columns = 256 : i64} : (tensor<2048x1x256xf32>, index, index, index) -> ()
      %constant_15 = arith.constant 0 : index
      %constant_16 = arith.constant 0 : index
      "tile.ask"(%view_1, %addi_1, %constant_15, %constant_16) {columns = 256 : i64} : (tensor<2048x1x256xf32>, index, index, index) -> ()
      %constant_17 = arith.constant 0 : index
      %constant_18 = arith.constant 0 : index
      "tile.ask"(%view_0, %addi_3, %constant_17, %constant_18) {columns = 256 : i64} : (tensor<2048x1x256xf32>, index, index, index) -> ()
      %constant_19 = arith.constant 0 : index
      %constant_20 = arith.constant 0 : index
      "tile.ask"(%view_1, %addi_3, %constant_19, %constant_20) {columns = 256 : i64} : (tensor<2048x1x256xf32>, index, index, index) -> ()
      %constant_21 = arith.constant 0 : index
      %constant_22 = arith.constant 0 : index
      %load_0 = "tile.load"(%view_0, %addi_1, %constant_21, %constant_22) : (tensor<2048x1x256xf32>, index, index, index) -> tensor<256xf32, {layout = "row", teams = array<i64: 64, 1>, unit = "thread"}>
      %constant_23 = arith.constant 0 : index
      %constant_24 = arith.constant 0 : index
      "tile.store"(%load_0, %generic_3, %addi_1, %constant_23, %constant_24) : (tensor<256xf32, {layout = "row", teams = array<i64: 64, 1>, unit = "thread"}>, tensor<2048x256xf32>, index, index, index) -> ()
      %constant_25 = arith.constant 0 : index
      %constant_26 = arith.constant 0 : index
      %load_1 = "tile.load"(%view_1, %addi_1, %constant_25, %constant_26) : (tensor<2048x1x256xf32>, index, index, index) -> tensor<256xf32, {layout = "row", teams = array<i64: 64, 1>, unit = "thread"}>
      %addf_2 = arith.addf %arg5, %load_1 : tensor<256xf32, {layout = "row", teams = array<i64: 64, 1>, unit = "thread"}>
      %constant_27 = arith.constant 0 : index
      %constant_28 = arith.constant 0 : index
      %load_2 = "tile.load"(%view_0, %addi_3, %constant_27, %constant_28) : (tensor<2048x1x256xf32>, index, index, index) -> tensor<256xf32, {layout = "row", teams = array<i64: 64, 1>, unit = "thread"}>
      %constant_29 = arith.constant 0 : index
      %constant_30 = arith.constant 0 : index
      "tile.store"(%load_2, %generic_3, %addi_3, %constant_29, %constant_30) : (tensor<256xf32, {layout = "row", teams = array<i64: 64, 1>, unit = "thread"}>, tensor<2048x256xf32>, index, index, index) -> ()
      %constant_31 = arith.constant 0 : index
      %constant_32 = arith.constant 0 : index
      %load_3 = "tile.load"(%view_1, %addi_3, %constant_31, %constant_32) : (tensor<2048x1x256xf32>, index, index, index) -> tensor<256xf32, {layout = "row", teams = array<i64: 64, 1>, unit = "thread"}>
      %addf_3 = arith.addf %addf_2, %load_3 : tensor<256xf32, {layout = "row", teams = array<i64: 64, 1>, unit = "thread"}>
      scf.yield %addf_3 : tensor<256xf32, {layout = "row", teams = array<i64: 64, 1>, unit = "thread"}>
    }
    %constant_33 = arith.constant 0 : index
    %constant_34 = arith.constant 0 : index
    "tile.store"(%for_0, %reduce_0, %block_id_0, %constant_33, %constant_34) : (tensor<256xf32, {layout = "row", teams = array<i64: 64, 1>, unit = "thread"}>, tensor<128x256xf32>, index, index, index) -> ()
    return
  }
  func.func private @generic_256(%arg0: memref<128x256xf32>, %arg1: memref<256xf32>) attributes {access = ["read", "write"], kernel = "generic", tied = [-1], work = {bytes = 132096 : i64, context = 0 : i64, operations = 32768 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<128x256xf32> to tensor<128x256xf32>
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<256xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<256xf32>) -> tensor<256xf32>
    %reduce_0 = linalg.reduce { arith.addf } ins(%to_tensor_0 : tensor<128x256xf32>) outs(%fill_0 : tensor<256xf32>) dimensions = [0] 
    bufferization.materialize_in_destination %reduce_0 in restrict writable %arg1 : (tensor<256xf32>, memref<256xf32>) -> ()
    return
  }
  func.func @f(%arg0: memref<2097152xi8>, %arg1: memref<1024xi8>, %arg2: memref<2097152xi8>, %arg3: memref<1024xi8>) attributes {arguments = ["input:x", "input:b", "result:dx", "result:db"], entry = "f", extents = array<i64>, inputs = {b = array<i64: 256>, x = array<i64: 2048, 256>}, repeatable, results = ["result:dx", "result:db"], sizes = [], types = [tensor<2048x256xf32>, tensor<256xf32>, tensor<2048x256xf32>, tensor<256xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<2097152xi8> to memref<2048x256xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<1024xi8> to memref<256xf32>
    %constant_2 = arith.constant 0 : index
    %view_2 = memref.view %arg2[%constant_2][] : memref<2097152xi8> to memref<2048x256xf32>
    %alloc_0 = memref.alloc() : memref<128x256xf32>
    call @rows_2048x256(%view_0, %view_1, %view_2, %alloc_0) : (memref<2048x256xf32>, memref<256xf32>, memref<2048x256xf32>, memref<128x256xf32>) -> ()
    %constant_3 = arith.constant 0 : index
    %view_3 = memref.view %arg3[%constant_3][] : memref<1024xi8> to memref<256xf32>
    call @generic_256(%alloc_0, %view_3) : (memref<128x256xf32>, memref<256xf32>) -> ()
    return
  }
}
