// pass: gpu-to-cpu
// target: cpu:x86-64-v3
// show: summary
module attributes {gpu.container_module} {
  llvm.mlir.global internal constant @string.2("%ld of 256 right\0A\00") {addr_space = 0 : i32}
  llvm.mlir.global internal constant @string.1("sum[255] = %.1f\0A\00") {addr_space = 0 : i32}
  llvm.mlir.global internal constant @string.0("sum[0] = %.1f\0A\00") {addr_space = 0 : i32}
  llvm.func @printf(!llvm.ptr, ...) -> i32
  func.func @fill(%arg0: memref<256xf32>, %arg1: f32) attributes {llvm.emit_c_interface} {
    %constant_0 = arith.constant 0 : index
    %constant_1 = arith.constant 256 : index
    %constant_2 = arith.constant 1 : index
    cf.br ^bb1(%constant_0 : index)
  ^bb1(%0: index):  // 2 preds: ^bb0, ^bb2
    %cmpi_0 = arith.cmpi slt, %0, %constant_1 : index
    cf.cond_br %cmpi_0, ^bb2, ^bb3
  ^bb2:  // pred: ^bb1
    %index_cast_0 = arith.index_cast %0 : index to i32
    %sitofp_0 = arith.sitofp %index_cast_0 : i32 to f32
    %mulf_0 = arith.mulf %arg1, %sitofp_0 : f32
    memref.store %mulf_0, %arg0[%0] : memref<256xf32>
    %addi_0 = arith.addi %0, %constant_2 : index
    cf.br ^bb1(%addi_0 : index)
  ^bb3:  // pred: ^bb1
    return
  }
  func.func @add(%arg0: memref<256xf32>, %arg1: memref<256xf32>, %arg2: memref<256xf32>) attributes {llvm.emit_c_interface} {
    %constant_0 = arith.constant 4 : index
    %constant_1 = arith.constant 1 : index
    %constant_2 = arith.constant 64 : index
    gpu.launch_func  @add_kernel::@add_kernel blocks in (%constant_0, %constant_1, %constant_1) threads in (%constant_2, %constant_1, %constant_1)  args(%arg0 : memref<256xf32>, %arg1 : memref<256xf32>, %arg2 : memref<256xf32>)
    return
  }
  gpu.module @add_kernel {
    gpu.func @add_kernel(%arg0: memref<256xf32>, %arg1: memref<256xf32>, %arg2: memref<256xf32>) kernel attributes {known_block_size = array<i32: 64, 1, 1>, known_grid_size = array<i32: 4, 1, 1>} {
      %block_id_0 = gpu.block_id x
      %thread_id_0 = gpu.thread_id x
      %block_dim_0 = gpu.block_dim x
      %muli_0 = arith.muli %block_id_0, %block_dim_0 : index
      %addi_0 = arith.addi %muli_0, %thread_id_0 : index
      %load_0 = memref.load %arg0[%addi_0] : memref<256xf32>
      %load_1 = memref.load %arg1[%addi_0] : memref<256xf32>
      %addf_0 = arith.addf %load_0, %load_1 : f32
      memref.store %addf_0, %arg2[%addi_0] : memref<256xf32>
      gpu.return
    }
  }
  func.func @main() attributes {llvm.emit_c_interface} {
    %constant_0 = arith.constant 64 : index
    %constant_1 = arith.constant 4 : index
    %addressof_0 = llvm.mlir.addressof @string.2 : !llvm.ptr
    %constant_2 = arith.constant 3.000000e+00 : f32
    %constant_3 = arith.constant 0 : i64
    %constant_4 = arith.constant 1 : index
    %constant_5 = arith.constant 256 : index
    %addressof_1 = llvm.mlir.addressof @string.1 : !llvm.ptr
    %constant_6 = arith.constant 255 : index
    %addressof_2 = llvm.mlir.addressof @string.0 : !llvm.ptr
    %constant_7 = arith.constant 0 : index
    %constant_8 = arith.constant 2.000000e+00 : f32
    %alloc_0 = memref.alloc() : memref<256xf32>
    %cast_0 = memref.cast %alloc_0 : memref<256xf32> to memref<*xf32>
    gpu.host_register %cast_0 : memref<*xf32>
    %alloc_1 = memref.alloc() : memref<256xf32>
    %cast_1 = memref.cast %alloc_1 : memref<256xf32> to memref<*xf32>
    gpu.host_register %cast_1 : memref<*xf32>
    %alloc_2 = memref.alloc() : memref<256xf32>
    %cast_2 = memref.cast %alloc_2 : memref<256xf32> to memref<*xf32>
    gpu.host_register %cast_2 : memref<*xf32>
    cf.br ^bb1(%constant_7 : index)
  ^bb1(%3: index):  // 2 preds: ^bb0, ^bb2
    %cmpi_0 = arith.cmpi slt, %3, %constant_5 : index
    cf.cond_br %cmpi_0, ^bb2, ^bb3(%constant_7 : index)
  ^bb2:  // pred: ^bb1
    %index_cast_0 = arith.index_cast %3 : index to i32
    %sitofp_0 = arith.sitofp %index_cast_0 : i32 to f32
    memref.store %sitofp_0, %alloc_0[%3] : memref<256xf32>
    %addi_0 = arith.addi %3, %constant_4 : index
    cf.br ^bb1(%addi_0 : index)
  ^bb3(%8: index):  // 2 preds: ^bb1, ^bb4
    %cmpi_1 = arith.cmpi slt, %8, %constant_5 : index
    cf.cond_br %cmpi_1, ^bb4, ^bb5
  ^bb4:  // pred: ^bb3
    %index_cast_1 = arith.index_cast %8 : index to i32
    %sitofp_1 = arith.sitofp %index_cast_1 : i32 to f32
    %mulf_0 = arith.mulf %sitofp_1, %constant_8 : f32
    memref.store %mulf_0, %alloc_1[%8] : memref<256xf32>
    %addi_1 = arith.addi %8, %constant_4 : index
    cf.br ^bb3(%addi_1 : index)
  ^bb5:  // pred: ^bb3
    gpu.launch_func  @add_kernel::@add_kernel blocks in (%constant_1, %constant_4, %constant_4) threads in (%constant_0, %constant_4, %constant_4)  args(%alloc_0 : memref<256xf32>, %alloc_1 : memref<256xf32>, %alloc_2 : memref<256xf32>)
    %load_0 = memref.load %alloc_2[%constant_7] : memref<256xf32>
    %extf_0 = arith.extf %load_0 : f32 to f64
    %call_0 = llvm.call @printf(%addressof_2, %extf_0) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, f64) -> i32
    %load_1 = memref.load %alloc_2[%constant_6] : memref<256xf32>
    %extf_1 = arith.extf %load_1 : f32 to f64
    %call_1 = llvm.call @printf(%addressof_1, %extf_1) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, f64) -> i32
    cf.br ^bb6(%constant_7, %constant_3 : index, i64)
  ^bb6(%20: index, %21: i64):  // 2 preds: ^bb5, ^bb7
    %cmpi_2 = arith.cmpi slt, %20, %constant_5 : index
    cf.cond_br %cmpi_2, ^bb7, ^bb8
  ^bb7:  // pred: ^bb6
    %load_2 = memref.load %alloc_0[%20] : memref<256xf32>
    %mulf_1 = arith.mulf %load_2, %constant_2 : f32
    %load_3 = memref.load %alloc_2[%20] : memref<256xf32>
    %cmpf_0 = arith.cmpf oeq, %load_3, %mulf_1 : f32
    %extui_0 = arith.extui %cmpf_0 : i1 to i64
    %addi_2 = arith.addi %21, %extui_0 : i64
    %addi_3 = arith.addi %20, %constant_4 : index
    cf.br ^bb6(%addi_3, %addi_2 : index, i64)
  ^bb8:  // pred: ^bb6
    %call_2 = llvm.call @printf(%addressof_0, %21) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, i64) -> i32
    return
  }
}
// ----- becomes
llvm.func "printf"
  CConv = #llvm.cconv<ccc>
  function_type = !llvm.func<i32 (ptr, ...)>
  linkage = #llvm.linkage<external>
  unnamed_addr = 0 : i64
  visibility_ = 0 : i64
