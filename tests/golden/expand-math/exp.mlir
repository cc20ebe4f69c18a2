// pass: expand-math
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
      %exp_0 = math.exp %load_0 : f32
      memref.store %exp_0, %arg1[%arg2] : memref<4xf32>
    }
    return
  }
  llvm.mlir.global external constant @plan("{\22buffers\22: [{\22name\22: \22y/x\22, \22kind\22: \22input\22, \22shape\22: [4], \22dtype\22: \22f32\22}, {\22name\22: \22y/y\22, \22kind\22: \22result\22, \22shape\22: [4], \22dtype\22: \22f32\22}, {\22name\22: \22arena\22, \22kind\22: \22arena\22, \22shape\22: [256], \22dtype\22: \22i8\22}], \22entries\22: [{\22name\22: \22y\22, \22sizes\22: {}, \22inputs\22: {\22x\22: \22y/x\22}, \22results\22: {\22y\22: \22y/y\22}, \22steps\22: [{\22kind\22: \22launch\22, \22kernel\22: \22rows_4\22, \22grid\22: [1, 1, 1], \22block\22: [1, 1, 1], \22shared_bytes\22: 0, \22arguments\22: [{\22buffer\22: \22y/x\22, \22offset\22: 0, \22nbytes\22: 16, \22access\22: \22read\22}, {\22buffer\22: \22y/y\22, \22offset\22: 0, \22nbytes\22: 16, \22access\22: \22write\22}]}], \22repeatable\22: true}], \22kernels\22: {\22rows_4\22: {\22work\22: {\22bytes\22: 32, \22context\22: 0, \22operations\22: 4, \22position_bytes\22: 0, \22position_operations\22: 0, \22matrix\22: false}}}}") {addr_space = 0 : i32}
}
// ----- becomes
module {
  func.func private @rows_4(%arg0: memref<4xf32>, %arg1: memref<4xf32>) attributes {access = ["read", "write"], grid = array<i64: 1, 1, 1>, kernel = "rows", tied = [-1], work = {bytes = 32 : i64, context = 0 : i64, operations = 4 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %constant_0 = arith.constant 1 : index
    %constant_1 = arith.constant 4 : index
    %block_id_0 = gpu.block_id x
    %muli_0 = arith.muli %block_id_0, %constant_1 : index
    %addi_0 = arith.addi %muli_0, %constant_1 : index
    scf.for %arg2 = %muli_0 to %addi_0 step %constant_0 {
      %load_0 = memref.load %arg0[%arg2] : memref<4xf32>
      %constant_2 = arith.constant -1.040000e+02 : f32
      %maximumf_0 = arith.maximumf %load_0, %constant_2 : f32
      %constant_3 = arith.constant 8.900000e+01 : f32
      %minimumf_0 = arith.minimumf %maximumf_0, %constant_3 : f32
      %constant_4 = arith.constant 1.44269502 : f32
      %mulf_0 = arith.mulf %minimumf_0, %constant_4 : f32
      %roundeven_0 = math.roundeven %mulf_0 : f32
      %constant_5 = arith.constant -0.693359375 : f32
      %fma_0 = math.fma %roundeven_0, %constant_5, %minimumf_0 : f32
      %constant_6 = arith.constant 2.12194442E-4 : f32
      %fma_1 = math.fma %roundeven_0, %constant_6, %fma_0 : f32
      %constant_7 = arith.constant 1.98756912E-4 : f32
      %constant_8 = arith.constant 0.00139819994 : f32
      %fma_2 = math.fma %constant_7, %fma_1, %constant_8 : f32
      %constant_9 = arith.constant 0.00833345205 : f32
      %fma_3 = math.fma %fma_2, %fma_1, %constant_9 : f32
      %constant_10 = arith.constant 0.0416657962 : f32
      %fma_4 = math.fma %fma_3, %fma_1, %constant_10 : f32
      %constant_11 = arith.constant 0.166666657 : f32
      %fma_5 = math.fma %fma_4, %fma_1, %constant_11 : f32
      %constant_12 = arith.constant 5.000000e-01 : f32
      %fma_6 = math.fma %fma_5, %fma_1, %constant_12 : f32
      %mulf_1 = arith.mulf %fma_1, %fma_1 : f32
      %fma_7 = math.fma %fma_6, %mulf_1, %fma_1 : f32
      %constant_13 = arith.constant 1.000000e+00 : f32
      %addf_0 = arith.addf %fma_7, %constant_13 : f32
      %fptosi_0 = arith.fptosi %roundeven_0 : f32 to i32
      %constant_14 = arith.constant 1 : i32
      %shrsi_0 = arith.shrsi %fptosi_0, %constant_14 : i32
      %constant_15 = arith.constant 127 : i32
      %addi_1 = arith.addi %shrsi_0, %constant_15 : i32
      %constant_16 = arith.constant 23 : i32
      %shli_0 = arith.shli %addi_1, %constant_16 : i32
      %bitcast_0 = arith.bitcast %shli_0 : i32 to f32
      %mulf_2 = arith.mulf %addf_0, %bitcast_0 : f32
      %subi_0 = arith.subi %fptosi_0, %shrsi_0 : i32
      %constant_17 = arith.constant 127 : i32
      %addi_2 = arith.addi %subi_0, %constant_17 : i32
      %constant_18 = arith.constant 23 : i32
      %shli_1 = arith.shli %addi_2, %constant_18 : i32
      %bitcast_1 = arith.bitcast %shli_1 : i32 to f32
      %mulf_3 = arith.mulf %mulf_2, %bitcast_1 : f32
      memref.store %mulf_3, %arg1[%arg2] : memref<4xf32>
    }
    return
  }
  llvm.mlir.global external constant @plan("{\22buffers\22: [{\22name\22: \22y/x\22, \22kind\22: \22input\22, \22shape\22: [4], \22dtype\22: \22f32\22}, {\22name\22: \22y/y\22, \22kind\22: \22result\22, \22shape\22: [4], \22dtype\22: \22f32\22}, {\22name\22: \22arena\22, \22kind\22: \22arena\22, \22shape\22: [256], \22dtype\22: \22i8\22}], \22entries\22: [{\22name\22: \22y\22, \22sizes\22: {}, \22inputs\22: {\22x\22: \22y/x\22}, \22results\22: {\22y\22: \22y/y\22}, \22steps\22: [{\22kind\22: \22launch\22, \22kernel\22: \22rows_4\22, \22grid\22: [1, 1, 1], \22block\22: [1, 1, 1], \22shared_bytes\22: 0, \22arguments\22: [{\22buffer\22: \22y/x\22, \22offset\22: 0, \22nbytes\22: 16, \22access\22: \22read\22}, {\22buffer\22: \22y/y\22, \22offset\22: 0, \22nbytes\22: 16, \22access\22: \22write\22}]}], \22repeatable\22: true}], \22kernels\22: {\22rows_4\22: {\22work\22: {\22bytes\22: 32, \22context\22: 0, \22operations\22: 4, \22position_bytes\22: 0, \22position_operations\22: 0, \22matrix\22: false}}}}") {addr_space = 0 : i32}
}
