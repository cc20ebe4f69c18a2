// pass: run-in-order
// target: cpu:x86-64-v3
// show: text
module {
  func.func private @generic_3(%arg0: memref<1xi32>, %arg1: memref<3xf32>, %arg2: memref<3xf32>) attributes {access = ["read", "read", "write"], kernel = "generic", refused = ["a loop reads what it made in earlier rounds at another place"], tied = [-1], work = {bytes = 28 : i64, context = 0 : i64, operations = 6 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %constant_0 = arith.constant 0.000000e+00 : f32
    %constant_1 = arith.constant 1 : index
    %constant_2 = arith.constant 0 : index
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<1xi32> to tensor<1xi32>
    %to_tensor_1 = bufferization.to_tensor %arg1 restrict : memref<3xf32> to tensor<3xf32>
    %extract_0 = tensor.extract %to_tensor_0[%constant_2] : tensor<1xi32>
    %index_cast_0 = arith.index_cast %extract_0 : i32 to index
    %for_0 = scf.for %arg3 = %constant_2 to %index_cast_0 step %constant_1 iter_args(%arg4 = %to_tensor_1) -> (tensor<3xf32>) {
      %empty_0 = tensor.empty() : tensor<f32>
      %generic_0 = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []} ins(%constant_0 : f32) outs(%empty_0 : tensor<f32>) {
      ^bb0(%in: f32, %out: f32):
        linalg.yield %in : f32
      } -> tensor<f32>
      %generic_1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>], iterator_types = ["reduction"]} ins(%arg4 : tensor<3xf32>) outs(%generic_0 : tensor<f32>) {
      ^bb0(%in: f32, %out: f32):
        %addf_0 = arith.addf %out, %in : f32
        linalg.yield %addf_0 : f32
      } -> tensor<f32>
      %empty_1 = tensor.empty() : tensor<3xf32>
      %generic_2 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%arg4, %generic_1 : tensor<3xf32>, tensor<f32>) outs(%empty_1 : tensor<3xf32>) {
      ^bb0(%in: f32, %in_0: f32, %out: f32):
        %addf_1 = arith.addf %in, %in_0 : f32
        linalg.yield %addf_1 : f32
      } -> tensor<3xf32>
      scf.yield %generic_2 : tensor<3xf32>
    }
    bufferization.materialize_in_destination %for_0 in restrict writable %arg2 : (tensor<3xf32>, memref<3xf32>) -> ()
    return
  }
  func.func @y(%arg0: memref<12xi8>, %arg1: memref<4xi8>, %arg2: memref<12xi8>) attributes {arguments = ["input:x", "input:n", "result:y"], entry = "y", extents = array<i64>, inputs = {n = array<i64: 1>, x = array<i64: 3>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<3xf32>, tensor<1xi32>, tensor<3xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg1[%constant_0][] : memref<4xi8> to memref<1xi32>
    %view_1 = memref.view %arg0[%constant_0][] : memref<12xi8> to memref<3xf32>
    %view_2 = memref.view %arg2[%constant_0][] : memref<12xi8> to memref<3xf32>
    call @generic_3(%view_0, %view_1, %view_2) : (memref<1xi32>, memref<3xf32>, memref<3xf32>) -> ()
    return
  }
}
// ----- becomes
module {
  func.func private @generic_3(%arg0: memref<1xi32>, %arg1: memref<3xf32>, %arg2: memref<3xf32>, %arg3: memref<3xf32>, %arg4: memref<f32>) attributes {access = ["read", "read", "write", "scratch", "scratch"], block = [1, 1, 1], grid = [1, 1, 1], kernel = "generic", refused = ["a loop reads what it made in earlier rounds at another place"], schedule = "in order", shared_bytes = 0 : i64, tied = [-1], work = {bytes = 28 : i64, context = 0 : i64, operations = 6 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %constant_0 = arith.constant 3 : index
    %constant_1 = arith.constant 0.000000e+00 : f32
    %constant_2 = arith.constant 1 : index
    %constant_3 = arith.constant 0 : index
    %load_0 = memref.load %arg0[%constant_3] : memref<1xi32>
    %index_cast_0 = arith.index_cast %load_0 : i32 to index
    scf.for %arg5 = %constant_3 to %constant_0 step %constant_2 {
      %load_1 = memref.load %arg1[%arg5] : memref<3xf32>
      memref.store %load_1, %arg3[%arg5] : memref<3xf32>
    }
    scf.for %arg5 = %constant_3 to %index_cast_0 step %constant_2 {
      memref.store %constant_1, %arg4[] : memref<f32>
      scf.for %arg6 = %constant_3 to %constant_0 step %constant_2 {
        %load_2 = memref.load %arg3[%arg6] : memref<3xf32>
        %load_3 = memref.load %arg4[] : memref<f32>
        %addf_0 = arith.addf %load_3, %load_2 : f32
        memref.store %addf_0, %arg4[] : memref<f32>
      }
      scf.for %arg6 = %constant_3 to %constant_0 step %constant_2 {
        %load_4 = memref.load %arg3[%arg6] : memref<3xf32>
        %load_5 = memref.load %arg4[] : memref<f32>
        %addf_1 = arith.addf %load_4, %load_5 : f32
        memref.store %addf_1, %arg3[%arg6] : memref<3xf32>
      }
    }
    scf.for %arg5 = %constant_3 to %constant_0 step %constant_2 {
      %load_6 = memref.load %arg3[%arg5] : memref<3xf32>
      memref.store %load_6, %arg2[%arg5] : memref<3xf32>
    }
    return
  }
  func.func @y(%arg0: memref<12xi8>, %arg1: memref<4xi8>, %arg2: memref<12xi8>) attributes {arguments = ["input:x", "input:n", "result:y"], entry = "y", extents = array<i64>, inputs = {n = array<i64: 1>, x = array<i64: 3>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<3xf32>, tensor<1xi32>, tensor<3xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg1[%constant_0][] : memref<4xi8> to memref<1xi32>
    %view_1 = memref.view %arg0[%constant_0][] : memref<12xi8> to memref<3xf32>
    %view_2 = memref.view %arg2[%constant_0][] : memref<12xi8> to memref<3xf32>
    %alloc_0 = memref.alloc() : memref<3xf32>
    %alloc_1 = memref.alloc() : memref<f32>
    call @generic_3(%view_0, %view_1, %view_2, %alloc_0, %alloc_1) : (memref<1xi32>, memref<3xf32>, memref<3xf32>, memref<3xf32>, memref<f32>) -> ()
    return
  }
}
