// pass: join-gpu-modules
// target: cuda:sm_90a
// show: text
module attributes {gpu.container_module} {
  llvm.mlir.global internal constant @string.0("row %d: %d\0A\00") {addr_space = 0 : i32}
  llvm.func @printf(!llvm.ptr, ...) -> i32
  func.func @"sum-rows"(%arg0: memref<4x32xi32>, %arg1: memref<4xi32>) attributes {llvm.emit_c_interface} {
    %constant_0 = arith.constant 0 : index
    %constant_1 = arith.constant 1 : i32
    %constant_2 = arith.constant 2 : i32
    %constant_3 = arith.constant 4 : i32
    %constant_4 = arith.constant 8 : i32
    %constant_5 = arith.constant 32 : i32
    %constant_6 = arith.constant 16 : i32
    %constant_7 = arith.constant 4 : index
    %constant_8 = arith.constant 1 : index
    %constant_9 = arith.constant 32 : index
    gpu.launch_func  @"sum-rows_kernel"::@"sum-rows_kernel" blocks in (%constant_7, %constant_8, %constant_8) threads in (%constant_9, %constant_8, %constant_8)  args(%arg0 : memref<4x32xi32>, %constant_6 : i32, %constant_5 : i32, %constant_4 : i32, %constant_3 : i32, %constant_2 : i32, %constant_1 : i32, %constant_0 : index, %arg1 : memref<4xi32>)
    return
  }
  gpu.module @"sum-rows_kernel" [#nvvm.target<O = 3, chip = "sm_90a", features = "+ptx80">] {
    gpu.func @"sum-rows_kernel"(%arg0: memref<4x32xi32>, %arg1: i32, %arg2: i32, %arg3: i32, %arg4: i32, %arg5: i32, %arg6: i32, %arg7: index, %arg8: memref<4xi32>) kernel attributes {known_block_size = array<i32: 32, 1, 1>, known_grid_size = array<i32: 4, 1, 1>} {
      %block_id_0 = gpu.block_id x
      %thread_id_0 = gpu.thread_id x
      %load_0 = memref.load %arg0[%block_id_0, %thread_id_0] : memref<4x32xi32>
      %shuffle_0, %shuffle_1 = gpu.shuffle xor %load_0, %arg1, %arg2 : i32
      %addi_0 = arith.addi %load_0, %shuffle_0 : i32
      %shuffle_2, %shuffle_3 = gpu.shuffle xor %addi_0, %arg3, %arg2 : i32
      %addi_1 = arith.addi %addi_0, %shuffle_2 : i32
      %shuffle_4, %shuffle_5 = gpu.shuffle xor %addi_1, %arg4, %arg2 : i32
      %addi_2 = arith.addi %addi_1, %shuffle_4 : i32
      %shuffle_6, %shuffle_7 = gpu.shuffle xor %addi_2, %arg5, %arg2 : i32
      %addi_3 = arith.addi %addi_2, %shuffle_6 : i32
      %shuffle_8, %shuffle_9 = gpu.shuffle xor %addi_3, %arg6, %arg2 : i32
      %addi_4 = arith.addi %addi_3, %shuffle_8 : i32
      %cmpi_0 = arith.cmpi eq, %thread_id_0, %arg7 : index
      cf.cond_br %cmpi_0, ^bb1, ^bb2
    ^bb1:  // pred: ^bb0
      memref.store %addi_4, %arg8[%block_id_0] : memref<4xi32>
      cf.br ^bb2
    ^bb2:  // 2 preds: ^bb0, ^bb1
      gpu.return
    }
  }
  func.func @main() attributes {llvm.emit_c_interface} {
    %constant_0 = arith.constant 3 : i64
    %constant_1 = arith.constant 3 : index
    %constant_2 = arith.constant 2 : i64
    %constant_3 = arith.constant 2 : index
    %constant_4 = arith.constant 1 : i64
    %constant_5 = arith.constant 0 : i64
    %addressof_0 = llvm.mlir.addressof @string.0 : !llvm.ptr
    %constant_6 = arith.constant 32 : index
    %constant_7 = arith.constant 1 : index
    %constant_8 = arith.constant 4 : index
    %constant_9 = arith.constant 0 : index
    %alloc_0 = memref.alloc() : memref<4x32xi32>
    %alloc_1 = memref.alloc() : memref<4xi32>
    %cast_0 = memref.cast %alloc_0 : memref<4x32xi32> to memref<*xi32>
    gpu.host_register %cast_0 : memref<*xi32>
    %cast_1 = memref.cast %alloc_1 : memref<4xi32> to memref<*xi32>
    gpu.host_register %cast_1 : memref<*xi32>
    cf.br ^bb1(%constant_9 : index)
  ^bb1(%1: index):  // 2 preds: ^bb0, ^bb5
    %cmpi_0 = arith.cmpi slt, %1, %constant_8 : index
    cf.cond_br %cmpi_0, ^bb2, ^bb6
  ^bb2:  // pred: ^bb1
    cf.br ^bb3(%constant_9 : index)
  ^bb3(%3: index):  // 2 preds: ^bb2, ^bb4
    %cmpi_1 = arith.cmpi slt, %3, %constant_6 : index
    cf.cond_br %cmpi_1, ^bb4, ^bb5
  ^bb4:  // pred: ^bb3
    %muli_0 = arith.muli %1, %constant_6 : index
    %addi_0 = arith.addi %muli_0, %3 : index
    %index_cast_0 = arith.index_cast %addi_0 : index to i32
    memref.store %index_cast_0, %alloc_0[%1, %3] : memref<4x32xi32>
    %addi_1 = arith.addi %3, %constant_7 : index
    cf.br ^bb3(%addi_1 : index)
  ^bb5:  // pred: ^bb3
    %addi_2 = arith.addi %1, %constant_7 : index
    cf.br ^bb1(%addi_2 : index)
  ^bb6:  // pred: ^bb1
    call @"sum-rows"(%alloc_0, %alloc_1) : (memref<4x32xi32>, memref<4xi32>) -> ()
    %load_0 = memref.load %alloc_1[%constant_9] : memref<4xi32>
    %call_0 = llvm.call @printf(%addressof_0, %constant_5, %load_0) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, i64, i32) -> i32
    %load_1 = memref.load %alloc_1[%constant_7] : memref<4xi32>
    %call_1 = llvm.call @printf(%addressof_0, %constant_4, %load_1) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, i64, i32) -> i32
    %load_2 = memref.load %alloc_1[%constant_3] : memref<4xi32>
    %call_2 = llvm.call @printf(%addressof_0, %constant_2, %load_2) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, i64, i32) -> i32
    %load_3 = memref.load %alloc_1[%constant_1] : memref<4xi32>
    %call_3 = llvm.call @printf(%addressof_0, %constant_0, %load_3) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, i64, i32) -> i32
    return
  }
}
// ----- becomes
module attributes {gpu.container_module} {
  llvm.mlir.global internal constant @string.0("row %d: %d\0A\00") {addr_space = 0 : i32}
  llvm.func @printf(!llvm.ptr, ...) -> i32
  func.func @"sum-rows"(%arg0: memref<4x32xi32>, %arg1: memref<4xi32>) attributes {llvm.emit_c_interface} {
    %constant_0 = arith.constant 0 : index
    %constant_1 = arith.constant 1 : i32
    %constant_2 = arith.constant 2 : i32
    %constant_3 = arith.constant 4 : i32
    %constant_4 = arith.constant 8 : i32
    %constant_5 = arith.constant 32 : i32
    %constant_6 = arith.constant 16 : i32
    %constant_7 = arith.constant 4 : index
    %constant_8 = arith.constant 1 : index
    %constant_9 = arith.constant 32 : index
    gpu.launch_func  @sum_rows_kernel::@sum_rows_kernel blocks in (%constant_7, %constant_8, %constant_8) threads in (%constant_9, %constant_8, %constant_8)  args(%arg0 : memref<4x32xi32>, %constant_6 : i32, %constant_5 : i32, %constant_4 : i32, %constant_3 : i32, %constant_2 : i32, %constant_1 : i32, %constant_0 : index, %arg1 : memref<4xi32>)
    return
  }
  gpu.module @sum_rows_kernel [#nvvm.target<O = 3, chip = "sm_90a", features = "+ptx80">] {
    gpu.func @sum_rows_kernel(%arg0: memref<4x32xi32>, %arg1: i32, %arg2: i32, %arg3: i32, %arg4: i32, %arg5: i32, %arg6: i32, %arg7: index, %arg8: memref<4xi32>) kernel attributes {known_block_size = array<i32: 32, 1, 1>, known_grid_size = array<i32: 4, 1, 1>} {
      %block_id_0 = gpu.block_id x
      %thread_id_0 = gpu.thread_id x
      %load_0 = memref.load %arg0[%block_id_0, %thread_id_0] : memref<4x32xi32>
      %shuffle_0, %shuffle_1 = gpu.shuffle xor %load_0, %arg1, %arg2 : i32
      %addi_0 = arith.addi %load_0, %shuffle_0 : i32
      %shuffle_2, %shuffle_3 = gpu.shuffle xor %addi_0, %arg3, %arg2 : i32
      %addi_1 = arith.addi %addi_0, %shuffle_2 : i32
      %shuffle_4, %shuffle_5 = gpu.shuffle xor %addi_1, %arg4, %arg2 : i32
      %addi_2 = arith.addi %addi_1, %shuffle_4 : i32
      %shuffle_6, %shuffle_7 = gpu.shuffle xor %addi_2, %arg5, %arg2 : i32
      %addi_3 = arith.addi %addi_2, %shuffle_6 : i32
      %shuffle_8, %shuffle_9 = gpu.shuffle xor %addi_3, %arg6, %arg2 : i32
      %addi_4 = arith.addi %addi_3, %shuffle_8 : i32
      %cmpi_0 = arith.cmpi eq, %thread_id_0, %arg7 : index
      cf.cond_br %cmpi_0, ^bb1, ^bb2
    ^bb1:  // pred: ^bb0
      memref.store %addi_4, %arg8[%block_id_0] : memref<4xi32>
      cf.br ^bb2
    ^bb2:  // 2 preds: ^bb0, ^bb1
      gpu.return
    }
  }
  func.func @main() attributes {llvm.emit_c_interface} {
    %constant_0 = arith.constant 3 : i64
    %constant_1 = arith.constant 3 : index
    %constant_2 = arith.constant 2 : i64
    %constant_3 = arith.constant 2 : index
    %constant_4 = arith.constant 1 : i64
    %constant_5 = arith.constant 0 : i64
    %addressof_0 = llvm.mlir.addressof @string.0 : !llvm.ptr
    %constant_6 = arith.constant 32 : index
    %constant_7 = arith.constant 1 : index
    %constant_8 = arith.constant 4 : index
    %constant_9 = arith.constant 0 : index
    %alloc_0 = memref.alloc() : memref<4x32xi32>
    %alloc_1 = memref.alloc() : memref<4xi32>
    %cast_0 = memref.cast %alloc_0 : memref<4x32xi32> to memref<*xi32>
    gpu.host_register %cast_0 : memref<*xi32>
    %cast_1 = memref.cast %alloc_1 : memref<4xi32> to memref<*xi32>
    gpu.host_register %cast_1 : memref<*xi32>
    cf.br ^bb1(%constant_9 : index)
  ^bb1(%1: index):  // 2 preds: ^bb0, ^bb5
    %cmpi_0 = arith.cmpi slt, %1, %constant_8 : index
    cf.cond_br %cmpi_0, ^bb2, ^bb6
  ^bb2:  // pred: ^bb1
    cf.br ^bb3(%constant_9 : index)
  ^bb3(%3: index):  // 2 preds: ^bb2, ^bb4
    %cmpi_1 = arith.cmpi slt, %3, %constant_6 : index
    cf.cond_br %cmpi_1, ^bb4, ^bb5
  ^bb4:  // pred: ^bb3
    %muli_0 = arith.muli %1, %constant_6 : index
    %addi_0 = arith.addi %muli_0, %3 : index
    %index_cast_0 = arith.index_cast %addi_0 : index to i32
    memref.store %index_cast_0, %alloc_0[%1, %3] : memref<4x32xi32>
    %addi_1 = arith.addi %3, %constant_7 : index
    cf.br ^bb3(%addi_1 : index)
  ^bb5:  // pred: ^bb3
    %addi_2 = arith.addi %1, %constant_7 : index
    cf.br ^bb1(%addi_2 : index)
  ^bb6:  // pred: ^bb1
    call @"sum-rows"(%alloc_0, %alloc_1) : (memref<4x32xi32>, memref<4xi32>) -> ()
    %load_0 = memref.load %alloc_1[%constant_9] : memref<4xi32>
    %call_0 = llvm.call @printf(%addressof_0, %constant_5, %load_0) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, i64, i32) -> i32
    %load_1 = memref.load %alloc_1[%constant_7] : memref<4xi32>
    %call_1 = llvm.call @printf(%addressof_0, %constant_4, %load_1) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, i64, i32) -> i32
    %load_2 = memref.load %alloc_1[%constant_3] : memref<4xi32>
    %call_2 = llvm.call @printf(%addressof_0, %constant_2, %load_2) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, i64, i32) -> i32
    %load_3 = memref.load %alloc_1[%constant_1] : memref<4xi32>
    %call_3 = llvm.call @printf(%addressof_0, %constant_0, %load_3) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, i64, i32) -> i32
    return
  }
}
