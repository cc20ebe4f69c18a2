// pass: emit-plan
// target: cpu:x86-64-v3
// show: text
module {
  func.func private @generic_2(%arg0: memref<2x3xf32>, %arg1: memref<2xf32>) attributes {access = ["read", "write"], block = [1, 1, 1], grid = [1, 1, 1], kernel = "generic", schedule = "generic", shared_bytes = 0 : i64, tied = [-1], work = {bytes = 32 : i64, context = 0 : i64, operations = 12 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %block_id_0 = gpu.block_id x
    %constant_0 = arith.constant 16384 : index
    %muli_0 = arith.muli %block_id_0, %constant_0 : index
    %constant_1 = arith.constant 16384 : index
    %addi_0 = arith.addi %muli_0, %constant_1 : index
    %constant_2 = arith.constant 2 : index
    %minui_0 = arith.minui %addi_0, %constant_2 : index
    %constant_3 = arith.constant 1 : index
    scf.for %arg2 = %muli_0 to %minui_0 step %constant_3 {
      %constant_4 = arith.constant 1.000000e+00 : f32
      %constant_5 = arith.constant 0 : index
      %constant_6 = arith.constant 3 : index
      %constant_7 = arith.constant 1 : index
      %for_0 = scf.for %arg3 = %constant_5 to %constant_6 step %constant_7 iter_args(%arg4 = %constant_4) -> (f32) {
        %load_0 = memref.load %arg0[%arg2, %arg3] : memref<2x3xf32>
        %constant_8 = arith.constant 5.000000e-01 : f32
        %mulf_0 = arith.mulf %arg4, %constant_8 : f32
        %addf_0 = arith.addf %mulf_0, %load_0 : f32
        scf.yield %addf_0 : f32
      }
      memref.store %for_0, %arg1[%arg2] : memref<2xf32>
    }
    return
  }
  func.func @y(%arg0: memref<24xi8>, %arg1: memref<8xi8>, %arg2: memref<256xi8>) attributes {arguments = ["input:x", "result:y", "arena:arena"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 2, 3>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<2x3xf32>, tensor<2xf32>, tensor<256xi8>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<24xi8> to memref<2x3xf32>
    %view_1 = memref.view %arg1[%constant_0][] : memref<8xi8> to memref<2xf32>
    call @generic_2(%view_0, %view_1) : (memref<2x3xf32>, memref<2xf32>) -> ()
    return
  }
}
// ----- becomes
module {
  func.func private @generic_2(%arg0: memref<2x3xf32>, %arg1: memref<2xf32>) attributes {access = ["read", "write"], block = [1, 1, 1], grid = [1, 1, 1], kernel = "generic", schedule = "generic", shared_bytes = 0 : i64, tied = [-1], work = {bytes = 32 : i64, context = 0 : i64, operations = 12 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %block_id_0 = gpu.block_id x
    %constant_0 = arith.constant 16384 : index
    %muli_0 = arith.muli %block_id_0, %constant_0 : index
    %constant_1 = arith.constant 16384 : index
    %addi_0 = arith.addi %muli_0, %constant_1 : index
    %constant_2 = arith.constant 2 : index
    %minui_0 = arith.minui %addi_0, %constant_2 : index
    %constant_3 = arith.constant 1 : index
    scf.for %arg2 = %muli_0 to %minui_0 step %constant_3 {
      %constant_4 = arith.constant 1.000000e+00 : f32
      %constant_5 = arith.constant 0 : index
      %constant_6 = arith.constant 3 : index
      %constant_7 = arith.constant 1 : index
      %for_0 = scf.for %arg3 = %constant_5 to %constant_6 step %constant_7 iter_args(%arg4 = %constant_4) -> (f32) {
        %load_0 = memref.load %arg0[%arg2, %arg3] : memref<2x3xf32>
        %constant_8 = arith.constant 5.000000e-01 : f32
        %mulf_0 = arith.mulf %arg4, %constant_8 : f32
        %addf_0 = arith.addf %mulf_0, %load_0 : f32
        scf.yield %addf_0 : f32
      }
      memref.store %for_0, %arg1[%arg2] : memref<2xf32>
    }
    return
  }
  llvm.mlir.global external constant @plan("{\22buffers\22: [{\22name\22: \22y/input/x\22, \22kind\22: \22input\22, \22shape\22: [2, 3], \22dtype\22: \22f32\22}, {\22name\22: \22y/result/y\22, \22kind\22: \22result\22, \22shape\22: [2], \22dtype\22: \22f32\22}, {\22name\22: \22arena\22, \22kind\22: \22arena\22, \22shape\22: [256], \22dtype\22: \22i8\22}], \22entries\22: [{\22name\22: \22y\22, \22sizes\22: {}, \22inputs\22: {\22x\22: \22y/input/x\22}, \22results\22: {\22y\22: \22y/result/y\22}, \22steps\22: [{\22kind\22: \22launch\22, \22kernel\22: \22generic_2\22, \22grid\22: [1, 1, 1], \22block\22: [1, 1, 1], \22shared_bytes\22: 0, \22arguments\22: [{\22buffer\22: \22y/input/x\22, \22offset\22: 0, \22nbytes\22: 24, \22access\22: \22read\22}, {\22buffer\22: \22y/result/y\22, \22offset\22: 0, \22nbytes\22: 8, \22access\22: \22write\22}]}], \22repeatable\22: true}], \22kernels\22: {\22generic_2\22: {\22work\22: {\22bytes\22: 32, \22context\22: 0, \22operations\22: 12, \22position_bytes\22: 0, \22position_operations\22: 0, \22matrix\22: false}, \22schedule\22: \22generic\22, \22refused\22: [], \22elements\22: [\22f32\22, \22f32\22]}}}") {addr_space = 0 : i32}
}
