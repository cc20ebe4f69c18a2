// pass: schedule-gpu-rows
// target: rocm:gfx1151
// show: summary
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
func.func "rows_2048x256"
  access = ["read", "read", "write", "write"]
  block = [64, 1, 1]
  function_type = (memref<2048x256xf32>, memref<256xf32>, memref<2048x256xf32>, memref<128x256xf32>) -> ()
  grid = [128, 1, 1]
  kernel = "rows"
  shared_bytes = 0 : i64
  sym_visibility = "private"
  tied = [-1, -1]
  work = {bytes = 4326400 : i64, context = 0 : i64, operations = 2097152 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}
  6 arith.addf vector<4xf32>
  2 arith.addi
  7 arith.constant
  1 arith.constant vector<4xf32>
  2 arith.mulf vector<4xf32>
  2 arith.muli
  1 builtin.unrealized_conversion_cast
  1 func.return
  2 gpu.block_id
  1 gpu.thread_id
  1 scf.for vector<4xf32>
  1 scf.yield vector<4xf32>
  2 vector.broadcast vector<4xf32>
  3 vector.load vector<4xf32>
  3 vector.store vector<4xf32>
func.func "generic_256"
  access = ["read", "write"]
  function_type = (memref<128x256xf32>, memref<256xf32>) -> ()
  kernel = "generic"
  sym_visibility = "private"
  tied = [-1]
  work = {bytes = 132096 : i64, context = 0 : i64, operations = 32768 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}
  1 arith.addf
  1 arith.constant
  1 bufferization.materialize_in_destination
  1 bufferization.to_tensor
  1 func.return
  1 linalg.fill
  1 linalg.reduce
  2 linalg.yield
  1 tensor.empty
func.func "f"
  arguments = ["input:x", "input:b", "result:dx", "result:db"]
  entry = "f"
  extents = array<i64>
  function_type = (memref<2097152xi8>, memref<1024xi8>, memref<2097152xi8>, memref<1024xi8>) -> ()
  inputs = {b = array<i64: 256>, x = array<i64: 2048, 256>}
  repeatable = unit
  results = ["result:dx", "result:db"]
  sizes = []
  types = [tensor<2048x256xf32>, tensor<256xf32>, tensor<2048x256xf32>, tensor<256xf32>]
  4 arith.constant
  2 func.call
  1 func.return
  1 memref.alloc
  4 memref.view
