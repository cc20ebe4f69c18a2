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
  3 arith.index_cast
  1 func.return
  1 gpu.block_id
  1 llvm.call
  2 llvm.inttoptr
  2 memref.extract_aligned_pointer_as_index
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
llvm.func "free"
  CConv = #llvm.cconv<ccc>
  function_type = !llvm.func<void (ptr)>
  linkage = #llvm.linkage<external>
  visibility_ = 0 : i64
llvm.func "malloc"
  CConv = #llvm.cconv<ccc>
  function_type = !llvm.func<ptr (i64)>
  linkage = #llvm.linkage<external>
  visibility_ = 0 : i64
llvm.func "kernels_double_thread"
  CConv = #llvm.cconv<ccc>
  function_type = !llvm.func<void (ptr, ptr, i64, i64, i64, ptr, ptr, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, ptr, ptr, i64, i64, i64)>
  linkage = #llvm.linkage<internal>
  visibility_ = 0 : i64
  2 llvm.extractvalue
  1 llvm.fmul
  2 llvm.getelementptr
  10 llvm.insertvalue
  1 llvm.load
  1 llvm.mlir.constant
  1 llvm.mlir.poison
  1 llvm.return
  1 llvm.store
llvm.func "kernels_double"
  CConv = #llvm.cconv<ccc>
  function_type = !llvm.func<void (i64, i64, i64, i64, i64, i64, i64, i64, i32, ptr, ptr, i64, i64, i64, ptr, ptr, i64, i64, i64)>
  linkage = #llvm.linkage<internal>
  visibility_ = 0 : i64
  6 llvm.add
  8 llvm.br
  3 llvm.call
  4 llvm.cond_br
  6 llvm.extractvalue
  1 llvm.getelementptr
  4 llvm.icmp
  5 llvm.insertvalue
  1 llvm.inttoptr
  6 llvm.mlir.constant
  1 llvm.mlir.poison
  1 llvm.mlir.zero
  2 llvm.ptrtoint
  1 llvm.return
  1 llvm.sext
  2 llvm.sub
  2 llvm.udiv
  3 llvm.urem
llvm.func "double_block"
  CConv = #llvm.cconv<ccc>
  function_type = !llvm.func<void (i64, ptr, ptr)>
  linkage = #llvm.linkage<internal>
  visibility_ = 0 : i64
  1 llvm.add
  1 llvm.call
  6 llvm.mlir.constant
  1 llvm.return
