// pass: number-blocks
// target: cpu:x86-64-v3
// show: text
module {
  func.func private @rows_4(%arg0: memref<4xf32>, %arg1: memref<4xf32>) attributes {access = ["read", "write"], grid = array<i64: 1, 1, 1>, kernel = "rows", tied = [-1], work = {bytes = 32 : i64, context = 0 : i64, operations = 4 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %constant_0 = arith.constant 1 : index
    %constant_1 = arith.constant 4 : index
    %block_id_0 = gpu.block_id x
    %muli_0 = arith.muli %block_id_0, %constant_1 : index
    %addi_0 = arith.addi %muli_0, %constant_1 : index
    scf.for %arg2 = %muli_0 to %addi_0 step %constant_0 {
      %load_0 = memref.load %arg0[%arg2] : memref<4xf32>
      %sqrt_0 = math.sqrt %load_0 : f32
      memref.store %sqrt_0, %arg1[%arg2] : memref<4xf32>
    }
    return
  }
  llvm.mlir.global external constant @plan("{\22buffers\22: [{\22name\22: \22y/x\22, \22kind\22: \22input\22, \22shape\22: [4], \22dtype\22: \22f32\22}, {\22name\22: \22y/y\22, \22kind\22: \22result\22, \22shape\22: [4], \22dtype\22: \22f32\22}, {\22name\22: \22arena\22, \22kind\22: \22arena\22, \22shape\22: [256], \22dtype\22: \22i8\22}], \22entries\22: [{\22name\22: \22y\22, \22sizes\22: {}, \22inputs\22: {\22x\22: \22y/x\22}, \22results\22: {\22y\22: \22y/y\22}, \22steps\22: [{\22kind\22: \22launch\22, \22kernel\22: \22rows_4\22, \22grid\22: [1, 1, 1], \22block\22: [1, 1, 1], \22shared_bytes\22: 0, \22arguments\22: [{\22buffer\22: \22y/x\22, \22offset\22: 0, \22nbytes\22: 16, \22access\22: \22read\22}, {\22buffer\22: \22y/y\22, \22offset\22: 0, \22nbytes\22: 16, \22access\22: \22write\22}]}], \22repeatable\22: true}], \22kernels\22: {\22rows_4\22: {\22work\22: {\22bytes\22: 32, \22context\22: 0, \22operations\22: 4, \22position_bytes\22: 0, \22position_operations\22: 0, \22matrix\22: false}}}}") {addr_space = 0 : i32}
}
// ----- becomes
module {
  func.func private @rows_4(%arg0: index, %arg1: memref<4xf32>, %arg2: memref<4xf32>) attributes {access = ["read", "write"], grid = array<i64: 1, 1, 1>, kernel = "rows", tied = [-1], work = {bytes = 32 : i64, context = 0 : i64, operations = 4 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %constant_0 = arith.constant 1 : index
    %constant_1 = arith.constant 4 : index
    %muli_0 = arith.muli %arg0, %constant_1 : index
    %addi_0 = arith.addi %muli_0, %constant_1 : index
    scf.for %arg3 = %muli_0 to %addi_0 step %constant_0 {
      %load_0 = memref.load %arg1[%arg3] : memref<4xf32>
      %sqrt_0 = math.sqrt %load_0 : f32
      memref.store %sqrt_0, %arg2[%arg3] : memref<4xf32>
    }
    return
  }
  llvm.mlir.global external constant @plan("{\22buffers\22: [{\22name\22: \22y/x\22, \22kind\22: \22input\22, \22shape\22: [4], \22dtype\22: \22f32\22}, {\22name\22: \22y/y\22, \22kind\22: \22result\22, \22shape\22: [4], \22dtype\22: \22f32\22}, {\22name\22: \22arena\22, \22kind\22: \22arena\22, \22shape\22: [256], \22dtype\22: \22i8\22}], \22entries\22: [{\22name\22: \22y\22, \22sizes\22: {}, \22inputs\22: {\22x\22: \22y/x\22}, \22results\22: {\22y\22: \22y/y\22}, \22steps\22: [{\22kind\22: \22launch\22, \22kernel\22: \22rows_4\22, \22grid\22: [1, 1, 1], \22block\22: [1, 1, 1], \22shared_bytes\22: 0, \22arguments\22: [{\22buffer\22: \22y/x\22, \22offset\22: 0, \22nbytes\22: 16, \22access\22: \22read\22}, {\22buffer\22: \22y/y\22, \22offset\22: 0, \22nbytes\22: 16, \22access\22: \22write\22}]}], \22repeatable\22: true}], \22kernels\22: {\22rows_4\22: {\22work\22: {\22bytes\22: 32, \22context\22: 0, \22operations\22: 4, \22position_bytes\22: 0, \22position_operations\22: 0, \22matrix\22: false}}}}") {addr_space = 0 : i32}
}
