// pass: plan-arena
// target: cpu:x86-64-v3
// show: text
module {
  func.func private @contraction_2x3(%arg0: memref<2x3xf32>, %arg1: memref<3x3xf32>, %arg2: memref<2x3xf32>) attributes {access = ["read", "read", "write"], block = [1, 1, 1], grid = [1, 1, 1], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 2, 3, 3>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 2, 1>, rows = array<i64: 0>, sums = array<i64: 2>}, shared_bytes = 0 : i64, tied = [-1], work = {bytes = 84 : i64, context = 0 : i64, operations = 36 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %alloca_0 = memref.alloca() {alignment = 64 : i64} : memref<2x8xf32>
    %block_id_0 = gpu.block_id x
    %constant_0 = arith.constant 3 : index
    %muli_0 = arith.muli %block_id_0, %constant_0 : index
    %block_id_1 = gpu.block_id y
    %constant_1 = arith.constant 2 : index
    %muli_1 = arith.muli %block_id_1, %constant_1 : index
    %constant_2 = arith.constant dense<0.000000e+00> : vector<2xf32>
    %constant_3 = arith.constant 0.000000e+00 : f32
    %constant_4 = arith.constant dense<0.000000e+00> : vector<2xf32>
    %constant_5 = arith.constant 0.000000e+00 : f32
    %constant_6 = arith.constant 0 : index
    %constant_7 = arith.constant 3 : index
    %constant_8 = arith.constant 1 : index
    %for_0:4 = scf.for %arg3 = %constant_6 to %constant_7 step %constant_8 iter_args(%arg4 = %constant_2, %arg5 = %constant_3, %arg6 = %constant_4, %arg7 = %constant_5) -> (vector<2xf32>, f32, vector<2xf32>, f32) {
      %load_0 = vector.load %arg1[%arg3, %muli_0] : memref<3x3xf32>, vector<2xf32>
      %constant_9 = arith.constant 2 : index
      %addi_0 = arith.addi %muli_0, %constant_9 : index
      %load_1 = memref.load %arg1[%arg3, %addi_0] : memref<3x3xf32>
      %load_2 = memref.load %arg0[%muli_1, %arg3] : memref<2x3xf32>
      %broadcast_0 = vector.broadcast %load_2 : f32 to vector<2xf32>
      %fma_0 = vector.fma %broadcast_0, %load_0, %arg4 : vector<2xf32>
      %call_intrinsic_0 = llvm.call_intrinsic "llvm.fma.f32"(%load_2, %load_1, %arg5) : (f32, f32, f32) -> f32
      %constant_10 = arith.constant 1 : index
      %addi_1 = arith.addi %muli_1, %constant_10 : index
      %load_3 = memref.load %arg0[%addi_1, %arg3] : memref<2x3xf32>
      %broadcast_1 = vector.broadcast %load_3 : f32 to vector<2xf32>
      %fma_1 = vector.fma %broadcast_1, %load_0, %arg6 : vector<2xf32>
      %call_intrinsic_1 = llvm.call_intrinsic "llvm.fma.f32"(%load_3, %load_1, %arg7) : (f32, f32, f32) -> f32
      scf.yield %fma_0, %call_intrinsic_0, %fma_1, %call_intrinsic_1 : vector<2xf32>, f32, vector<2xf32>, f32
    }
    %constant_11 = arith.constant 0 : index
    %constant_12 = arith.constant 0 : index
    vector.store %for_0#0, %alloca_0[%constant_11, %constant_12] : memref<2x8xf32>, vector<2xf32>
    %constant_13 = arith.constant 0 : index
    %constant_14 = arith.constant 2 : index
    memref.store %for_0#1, %alloca_0[%constant_13, %constant_14] : memref<2x8xf32>
    %constant_15 = arith.constant 1 : index
    %constant_16 = arith.constant 0 : index
    vector.store %for_0#2, %alloca_0[%constant_15, %constant_16] : memref<2x8xf32>, vector<2xf32>
    %constant_17 = arith.constant 1 : index
    %constant_18 = arith.constant 2 : index
    memref.store %for_0#3, %alloca_0[%constant_17, %constant_18] : memref<2x8xf32>
    %constant_19 = arith.constant 0 : index
    %constant_20 = arith.constant 2 : index
    %constant_21 = arith.constant 1 : index
    scf.for %arg3 = %constant_19 to %constant_20 step %constant_21 {
      %addi_2 = arith.addi %muli_1, %arg3 : index
      %constant_22 = arith.constant 0 : index
      %load_4 = vector.load %alloca_0[%arg3, %constant_22] : memref<2x8xf32>, vector<2xf32>
      vector.store %load_4, %arg2[%addi_2, %muli_0] : memref<2x3xf32>, vector<2xf32>
      %addi_3 = arith.addi %muli_1, %arg3 : index
      %constant_23 = arith.constant 2 : index
      %addi_4 = arith.addi %muli_0, %constant_23 : index
      %constant_24 = arith.constant 2 : index
      %load_5 = memref.load %alloca_0[%arg3, %constant_24] : memref<2x8xf32>
      memref.store %load_5, %arg2[%addi_3, %addi_4] : memref<2x3xf32>
    }
    return
  }
  func.func private @rows_2x3(%arg0: memref<2x3xf32>, %arg1: memref<2x3xf32>) attributes {access = ["read", "write"], grid = array<i64: 1, 1, 1>, kernel = "rows", tied = [-1], work = {bytes = 48 : i64, context = 0 : i64, operations = 0 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %constant_0 = arith.constant 1 : index
    %constant_1 = arith.constant 3 : index
    %constant_2 = arith.constant 0 : index
    %constant_3 = arith.constant 1 : index
    %constant_4 = arith.constant 2 : index
    %constant_5 = arith.constant 4 : index
    %block_id_0 = gpu.block_id x
    %muli_0 = arith.muli %block_id_0, %constant_5 : index
    %addi_0 = arith.addi %muli_0, %constant_5 : index
    %minui_0 = arith.minui %addi_0, %constant_4 : index
    scf.for %arg2 = %muli_0 to %minui_0 step %constant_3 {
      scf.for %arg3 = %constant_2 to %constant_1 step %constant_3 {
        %subi_0 = arith.subi %constant_0, %arg2 : index
        %load_0 = memref.load %arg0[%subi_0, %arg3] : memref<2x3xf32>
        memref.store %load_0, %arg1[%arg2, %arg3] : memref<2x3xf32>
      }
    }
    return
  }
  func.func @y(%arg0: memref<24xi8>, %arg1: memref<36xi8>, %arg2: memref<24xi8>) attributes {arguments = ["input:x", "weight:w", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 2, 3>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<2x3xf32>, tensor<3x3xf32>, tensor<2x3xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<24xi8> to memref<2x3xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<36xi8> to memref<3x3xf32>
    %alloc_0 = memref.alloc() : memref<2x3xf32>
    call @contraction_2x3(%view_0, %view_1, %alloc_0) : (memref<2x3xf32>, memref<3x3xf32>, memref<2x3xf32>) -> ()
    %constant_2 = arith.constant 0 : index
    %view_2 = memref.view %arg2[%constant_2][] : memref<24xi8> to memref<2x3xf32>
    call @rows_2x3(%alloc_0, %view_2) : (memref<2x3xf32>, memref<2x3xf32>) -> ()
    return
  }
}
// ----- becomes
module {
  func.func private @contraction_2x3(%arg0: memref<2x3xf32>, %arg1: memref<3x3xf32>, %arg2: memref<2x3xf32>) attributes {access = ["read", "read", "write"], block = [1, 1, 1], grid = [1, 1, 1], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 2, 3, 3>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 2, 1>, rows = array<i64: 0>, sums = array<i64: 2>}, shared_bytes = 0 : i64, tied = [-1], work = {bytes = 84 : i64, context = 0 : i64, operations = 36 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %alloca_0 = memref.alloca() {alignment = 64 : i64} : memref<2x8xf32>
    %block_id_0 = gpu.block_id x
    %constant_0 = arith.constant 3 : index
    %muli_0 = arith.muli %block_id_0, %constant_0 : index
    %block_id_1 = gpu.block_id y
    %constant_1 = arith.constant 2 : index
    %muli_1 = arith.muli %block_id_1, %constant_1 : index
    %constant_2 = arith.constant dense<0.000000e+00> : vector<2xf32>
    %constant_3 = arith.constant 0.000000e+00 : f32
    %constant_4 = arith.constant dense<0.000000e+00> : vector<2xf32>
    %constant_5 = arith.constant 0.000000e+00 : f32
    %constant_6 = arith.constant 0 : index
    %constant_7 = arith.constant 3 : index
    %constant_8 = arith.constant 1 : index
    %for_0:4 = scf.for %arg3 = %constant_6 to %constant_7 step %constant_8 iter_args(%arg4 = %constant_2, %arg5 = %constant_3, %arg6 = %constant_4, %arg7 = %constant_5) -> (vector<2xf32>, f32, vector<2xf32>, f32) {
      %load_0 = vector.load %arg1[%arg3, %muli_0] : memref<3x3xf32>, vector<2xf32>
      %constant_9 = arith.constant 2 : index
      %addi_0 = arith.addi %muli_0, %constant_9 : index
      %load_1 = memref.load %arg1[%arg3, %addi_0] : memref<3x3xf32>
      %load_2 = memref.load %arg0[%muli_1, %arg3] : memref<2x3xf32>
      %broadcast_0 = vector.broadcast %load_2 : f32 to vector<2xf32>
      %fma_0 = vector.fma %broadcast_0, %load_0, %arg4 : vector<2xf32>
      %call_intrinsic_0 = llvm.call_intrinsic "llvm.fma.f32"(%load_2, %load_1, %arg5) : (f32, f32, f32) -> f32
      %constant_10 = arith.constant 1 : index
      %addi_1 = arith.addi %muli_1, %constant_10 : index
      %load_3 = memref.load %arg0[%addi_1, %arg3] : memref<2x3xf32>
      %broadcast_1 = vector.broadcast %load_3 : f32 to vector<2xf32>
      %fma_1 = vector.fma %broadcast_1, %load_0, %arg6 : vector<2xf32>
      %call_intrinsic_1 = llvm.call_intrinsic "llvm.fma.f32"(%load_3, %load_1, %arg7) : (f32, f32, f32) -> f32
      scf.yield %fma_0, %call_intrinsic_0, %fma_1, %call_intrinsic_1 : vector<2xf32>, f32, vector<2xf32>, f32
    }
    %constant_11 = arith.constant 0 : index
    %constant_12 = arith.constant 0 : index
    vector.store %for_0#0, %alloca_0[%constant_11, %constant_12] : memref<2x8xf32>, vector<2xf32>
    %constant_13 = arith.constant 0 : index
    %constant_14 = arith.constant 2 : index
    memref.store %for_0#1, %alloca_0[%constant_13, %constant_14] : memref<2x8xf32>
    %constant_15 = arith.constant 1 : index
    %constant_16 = arith.constant 0 : index
    vector.store %for_0#2, %alloca_0[%constant_15, %constant_16] : memref<2x8xf32>, vector<2xf32>
    %constant_17 = arith.constant 1 : index
    %constant_18 = arith.constant 2 : index
    memref.store %for_0#3, %alloca_0[%constant_17, %constant_18] : memref<2x8xf32>
    %constant_19 = arith.constant 0 : index
    %constant_20 = arith.constant 2 : index
    %constant_21 = arith.constant 1 : index
    scf.for %arg3 = %constant_19 to %constant_20 step %constant_21 {
      %addi_2 = arith.addi %muli_1, %arg3 : index
      %constant_22 = arith.constant 0 : index
      %load_4 = vector.load %alloca_0[%arg3, %constant_22] : memref<2x8xf32>, vector<2xf32>
      vector.store %load_4, %arg2[%addi_2, %muli_0] : memref<2x3xf32>, vector<2xf32>
      %addi_3 = arith.addi %muli_1, %arg3 : index
      %constant_23 = arith.constant 2 : index
      %addi_4 = arith.addi %muli_0, %constant_23 : index
      %constant_24 = arith.constant 2 : index
      %load_5 = memref.load %alloca_0[%arg3, %constant_24] : memref<2x8xf32>
      memref.store %load_5, %arg2[%addi_3, %addi_4] : memref<2x3xf32>
    }
    return
  }
  func.func private @rows_2x3(%arg0: memref<2x3xf32>, %arg1: memref<2x3xf32>) attributes {access = ["read", "write"], grid = array<i64: 1, 1, 1>, kernel = "rows", tied = [-1], work = {bytes = 48 : i64, context = 0 : i64, operations = 0 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %constant_0 = arith.constant 1 : index
    %constant_1 = arith.constant 3 : index
    %constant_2 = arith.constant 0 : index
    %constant_3 = arith.constant 1 : index
    %constant_4 = arith.constant 2 : index
    %constant_5 = arith.constant 4 : index
    %block_id_0 = gpu.block_id x
    %muli_0 = arith.muli %block_id_0, %constant_5 : index
    %addi_0 = arith.addi %muli_0, %constant_5 : index
    %minui_0 = arith.minui %addi_0, %constant_4 : index
    scf.for %arg2 = %muli_0 to %minui_0 step %constant_3 {
      scf.for %arg3 = %constant_2 to %constant_1 step %constant_3 {
        %subi_0 = arith.subi %constant_0, %arg2 : index
        %load_0 = memref.load %arg0[%subi_0, %arg3] : memref<2x3xf32>
        memref.store %load_0, %arg1[%arg2, %arg3] : memref<2x3xf32>
      }
    }
    return
  }
  func.func @y(%arg0: memref<24xi8>, %arg1: memref<36xi8>, %arg2: memref<24xi8>, %arg3: memref<256xi8>) attributes {arguments = ["input:x", "weight:w", "result:y", "arena:arena"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 2, 3>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<2x3xf32>, tensor<3x3xf32>, tensor<2x3xf32>, tensor<256xi8>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<24xi8> to memref<2x3xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<36xi8> to memref<3x3xf32>
    %constant_2 = arith.constant 0 : index
    %view_2 = memref.view %arg3[%constant_2][] : memref<256xi8> to memref<2x3xf32>
    call @contraction_2x3(%view_0, %view_1, %view_2) : (memref<2x3xf32>, memref<3x3xf32>, memref<2x3xf32>) -> ()
    %constant_3 = arith.constant 0 : index
    %view_3 = memref.view %arg2[%constant_3][] : memref<24xi8> to memref<2x3xf32>
    call @rows_2x3(%view_2, %view_3) : (memref<2x3xf32>, memref<2x3xf32>) -> ()
    return
  }
}
