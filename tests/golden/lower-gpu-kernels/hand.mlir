// pass: lower-gpu-kernels
// target: cuda:sm_80
// show: text
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @double(%arg0: memref<8xf32>, %arg1: memref<8xf32>) kernel attributes {known_block_size = array<i32: 8, 1, 1>} {
      %constant_0 = arith.constant 2.000000e+00 : f32
      %thread_id_0 = gpu.thread_id x
      %load_0 = memref.load %arg0[%thread_id_0] : memref<8xf32>
      %mulf_0 = arith.mulf %load_0, %constant_0 : f32
      memref.store %mulf_0, %arg1[%thread_id_0] : memref<8xf32>
      gpu.return
    }
  }
  llvm.mlir.global external constant @plan("{\22buffers\22: [{\22name\22: \22y/x\22, \22kind\22: \22input\22, \22shape\22: [8], \22dtype\22: \22f32\22}, {\22name\22: \22y/y\22, \22kind\22: \22result\22, \22shape\22: [8], \22dtype\22: \22f32\22}, {\22name\22: \22arena\22, \22kind\22: \22arena\22, \22shape\22: [256], \22dtype\22: \22i8\22}], \22entries\22: [{\22name\22: \22y\22, \22sizes\22: {}, \22inputs\22: {\22x\22: \22y/x\22}, \22results\22: {\22y\22: \22y/y\22}, \22steps\22: [{\22kind\22: \22launch\22, \22kernel\22: \22double\22, \22grid\22: [1, 1, 1], \22block\22: [8, 1, 1], \22shared_bytes\22: 0, \22arguments\22: [{\22buffer\22: \22y/x\22, \22offset\22: 0, \22nbytes\22: 32, \22access\22: \22read\22}, {\22buffer\22: \22y/y\22, \22offset\22: 0, \22nbytes\22: 32, \22access\22: \22write\22}]}], \22repeatable\22: true}], \22kernels\22: {\22double\22: {\22work\22: {\22bytes\22: 64, \22context\22: 0, \22operations\22: 0, \22position_bytes\22: 0, \22position_operations\22: 0, \22matrix\22: false}}}}") {addr_space = 0 : i32}
}
// ----- becomes
module attributes {gpu.container_module} {
  gpu.module @kernels [#nvvm.target<O = 3, chip = "sm_80", features = "+ptx80">] {
    llvm.func @double(%arg0: !llvm.ptr, %arg1: !llvm.ptr) attributes {gpu.kernel, gpu.known_block_size = array<i32: 8, 1, 1>, nvvm.kernel, nvvm.maxntid = array<i32: 8, 1, 1>} {
      %poison_0 = llvm.mlir.poison : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>
      %insertvalue_0 = llvm.insertvalue %arg1, %poison_0[0] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)> 
      %insertvalue_1 = llvm.insertvalue %arg1, %insertvalue_0[1] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)> 
      %constant_0 = llvm.mlir.constant(0 : index) : i64
      %insertvalue_2 = llvm.insertvalue %constant_0, %insertvalue_1[2] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)> 
      %constant_1 = llvm.mlir.constant(8 : index) : i64
      %insertvalue_3 = llvm.insertvalue %constant_1, %insertvalue_2[3, 0] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)> 
      %constant_2 = llvm.mlir.constant(1 : index) : i64
      %insertvalue_4 = llvm.insertvalue %constant_2, %insertvalue_3[4, 0] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)> 
      %poison_1 = llvm.mlir.poison : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>
      %insertvalue_5 = llvm.insertvalue %arg0, %poison_1[0] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)> 
      %insertvalue_6 = llvm.insertvalue %arg0, %insertvalue_5[1] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)> 
      %constant_3 = llvm.mlir.constant(0 : index) : i64
      %insertvalue_7 = llvm.insertvalue %constant_3, %insertvalue_6[2] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)> 
      %constant_4 = llvm.mlir.constant(8 : index) : i64
      %insertvalue_8 = llvm.insertvalue %constant_4, %insertvalue_7[3, 0] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)> 
      %constant_5 = llvm.mlir.constant(1 : index) : i64
      %insertvalue_9 = llvm.insertvalue %constant_5, %insertvalue_8[4, 0] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)> 
      %constant_6 = llvm.mlir.constant(2.000000e+00 : f32) : f32
      %x_0 = nvvm.read.ptx.sreg.tid.x range <i32, 0, 8> : i32
      %sext_0 = llvm.sext %x_0 : i32 to i64
      %extractvalue_0 = llvm.extractvalue %insertvalue_9[1] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)> 
      %getelementptr_0 = llvm.getelementptr inbounds|nuw %extractvalue_0[%sext_0] : (!llvm.ptr, i64) -> !llvm.ptr, f32
      %load_0 = llvm.load %getelementptr_0 : !llvm.ptr -> f32
      %fmul_0 = llvm.fmul %load_0, %constant_6 : f32
      %extractvalue_1 = llvm.extractvalue %insertvalue_4[1] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)> 
      %getelementptr_1 = llvm.getelementptr inbounds|nuw %extractvalue_1[%sext_0] : (!llvm.ptr, i64) -> !llvm.ptr, f32
      llvm.store %fmul_0, %getelementptr_1 : f32, !llvm.ptr
      llvm.return
    }
  }
  llvm.mlir.global external constant @plan("{\22buffers\22: [{\22name\22: \22y/x\22, \22kind\22: \22input\22, \22shape\22: [8], \22dtype\22: \22f32\22}, {\22name\22: \22y/y\22, \22kind\22: \22result\22, \22shape\22: [8], \22dtype\22: \22f32\22}, {\22name\22: \22arena\22, \22kind\22: \22arena\22, \22shape\22: [256], \22dtype\22: \22i8\22}], \22entries\22: [{\22name\22: \22y\22, \22sizes\22: {}, \22inputs\22: {\22x\22: \22y/x\22}, \22results\22: {\22y\22: \22y/y\22}, \22steps\22: [{\22kind\22: \22launch\22, \22kernel\22: \22double\22, \22grid\22: [1, 1, 1], \22block\22: [8, 1, 1], \22shared_bytes\22: 0, \22arguments\22: [{\22buffer\22: \22y/x\22, \22offset\22: 0, \22nbytes\22: 32, \22access\22: \22read\22}, {\22buffer\22: \22y/y\22, \22offset\22: 0, \22nbytes\22: 32, \22access\22: \22write\22}]}], \22repeatable\22: true}], \22kernels\22: {\22double\22: {\22work\22: {\22bytes\22: 64, \22context\22: 0, \22operations\22: 0, \22position_bytes\22: 0, \22position_operations\22: 0, \22matrix\22: false}}}}") {addr_space = 0 : i32}
}