func.func "fill"
  function_type = (memref<256xf32>, f32) -> ()
  llvm.emit_c_interface = unit
  1 arith.addi
  1 arith.cmpi
  3 arith.constant
  1 arith.index_cast
  1 arith.mulf
  1 arith.sitofp
  2 cf.br
  1 cf.cond_br
  1 func.return
  1 memref.store
func.func "add"
  function_type = (memref<256xf32>, memref<256xf32>, memref<256xf32>) -> ()
  llvm.emit_c_interface = unit
  5 arith.constant
  2 arith.muli
  1 func.call
  1 func.return
func.func "main"
  function_type = () -> ()
  llvm.emit_c_interface = unit
  4 arith.addi
  1 arith.cmpf
  3 arith.cmpi
  11 arith.constant
  2 arith.extf
  1 arith.extui
  2 arith.index_cast
  2 arith.mulf
  2 arith.muli
  2 arith.sitofp
  5 cf.br
  3 cf.cond_br
  1 func.call
  1 func.return
  3 llvm.call
  3 llvm.mlir.addressof
  3 memref.alloc
  3 memref.cast
  4 memref.load
  2 memref.store
func.func "add_kernel_add_kernel_thread"
  function_type = (memref<256xf32>, memref<256xf32>, memref<256xf32>, index, index, index, index, index, index, index, index, index, index, index, index, memref<?xi8>) -> ()
  llvm.linkage = #llvm.linkage<internal>
  1 arith.addf
  3 arith.addi
  1 arith.ceildivui
  1 arith.constant
  6 arith.muli
  1 arith.remui
  1 arith.subi
  1 func.return
  2 memref.load
  1 memref.store
func.func "add_kernel_add_kernel"
  function_type = (index, index, index, index, index, index, index, index, i32, memref<256xf32>, memref<256xf32>, memref<256xf32>) -> ()
  parallel = unit
  2 arith.constant
  2 arith.divui
  1 arith.index_cast
  2 arith.muli
  2 arith.remui
  1 func.call
  1 func.return
  1 memref.alloc
  1 memref.dealloc
  4 scf.for
  4 scf.yield
