// pass: collect-gpu-kernels
// target: rocm:gfx1151
// show: text
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
  llvm.mlir.global external constant @plan("{\22buffers\22: [{\22name\22: \22y/x\22, \22kind\22: \22input\22, \22shape\22: [8], \22dtype\22: \22f32\22}, {\22name\22: \22y/y\22, \22kind\22: \22result\22, \22shape\22: [8], \22dtype\22: \22f32\22}, {\22name\22: \22arena\22, \22kind\22: \22arena\22, \22shape\22: [256], \22dtype\22: \22i8\22}], \22entries\22: [{\22name\22: \22y\22, \22sizes\22: {}, \22inputs\22: {\22x\22: \22y/x\22}, \22results\22: {\22y\22: \22y/y\22}, \22steps\22: [{\22kind\22: \22launch\22, \22kernel\22: \22double\22, \22grid\22: [1, 1, 1], \22block\22: [8, 1, 1], \22shared_bytes\22: 0, \22arguments\22: [{\22buffer\22: \22y/x\22, \22offset\22: 0, \22nbytes\22: 32, \22access\22: \22read\22}, {\22buffer\22: \22y/y\22, \22offset\22: 0, \22nbytes\22: 32, \22access\22: \22write\22}]}], \22repeatable\22: true}], \22kernels\22: {\22double\22: {\22work\22: {\22bytes\22: 64, \22context\22: 0, \22operations\22: 0, \22position_bytes\22: 0, \22position_operations\22: 0, \22matrix\22: false}}}}") {addr_space = 0 : i32}
}
// ----- becomes
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @double(%arg0: memref<8xf32>, %arg1: memref<8xf32>) kernel attributes {known_block_size = array<i32: 8, 1, 1>} {
      %thread_id_0 = gpu.thread_id x
      %constant_0 = arith.constant 1 : index
      %constant_1 = arith.constant 8 : index
      %load_0 = memref.load %arg0[%thread_id_0] : memref<8xf32>
      %constant_2 = arith.constant 2.000000e+00 : f32
      %mulf_0 = arith.mulf %constant_2, %load_0 : f32
      memref.store %mulf_0, %arg1[%thread_id_0] : memref<8xf32>
      gpu.return
    }
  }
  llvm.mlir.global external constant @plan("{\22buffers\22: [{\22name\22: \22y/x\22, \22kind\22: \22input\22, \22shape\22: [8], \22dtype\22: \22f32\22}, {\22name\22: \22y/y\22, \22kind\22: \22result\22, \22shape\22: [8], \22dtype\22: \22f32\22}, {\22name\22: \22arena\22, \22kind\22: \22arena\22, \22shape\22: [256], \22dtype\22: \22i8\22}], \22entries\22: [{\22name\22: \22y\22, \22sizes\22: {}, \22inputs\22: {\22x\22: \22y/x\22}, \22results\22: {\22y\22: \22y/y\22}, \22steps\22: [{\22kind\22: \22launch\22, \22kernel\22: \22double\22, \22grid\22: [1, 1, 1], \22block\22: [8, 1, 1], \22shared_bytes\22: 0, \22arguments\22: [{\22buffer\22: \22y/x\22, \22offset\22: 0, \22nbytes\22: 32, \22access\22: \22read\22}, {\22buffer\22: \22y/y\22, \22offset\22: 0, \22nbytes\22: 32, \22access\22: \22write\22}]}], \22repeatable\22: true}], \22kernels\22: {\22double\22: {\22work\22: {\22bytes\22: 64, \22context\22: 0, \22operations\22: 0, \22position_bytes\22: 0, \22position_operations\22: 0, \22matrix\22: false}}}}") {addr_space = 0 : i32}
}
