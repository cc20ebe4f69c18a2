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
  func.func private @rows_2x8(%arg0: memref<2x8xf32>, %arg1: memref<2x8xf32>) attributes {access = ["read", "write"], block = [1, 1, 1], grid = [1, 1, 1], kernel = "rows", shared_bytes = 0 : i64, tied = [-1], work = {bytes = 128 : i64, context = 0 : i64, operations = 96 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %block_id_0 = gpu.block_id x
    %constant_0 = arith.constant 4 : index
    %muli_0 = arith.muli %block_id_0, %constant_0 : index
    %constant_1 = arith.constant 4 : index
    %addi_0 = arith.addi %muli_0, %constant_1 : index
    %constant_2 = arith.constant 2 : index
    %minui_0 = arith.minui %addi_0, %constant_2 : index
    %constant_3 = arith.constant 1 : index
    scf.for %arg2 = %muli_0 to %minui_0 step %constant_3 {
      %constant_4 = arith.constant 0xFF800000 : f32
      %constant_5 = arith.constant 0.000000e+00 : f32
      %constant_6 = arith.constant dense<0xFF800000> : vector<8xf32>
      %constant_7 = arith.constant 0 : index
      %constant_8 = arith.constant 8 : index
      %constant_9 = arith.constant 8 : index
      %for_0 = scf.for %arg3 = %constant_7 to %constant_8 step %constant_9 iter_args(%arg4 = %constant_6) -> (vector<8xf32>) {
        %load_0 = vector.load %arg0[%arg2, %arg3] : memref<2x8xf32>, vector<8xf32>
        %constant_10 = arith.constant 1.000000e+00 : f32
        %broadcast_0 = vector.broadcast %constant_10 : f32 to vector<8xf32>
        %addf_0 = arith.addf %load_0, %broadcast_0 : vector<8xf32>
        %maximumf_0 = arith.maximumf %arg4, %addf_0 : vector<8xf32>
        scf.yield %maximumf_0 : vector<8xf32>
      }
      %reduction_0 = vector.reduction <maximumf>, %for_0 : vector<8xf32> into f32
      %constant_11 = arith.constant dense<0.000000e+00> : vector<8xf32>
      %constant_12 = arith.constant 0 : index
      %constant_13 = arith.constant 8 : index
      %constant_14 = arith.constant 8 : index
      %for_1 = scf.for %arg3 = %constant_12 to %constant_13 step %constant_14 iter_args(%arg4 = %constant_11) -> (vector<8xf32>) {
        %load_1 = vector.load %arg0[%arg2, %arg3] : memref<2x8xf32>, vector<8xf32>
        %constant_15 = arith.constant 1.000000e+00 : f32
        %broadcast_1 = vector.broadcast %constant_15 : f32 to vector<8xf32>
        %addf_1 = arith.addf %load_1, %broadcast_1 : vector<8xf32>
        %broadcast_2 = vector.broadcast %reduction_0 : f32 to vector<8xf32>
        %subf_0 = arith.subf %addf_1, %broadcast_2 : vector<8xf32>
        %exp_0 = math.exp %subf_0 : vector<8xf32>
        %addf_2 = arith.addf %arg4, %exp_0 : vector<8xf32>
        scf.yield %addf_2 : vector<8xf32>
      }
      %reduction_1 = vector.reduction <add>, %for_1 fastmath<reassoc> : vector<8xf32> into f32
      %constant_16 = arith.constant 1.000000e+00 : f32
      %divf_0 = arith.divf %constant_16, %reduction_1 : f32
      %from_elements_0 = vector.from_elements %reduction_0, %divf_0 : vector<2xf32>
      %constant_17 = arith.constant 0 : index
      %constant_18 = arith.constant 8 : index
      %constant_19 = arith.constant 8 : index
      scf.for %arg3 = %constant_17 to %constant_18 step %constant_19 {
        %extract_0 = vector.extract %from_elements_0[0] : f32 from vector<2xf32>
        %load_2 = vector.load %arg0[%arg2, %arg3] : memref<2x8xf32>, vector<8xf32>
        %constant_20 = arith.constant 1.000000e+00 : f32
        %broadcast_3 = vector.broadcast %constant_20 : f32 to vector<8xf32>
        %addf_3 = arith.addf %load_2, %broadcast_3 : vector<8xf32>
        %broadcast_4 = vector.broadcast %extract_0 : f32 to vector<8xf32>
        %subf_1 = arith.subf %addf_3, %broadcast_4 : vector<8xf32>
        %exp_1 = math.exp %subf_1 : vector<8xf32>
        %extract_1 = vector.extract %from_elements_0[1] : f32 from vector<2xf32>
        %broadcast_5 = vector.broadcast %extract_1 : f32 to vector<8xf32>
        %mulf_0 = arith.mulf %exp_1, %broadcast_5 : vector<8xf32>
        vector.store %mulf_0, %arg1[%arg2, %arg3] : memref<2x8xf32>, vector<8xf32>
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
