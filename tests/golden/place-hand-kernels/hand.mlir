// pass: place-hand-kernels
// target: cpu:x86-64-v3
// show: text
module {
  func.func private @double(%arg0: tensor<8xf32>) -> tensor<8xf32> attributes {hand, in_place = array<i64: -1>} {
    %to_buffer_0 = bufferization.to_buffer %arg0 : tensor<8xf32> to memref<8xf32>
    %alloc_0 = memref.alloc() : memref<8xf32>
    %constant_0 = arith.constant 1 : index
    %constant_1 = arith.constant 8 : index
    gpu.launch blocks(%arg1, %arg2, %arg3) in (%arg7 = %constant_0, %arg8 = %constant_0, %arg9 = %constant_0) threads(%arg4, %arg5, %arg6) in (%arg10 = %constant_1, %arg11 = %constant_0, %arg12 = %constant_0) {
      %load_0 = memref.load %to_buffer_0[%arg4] : memref<8xf32>
      %constant_2 = arith.constant 2.000000e+00 : f32
      %mulf_0 = arith.mulf %constant_2, %load_0 : f32
      memref.store %mulf_0, %alloc_0[%arg4] : memref<8xf32>
      gpu.terminator
    }
    %to_tensor_0 = bufferization.to_tensor %alloc_0 restrict : memref<8xf32> to tensor<8xf32>
    return %to_tensor_0 : tensor<8xf32>
  }
  func.func private @generic_8(%arg0: memref<8xf32>, %arg1: memref<8xf32>) attributes {access = ["read", "write"], kernel = "generic", tied = [-1], work = {bytes = 64 : i64, context = 0 : i64, operations = 0 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<8xf32> to tensor<8xf32>
    %call_0 = call @double(%to_tensor_0) : (tensor<8xf32>) -> tensor<8xf32>
    bufferization.materialize_in_destination %call_0 in restrict writable %arg1 : (tensor<8xf32>, memref<8xf32>) -> ()
    return
  }
  func.func @y(%arg0: memref<32xi8>, %arg1: memref<32xi8>) attributes {arguments = ["input:x", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 8>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<8xf32>, tensor<8xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<32xi8> to memref<8xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<32xi8> to memref<8xf32>
    call @generic_8(%view_0, %view_1) : (memref<8xf32>, memref<8xf32>) -> ()
    return
  }
}
// ----- becomes
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
  func.func @y(%arg0: memref<32xi8>, %arg1: memref<32xi8>) attributes {arguments = ["input:x", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 8>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<8xf32>, tensor<8xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<32xi8> to memref<8xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<32xi8> to memref<8xf32>
    call @double(%view_0, %view_1) : (memref<8xf32>, memref<8xf32>) -> ()
    return
  }
}
