// pass: schedule-generic
// target: rocm:gfx1151
// show: summary
module {
  func.func private @rows_2048x256(%arg0: memref<2048x256xf32>, %arg1: memref<256xf32>, %arg2: memref<2048x256xf32>, %arg3: memref<128x256xf32>) attributes {access = ["read", "read", "write", "write"], block = [64, 1, 1], grid = [128, 1, 1], kernel = "rows", shared_bytes = 0 : i64, tied = [-1, -1], work = {bytes = 4326400 : i64, context = 0 : i64, operations = 2097152 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %thread_id_x = gpu.thread_id x
    %c4 = arith.constant 4 : index
    %0 = arith.muli %thread_id_x, %c4 : index
    %block_id_x = gpu.block_id x
    %block_id_x_0 = gpu.block_id x
    %1 = builtin.unrealized_conversion_cast to index {waits_for_launches}
    %2 = vector.load %arg1[%0] {alignment = 16 : i64} : memref<256xf32>, vector<4xf32>
    %cst = arith.constant dense<0.000000e+00> : vector<4xf32>
    %c0 = arith.constant 0 : index
    %c16 = arith.constant 16 : index
    %c2 = arith.constant 2 : index
    %3 = scf.for %arg4 = %c0 to %c16 step %c2 iter_args(%arg5 = %cst) -> (vector<4xf32>) {
      %c16_1 = arith.constant 16 : index
      %4 = arith.muli %block_id_x, %c16_1 : index
      %5 = arith.addi %4, %arg4 : index
      %c1 = arith.constant 1 : index
      %6 = arith.addi %5, %c1 : index
      %7 = vector.load %arg0[%5, %0] {alignment = 16 : i64} : memref<2048x256xf32>, vector<4xf32>
      %8 = vector.load %arg0[%6, %0] {alignment = 16 : i64} : memref<2048x256xf32>, vector<4xf32>
      %cst_2 = arith.constant 1.000000e+00 : f32
      %9 = vector.broadcast %cst_2 : f32 to vector<4xf32>
      %10 = arith.addf %7, %2 : vector<4xf32>
      %11 = arith.mulf %9, %10 : vector<4xf32>
      %12 = arith.addf %11, %11 : vector<4xf32>
      vector.store %12, %arg2[%5, %0] {alignment = 16 : i64} : memref<2048x256xf32>, vector<4xf32>
      %13 = arith.addf %arg5, %12 : vector<4xf32>
      %14 = vector.broadcast %cst_2 : f32 to vector<4xf32>
      %15 = arith.addf %8, %2 : vector<4xf32>
      %16 = arith.mulf %14, %15 : vector<4xf32>
      %17 = arith.addf %16, %16 : vector<4xf32>
      vector.store %17, %arg2[%6, %0] {alignment = 16 : i64} : memref<2048x256xf32>, vector<4xf32>
      %18 = arith.addf %13, %17 : vector<4xf32>
      scf.yield %18 : vector<4xf32>
    }
    vector.store %3, %arg3[%block_id_x, %0] {alignment = 16 : i64} : memref<128x256xf32>, vector<4xf32>
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
  5 arith.constant
  1 arith.constant vector<4xf32>
  2 arith.muli
  1 func.return
  1 gpu.block_id
  1 gpu.thread_id
  1 scf.for vector<4xf32>
  1 scf.yield vector<4xf32>
  3 vector.load vector<4xf32>
  3 vector.store vector<4xf32>
func.func "generic_256"
  access = ["read", "write"]
  block = [256, 1, 1]
  function_type = (memref<128x256xf32>, memref<256xf32>) -> ()
  grid = [8, 1, 1]
  kernel = "generic"
  schedule = "generic"
  shared_bytes = 0 : i64
  sym_visibility = "private"
  tied = [-1]
  work = {bytes = 132096 : i64, context = 0 : i64, operations = 32768 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}
  16 arith.addf
  8 arith.addi
  1 arith.cmpi
  23 arith.constant
  1 arith.divui
  1 arith.muli
  1 arith.remui
  1 builtin.unrealized_conversion_cast
  1 func.return
  1 gpu.barrier
  1 gpu.block_id
  1 gpu.thread_id
  1 memref.alloca
  16 memref.load
  2 memref.store
  1 scf.for
  1 scf.if
  2 scf.yield
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
  1 arith.constant
  2 func.call
  1 func.return
  1 memref.alloc
  4 memref.view
