// pass: schedule-gpu-attention
// target: rocm:gfx1151
// show: summary
module {
  func.func private @attention_1x1x1x8(%arg0: memref<1x2x1x16x8xf32>, %arg1: memref<1x8xf32>, %arg2: memref<1xi32>, %arg3: memref<1x8xf32>, %arg4: memref<1x8xf32>, %arg5: memref<1x1x1x8xf32>) attributes {access = ["read_write", "read", "read", "read", "read", "write"], attention = {bias = "none", cache = {each = 1 : i64}, depths = [8, 8], extents = [1, 1, 1, 16], mask = "causal", positions = "tensor", queries = [1], shared = [0, 2]}, kernel = "attention", tied = [0, -1], work = {bytes = 196 : i64, context = 16 : i64, operations = 0 : i64, position_bytes = 64 : i64, position_operations = 38 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict writable : memref<1x2x1x16x8xf32> to tensor<1x2x1x16x8xf32>
    %to_tensor_1 = bufferization.to_tensor %arg1 restrict : memref<1x8xf32> to tensor<1x8xf32>
    %to_tensor_2 = bufferization.to_tensor %arg2 restrict : memref<1xi32> to tensor<1xi32>
    %to_tensor_3 = bufferization.to_tensor %arg3 restrict : memref<1x8xf32> to tensor<1x8xf32>
    %to_tensor_4 = bufferization.to_tensor %arg4 restrict : memref<1x8xf32> to tensor<1x8xf32>
    %constant_0 = arith.constant 0 : index
    %constant_1 = arith.constant 1 : index
    %expand_shape_0 = tensor.expand_shape %to_tensor_1 [[0], [1, 2]] output_shape [1, 1, 8] : tensor<1x8xf32> into tensor<1x1x8xf32>
    %for_0 = scf.for %arg6 = %constant_0 to %constant_1 step %constant_1 iter_args(%arg7 = %to_tensor_0) -> (tensor<1x2x1x16x8xf32>) {
      %extract_slice_0 = tensor.extract_slice %expand_shape_0[%arg6, 0, 0] [1, 1, 8] [1, 1, 1] : tensor<1x1x8xf32> to tensor<1x8xf32>
      %divui_0 = arith.divui %arg6, %constant_1 : index
      %extract_0 = tensor.extract %to_tensor_2[%arg6] : tensor<1xi32>
      %index_cast_0 = arith.index_cast %extract_0 : i32 to index
      %insert_slice_0 = tensor.insert_slice %extract_slice_0 into %arg7[%divui_0, 0, 0, %index_cast_0, 0] [1, 1, 1, 1, 8] [1, 1, 1, 1, 1] : tensor<1x8xf32> into tensor<1x2x1x16x8xf32>
      scf.yield %insert_slice_0 : tensor<1x2x1x16x8xf32>
    } {role = "keys"}
    %expand_shape_1 = tensor.expand_shape %to_tensor_3 [[0], [1, 2]] output_shape [1, 1, 8] : tensor<1x8xf32> into tensor<1x1x8xf32>
    %for_1 = scf.for %arg6 = %constant_0 to %constant_1 step %constant_1 iter_args(%arg7 = %for_0) -> (tensor<1x2x1x16x8xf32>) {
      %extract_slice_1 = tensor.extract_slice %expand_shape_1[%arg6, 0, 0] [1, 1, 8] [1, 1, 1] : tensor<1x1x8xf32> to tensor<1x8xf32>
      %divui_1 = arith.divui %arg6, %constant_1 : index
      %extract_1 = tensor.extract %to_tensor_2[%arg6] : tensor<1xi32>
      %index_cast_1 = arith.index_cast %extract_1 : i32 to index
      %insert_slice_1 = tensor.insert_slice %extract_slice_1 into %arg7[%divui_1, 1, 0, %index_cast_1, 0] [1, 1, 1, 1, 8] [1, 1, 1, 1, 1] : tensor<1x8xf32> into tensor<1x2x1x16x8xf32>
      scf.yield %insert_slice_1 : tensor<1x2x1x16x8xf32>
    } {role = "values"}
    %expand_shape_2 = tensor.expand_shape %to_tensor_4 [[0], [1, 2]] output_shape [1, 1, 8] : tensor<1x8xf32> into tensor<1x1x8xf32>
    %expand_shape_3 = tensor.expand_shape %expand_shape_2 [[0], [1], [2, 3]] output_shape [1, 1, 1, 8] : tensor<1x1x8xf32> into tensor<1x1x1x8xf32>
    %extract_slice_2 = tensor.extract_slice %for_1[0, 0, 0, 0, 0] [1, 1, 1, 16, 8] [1, 1, 1, 1, 1] : tensor<1x2x1x16x8xf32> to tensor<1x1x16x8xf32>
    %constant_2 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<1x1x1x16xf32>
    %fill_0 = linalg.fill ins(%constant_2 : f32) outs(%empty_0 : tensor<1x1x1x16xf32>) -> tensor<1x1x1x16xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>] {role = "scores"} ins(%expand_shape_3, %extract_slice_2 : tensor<1x1x1x8xf32>, tensor<1x1x16x8xf32>) outs(%fill_0 : tensor<1x1x1x16xf32>) -> tensor<1x1x1x16xf32>
    %expand_shape_4 = tensor.expand_shape %to_tensor_2 [[0, 1]] output_shape [1, 1] : tensor<1xi32> into tensor<1x1xi32>
    %constant_3 = arith.constant 0.353553385 : f32
    %constant_4 = arith.constant 0xFF800000 : f32
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%contract_0, %expand_shape_4 : tensor<1x1x1x16xf32>, tensor<1x1xi32>) outs(%empty_0 : tensor<1x1x1x16xf32>) attrs =  {role = "weigh"} {
    ^bb0(%in: f32, %in_7: i32, %out: f32):
      %index_0 = linalg.index 3 : index
      %index_cast_2 = arith.index_cast %index_0 : index to i32
      %cmpi_0 = arith.cmpi sle, %index_cast_2, %in_7 : i32
      %mulf_0 = arith.mulf %in, %constant_3 : f32
      %select_0 = arith.select %cmpi_0, %mulf_0, %constant_4 : f32
      linalg.yield %select_0 : f32
    } -> tensor<1x1x1x16xf32>
    %softmax_0 = linalg.softmax {role = "softmax"} dimension(3) ins(%generic_0 : tensor<1x1x1x16xf32>) outs(%empty_0 : tensor<1x1x1x16xf32>) -> tensor<1x1x1x16xf32>
    %extract_slice_3 = tensor.extract_slice %for_1[0, 1, 0, 0, 0] [1, 1, 1, 16, 8] [1, 1, 1, 1, 1] : tensor<1x2x1x16x8xf32> to tensor<1x1x16x8xf32>
    %empty_1 = tensor.empty() : tensor<1x1x1x8xf32>
    %fill_1 = linalg.fill ins(%constant_2 : f32) outs(%empty_1 : tensor<1x1x1x8xf32>) -> tensor<1x1x1x8xf32>
    %contract_1 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d4, d3)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>] {role = "weighted"} ins(%softmax_0, %extract_slice_3 : tensor<1x1x1x16xf32>, tensor<1x1x16x8xf32>) outs(%fill_1 : tensor<1x1x1x8xf32>) -> tensor<1x1x1x8xf32>
    bufferization.materialize_in_destination %for_1 in restrict writable %arg0 : (tensor<1x2x1x16x8xf32>, memref<1x2x1x16x8xf32>) -> ()
    bufferization.materialize_in_destination %contract_1 in restrict writable %arg5 : (tensor<1x1x1x8xf32>, memref<1x1x1x8xf32>) -> ()
    return
  }
  func.func private @rows_1x8(%arg0: memref<1x1x1x8xf32>, %arg1: memref<1x8xf32>) attributes {access = ["read", "write"], block = [32, 1, 1], grid = [1, 1, 1], kernel = "rows", shared_bytes = 0 : i64, tied = [-1], work = {bytes = 64 : i64, context = 0 : i64, operations = 0 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %thread_id_0 = gpu.thread_id x
    %block_id_0 = gpu.block_id x
    %constant_0 = arith.constant 4 : index
    %muli_0 = arith.muli %thread_id_0, %constant_0 : index
    %constant_1 = arith.constant 8 : index
    %cmpi_0 = arith.cmpi ult, %muli_0, %constant_1 : index
    %constant_2 = arith.constant 0 : index
    %select_0 = arith.select %cmpi_0, %muli_0, %constant_2 : index
    %constant_3 = arith.constant 8 : index
    %divui_0 = arith.divui %select_0, %constant_3 : index
    %constant_4 = arith.constant 0 : index
    %constant_5 = arith.constant 0 : index
    %constant_6 = arith.constant 0 : index
    %load_0 = vector.load %arg0[%constant_4, %constant_5, %constant_6, %select_0] {alignment = 16 : i64} : memref<1x1x1x8xf32>, vector<4xf32>
    scf.if %cmpi_0 {
      %constant_7 = arith.constant 0 : index
      vector.store %load_0, %arg1[%constant_7, %select_0] {alignment = 16 : i64} : memref<1x8xf32>, vector<4xf32>
    }
    return
  }
  func.func @y_batch1_positions1(%arg0: memref<4xi8>, %arg1: memref<4xi8>, %arg2: memref<32xi8>, %arg3: memref<32xi8>, %arg4: memref<32xi8>, %arg5: memref<1024xi8>, %arg6: memref<32xi8>) attributes {arguments = ["input:tokens", "input:positions", "weight:q", "weight:k", "weight:v", "state:kv", "result:y"], entry = "y", extents = array<i64: 1, 1>, inputs = {positions = array<i64: 1, 1>, tokens = array<i64: 1, 1>}, repeatable, results = ["result:y", "state:kv"], sizes = ["batch", "positions"], types = [tensor<1xi32>, tensor<1xi32>, tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x1x2x1x16x8xf32>, tensor<1x8xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg5[%constant_0][] : memref<1024xi8> to memref<1x2x1x16x8xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg3[%constant_1][] : memref<32xi8> to memref<1x8xf32>
    %constant_2 = arith.constant 0 : index
    %view_2 = memref.view %arg1[%constant_2][] : memref<4xi8> to memref<1xi32>
    %constant_3 = arith.constant 0 : index
    %view_3 = memref.view %arg4[%constant_3][] : memref<32xi8> to memref<1x8xf32>
    %constant_4 = arith.constant 0 : index
    %view_4 = memref.view %arg2[%constant_4][] : memref<32xi8> to memref<1x8xf32>
    %alloc_0 = memref.alloc() : memref<1x1x1x8xf32>
    call @attention_1x1x1x8(%view_0, %view_1, %view_2, %view_3, %view_4, %alloc_0) : (memref<1x2x1x16x8xf32>, memref<1x8xf32>, memref<1xi32>, memref<1x8xf32>, memref<1x8xf32>, memref<1x1x1x8xf32>) -> ()
    %constant_5 = arith.constant 0 : index
    %view_5 = memref.view %arg6[%constant_5][] : memref<32xi8> to memref<1x8xf32>
    call @rows_1x8(%alloc_0, %view_5) : (memref<1x1x1x8xf32>, memref<1x8xf32>) -> ()
    return
  }
}
// ----- becomes
func.func "attention_1x1x1x8"
  access = ["read_write", "read", "read", "read", "read", "write"]
  attention = {bias = "none", cache = {each = 1 : i64}, depths = [8, 8], extents = [1, 1, 1, 16], mask = "causal", positions = "tensor", queries = [1], shared = [0, 2]}
  block = [256, 1, 1]
  function_type = (memref<1x2x1x16x8xf32>, memref<1x8xf32>, memref<1xi32>, memref<1x8xf32>, memref<1x8xf32>, memref<1x1x1x8xf32>) -> ()
  grid = [1, 1, 1]
  kernel = "attention"
  shared_bytes = 0 : i64
  sym_visibility = "private"
  tied = [0, -1]
  work = {bytes = 196 : i64, context = 16 : i64, operations = 0 : i64, position_bytes = 64 : i64, position_operations = 38 : i64}
  39 arith.addf
  12 arith.addi
  22 arith.cmpi
  238 arith.constant
  5 arith.constant vector<4xf32>
  1 arith.divf
  7 arith.divui
  8 arith.index_cast
  50 arith.mulf
  11 arith.mulf vector<4xf32>
  3 arith.muli
  3 arith.remui
  18 arith.select
  4 arith.select vector<4xf32>
  23 arith.subf
  1 arith.subi
  1 builtin.unrealized_conversion_cast
  1 func.return
  1 gpu.barrier
  1 gpu.block_id
  29 gpu.shuffle
  1 gpu.thread_id
  43 llvm.call_intrinsic
  2 memref.alloca
  25 memref.load
  3 memref.store
  1 scf.for vector<4xf32>
  4 scf.if
  4 scf.yield
  1 scf.yield vector<4xf32>
  15 vector.broadcast vector<4xf32>
  36 vector.extract vector<4xf32>
  9 vector.fma vector<4xf32>
  4 vector.from_elements vector<4xf32>
  19 vector.load vector<4xf32>
  3 vector.store vector<4xf32>
func.func "rows_1x8"
  access = ["read", "write"]
  block = [32, 1, 1]
  function_type = (memref<1x1x1x8xf32>, memref<1x8xf32>) -> ()
  grid = [1, 1, 1]
  kernel = "rows"
  shared_bytes = 0 : i64
  sym_visibility = "private"
  tied = [-1]
  work = {bytes = 64 : i64, context = 0 : i64, operations = 0 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}
  1 arith.cmpi
  8 arith.constant
  1 arith.divui
  1 arith.muli
  1 arith.select
  1 func.return
  1 gpu.block_id
  1 gpu.thread_id
  1 scf.if
  1 scf.yield
  1 vector.load vector<4xf32>
  1 vector.store vector<4xf32>
func.func "y_batch1_positions1"
  arguments = ["input:tokens", "input:positions", "weight:q", "weight:k", "weight:v", "state:kv", "result:y"]
  entry = "y"
  extents = array<i64: 1, 1>
  function_type = (memref<4xi8>, memref<4xi8>, memref<32xi8>, memref<32xi8>, memref<32xi8>, memref<1024xi8>, memref<32xi8>) -> ()
  inputs = {positions = array<i64: 1, 1>, tokens = array<i64: 1, 1>}
  repeatable = unit
  results = ["result:y", "state:kv"]
  sizes = ["batch", "positions"]
  types = [tensor<1xi32>, tensor<1xi32>, tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x1x2x1x16x8xf32>, tensor<1x8xf32>]
  6 arith.constant
  2 func.call
  1 func.return
  1 memref.alloc
  6 memref.view
