// pass: schedule-generic
// target: cpu:x86-64-v3
// show: text
module {
  func.func private @generic_2(%arg0: memref<2x3xf32>, %arg1: memref<2xf32>) attributes {access = ["read", "write"], kernel = "generic", tied = [-1], work = {bytes = 32 : i64, context = 0 : i64, operations = 12 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<2x3xf32> to tensor<2x3xf32>
    %constant_0 = arith.constant 1.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<2xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<2xf32>) -> tensor<2xf32>
    %constant_1 = arith.constant 5.000000e-01 : f32
    %reduce_0 = linalg.reduce ins(%to_tensor_0 : tensor<2x3xf32>) outs(%fill_0 : tensor<2xf32>) dimensions = [1] 
      (%in: f32, %init: f32) {
        %mulf_0 = arith.mulf %init, %constant_1 : f32
        %addf_0 = arith.addf %mulf_0, %in : f32
        linalg.yield %addf_0 : f32
      }
    bufferization.materialize_in_destination %reduce_0 in restrict writable %arg1 : (tensor<2xf32>, memref<2xf32>) -> ()
    return
  }
  func.func @y(%arg0: memref<24xi8>, %arg1: memref<8xi8>) attributes {arguments = ["input:x", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 2, 3>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<2x3xf32>, tensor<2xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<24xi8> to memref<2x3xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<8xi8> to memref<2xf32>
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
  func.func @y(%arg0: memref<24xi8>, %arg1: memref<8xi8>) attributes {arguments = ["input:x", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 2, 3>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<2x3xf32>, tensor<2xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<24xi8> to memref<2x3xf32>
    %view_1 = memref.view %arg1[%constant_0][] : memref<8xi8> to memref<2xf32>
    call @generic_2(%view_0, %view_1) : (memref<2x3xf32>, memref<2xf32>) -> ()
    return
  }
}
