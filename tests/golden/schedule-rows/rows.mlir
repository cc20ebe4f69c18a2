// pass: schedule-rows{rows-per-block=4}
// target: cpu:x86-64-v3
// show: text
module {
  func.func private @rows_2x8(%arg0: memref<2x8xf32>, %arg1: memref<2x8xf32>) attributes {access = ["read", "write"], kernel = "rows", tied = [-1], work = {bytes = 128 : i64, context = 0 : i64, operations = 96 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<2x8xf32> to tensor<2x8xf32>
    %empty_0 = tensor.empty() : tensor<2x8xf32>
    %constant_0 = arith.constant 1.000000e+00 : f32
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%to_tensor_0 : tensor<2x8xf32>) outs(%empty_0 : tensor<2x8xf32>) {
    ^bb0(%in: f32, %out: f32):
      %addf_0 = arith.addf %in, %constant_0 : f32
      linalg.yield %addf_0 : f32
    } -> tensor<2x8xf32>
    %softmax_0 = linalg.softmax dimension(1) ins(%generic_0 : tensor<2x8xf32>) outs(%empty_0 : tensor<2x8xf32>) -> tensor<2x8xf32>
    bufferization.materialize_in_destination %softmax_0 in restrict writable %arg1 : (tensor<2x8xf32>, memref<2x8xf32>) -> ()
    return
  }
  func.func @y(%arg0: memref<64xi8>, %arg1: memref<64xi8>) attributes {arguments = ["input:x", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 2, 8>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<2x8xf32>, tensor<2x8xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<64xi8> to memref<2x8xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<64xi8> to memref<2x8xf32>
    call @rows_2x8(%view_0, %view_1) : (memref<2x8xf32>, memref<2x8xf32>) -> ()
    return
  }
}
// ----- becomes
module {
  func.func private @rows_2x8(%arg0: memref<2x8xf32>, %arg1: memref<2x8xf32>) attributes {access = ["read", "write"], grid = array<i64: 1, 1, 1>, kernel = "rows", tied = [-1], work = {bytes = 128 : i64, context = 0 : i64, operations = 96 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %constant_0 = arith.constant dense<0.000000e+00> : vector<8xf32>
    %constant_1 = arith.constant 1.000000e+00 : f32
    %constant_2 = arith.constant 8 : index
    %constant_3 = arith.constant 0 : index
    %constant_4 = arith.constant dense<0xFF800000> : vector<8xf32>
    %constant_5 = arith.constant 1 : index
    %constant_6 = arith.constant 2 : index
    %constant_7 = arith.constant 4 : index
    %block_id_0 = gpu.block_id x
    %muli_0 = arith.muli %block_id_0, %constant_7 : index
    %addi_0 = arith.addi %muli_0, %constant_7 : index
    %minui_0 = arith.minui %addi_0, %constant_6 : index
    scf.for %arg2 = %muli_0 to %minui_0 step %constant_5 {
      %for_0 = scf.for %arg3 = %constant_3 to %constant_2 step %constant_2 iter_args(%arg4 = %constant_4) -> (vector<8xf32>) {
        %load_0 = vector.load %arg0[%arg2, %arg3] : memref<2x8xf32>, vector<8xf32>
        %broadcast_0 = vector.broadcast %constant_1 : f32 to vector<8xf32>
        %addf_0 = arith.addf %load_0, %broadcast_0 : vector<8xf32>
        %maximumf_0 = arith.maximumf %arg4, %addf_0 : vector<8xf32>
        scf.yield %maximumf_0 : vector<8xf32>
      }
      %reduction_0 = vector.reduction <maximumf>, %for_0 : vector<8xf32> into f32
      %for_1 = scf.for %arg3 = %constant_3 to %constant_2 step %constant_2 iter_args(%arg4 = %constant_0) -> (vector<8xf32>) {
        %load_1 = vector.load %arg0[%arg2, %arg3] : memref<2x8xf32>, vector<8xf32>
        %broadcast_1 = vector.broadcast %constant_1 : f32 to vector<8xf32>
        %addf_1 = arith.addf %load_1, %broadcast_1 : vector<8xf32>
        %broadcast_2 = vector.broadcast %reduction_0 : f32 to vector<8xf32>
        %subf_0 = arith.subf %addf_1, %broadcast_2 : vector<8xf32>
        %exp_0 = math.exp %subf_0 : vector<8xf32>
        %addf_2 = arith.addf %arg4, %exp_0 : vector<8xf32>
        scf.yield %addf_2 : vector<8xf32>
      }
      %reduction_1 = vector.reduction <add>, %for_1 fastmath<reassoc> : vector<8xf32> into f32
      scf.for %arg3 = %constant_3 to %constant_2 step %constant_2 {
        %load_2 = vector.load %arg0[%arg2, %arg3] : memref<2x8xf32>, vector<8xf32>
        %broadcast_3 = vector.broadcast %constant_1 : f32 to vector<8xf32>
        %addf_3 = arith.addf %load_2, %broadcast_3 : vector<8xf32>
        %broadcast_4 = vector.broadcast %reduction_0 : f32 to vector<8xf32>
        %subf_1 = arith.subf %addf_3, %broadcast_4 : vector<8xf32>
        %exp_1 = math.exp %subf_1 : vector<8xf32>
        %broadcast_5 = vector.broadcast %reduction_1 : f32 to vector<8xf32>
        %divf_0 = arith.divf %exp_1, %broadcast_5 : vector<8xf32>
        vector.store %divf_0, %arg1[%arg2, %arg3] : memref<2x8xf32>, vector<8xf32>
      }
    }
    return
  }
  func.func @y(%arg0: memref<64xi8>, %arg1: memref<64xi8>) attributes {arguments = ["input:x", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 2, 8>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<2x8xf32>, tensor<2x8xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<64xi8> to memref<2x8xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<64xi8> to memref<2x8xf32>
    call @rows_2x8(%view_0, %view_1) : (memref<2x8xf32>, memref<2x8xf32>) -> ()
    return
  }
}
