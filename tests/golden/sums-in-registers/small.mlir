// pass: sums-in-registers{unroll=1}
// target: cpu:x86-64-v3
// show: text
module {
  func.func @sums(%arg0: memref<4x8xf32>, %arg1: memref<4xf32>) {
    %constant_0 = arith.constant 0 : index
    %constant_1 = arith.constant 1 : index
    %constant_2 = arith.constant 4 : index
    %constant_3 = arith.constant 8 : index
    scf.for %arg2 = %constant_0 to %constant_2 step %constant_1 {
      scf.for %arg3 = %constant_0 to %constant_3 step %constant_1 {
        %load_0 = memref.load %arg0[%arg2, %arg3] : memref<4x8xf32>
        %load_1 = memref.load %arg1[%arg2] : memref<4xf32>
        %addf_0 = arith.addf %load_1, %load_0 : f32
        memref.store %addf_0, %arg1[%arg2] : memref<4xf32>
      }
    }
    return
  }
}
// ----- becomes
module {
  func.func @sums(%arg0: memref<4x8xf32>, %arg1: memref<4xf32>) {
    %constant_0 = arith.constant 0 : index
    %constant_1 = arith.constant 1 : index
    %constant_2 = arith.constant 4 : index
    %constant_3 = arith.constant 8 : index
    scf.for %arg2 = %constant_0 to %constant_2 step %constant_1 {
      %load_0 = memref.load %arg1[%arg2] : memref<4xf32>
      %for_0 = scf.for %arg3 = %constant_0 to %constant_3 step %constant_1 iter_args(%arg4 = %load_0) -> (f32) {
        %load_1 = memref.load %arg0[%arg2, %arg3] : memref<4x8xf32>
        %addf_0 = arith.addf %arg4, %load_1 : f32
        scf.yield %addf_0 : f32
      }
      memref.store %for_0, %arg1[%arg2] : memref<4xf32>
    }
    return
  }
}
