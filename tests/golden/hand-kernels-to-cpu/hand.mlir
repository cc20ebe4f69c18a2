// pass: hand-kernels-to-cpu
// target: cpu:x86-64-v3
// show: summary
module {
  func.func private @double(%arg0: memref<8xf32>, %arg1: memref<8xf32>) attributes {access = ["read", "write"], block = [8, 1, 1], grid = [1, 1, 1], kernel = "hand", shared_bytes = 0 : i64, tied = [-1], work = {bytes = 64 : i64, context = 0 : i64, operations = 0 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %thread_id_0 = gpu.thread_id x
    %constant_0 = arith.constant 1 : index
    %constant_1 = arith.constant 8 : index
    %load_0 = memref.load %arg0[%thread_id_0] : memref<8xf32>
    %constant_2 = arith.constant 2.000000e+00 : f32
    %mulf_0 = arith.mulf %constant_2, %load_0 : f32
    memref.store %mulf_0, %arg1[%thread_id_0] : memref<8xf32>
    return
  }
  func.func @y(%arg0: memref<32xi8>, %arg1: memref<32xi8>) attributes {arguments = ["input:x", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 8>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<8xf32>, tensor<8xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<32xi8> to memref<8xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<32xi8> to memref<8xf32>
    call @double(%view_0, %view_1) : (memref<8xf32>, memref<8xf32>) -> ()
    return
  }
}
// ----- becomes
func.func "double"
  access = ["read", "write"]
  function_type = (memref<8xf32>, memref<8xf32>) -> ()
  grid = [1, 1, 1]
  kernel = "hand"
  sym_visibility = "private"
  tied = [-1]
  work = {bytes = 64 : i64, context = 0 : i64, operations = 0 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}
  4 arith.constant
  1 arith.mulf vector<8xf32>
  1 func.return
  1 vector.broadcast vector<8xf32>
  1 vector.load vector<8xf32>
  1 vector.store vector<8xf32>
func.func "y"
  arguments = ["input:x", "result:y"]
  entry = "y"
  extents = array<i64>
  function_type = (memref<32xi8>, memref<32xi8>) -> ()
  inputs = {x = array<i64: 8>}
  repeatable = unit
  results = ["result:y"]
  sizes = []
  types = [tensor<8xf32>, tensor<8xf32>]
  2 arith.constant
  1 func.call
  1 func.return
  2 memref.view
