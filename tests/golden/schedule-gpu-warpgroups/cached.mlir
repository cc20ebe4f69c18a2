// pass: schedule-gpu-warpgroups
// target: cuda:sm_90a
// show: summary
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d1, d2)>
#map2 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map3 = affine_map<(d0, d1) -> (d0, d1)>
#map4 = affine_map<(d0, d1) -> (d1)>
#map5 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>
#map6 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d3, d4)>
#map7 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>
#map8 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map9 = affine_map<(d0, d1, d2, d3) -> (d0, d1)>
#map10 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d4, d3)>
module {
  func.func private @contraction_32x48(%arg0: memref<32x64xf32>, %arg1: memref<48x64xbf16>, %arg2: memref<48xf32>, %arg3: memref<1x2x1x48x16xf32>, %arg4: memref<32xi32>, %arg5: memref<32x48xf32>) attributes {access = ["read", "read", "read", "read_write", "read", "write"], cached_only, kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 32, 48, 64>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, refused = ["a result has another shape than the product"], tied = [-1, 3], work = {bytes = 20800 : i64, context = 0 : i64, operations = 198144 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %0 = bufferization.to_tensor %arg0 restrict : memref<32x64xf32> to tensor<32x64xf32>
    %1 = bufferization.to_tensor %arg1 restrict : memref<48x64xbf16> to tensor<48x64xbf16>
    %2 = bufferization.to_tensor %arg2 restrict : memref<48xf32> to tensor<48xf32>
    %3 = bufferization.to_tensor %arg3 restrict writable : memref<1x2x1x48x16xf32> to tensor<1x2x1x48x16xf32>
    %4 = bufferization.to_tensor %arg4 restrict : memref<32xi32> to tensor<32xi32>
    %cst = arith.constant 0.000000e+00 : f32
    %5 = tensor.empty() : tensor<32x48xf32>
    %6 = linalg.fill ins(%cst : f32) outs(%5 : tensor<32x48xf32>) -> tensor<32x48xf32>
    %7 = linalg.contract indexing_maps = [#map, #map1, #map2] ins(%0, %1 : tensor<32x64xf32>, tensor<48x64xbf16>) outs(%6 : tensor<32x48xf32>) -> tensor<32x48xf32>
    %8 = linalg.generic {indexing_maps = [#map3, #map4, #map3], iterator_types = ["parallel", "parallel"]} ins(%7, %2 : tensor<32x48xf32>, tensor<48xf32>) outs(%5 : tensor<32x48xf32>) {
    ^bb0(%in: f32, %in_2: f32, %out: f32):
      %11 = arith.addf %in, %in_2 : f32
      linalg.yield %11 : f32
    } -> tensor<32x48xf32>
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c1 = arith.constant 1 : index
    %extracted_slice = tensor.extract_slice %8[0, 16] [32, 16] [1, 1] : tensor<32x48xf32> to tensor<32x16xf32>
    %expanded = tensor.expand_shape %extracted_slice [[0], [1, 2]] output_shape [32, 1, 16] : tensor<32x16xf32> into tensor<32x1x16xf32>
    %9 = scf.for %arg6 = %c0 to %c32 step %c1 iter_args(%arg7 = %3) -> (tensor<1x2x1x48x16xf32>) {
      %extracted_slice_2 = tensor.extract_slice %expanded[%arg6, 0, 0] [1, 1, 16] [1, 1, 1] : tensor<32x1x16xf32> to tensor<1x16xf32>
      %11 = arith.divui %arg6, %c32 : index
      %extracted = tensor.extract %4[%arg6] : tensor<32xi32>
      %12 = arith.index_cast %extracted : i32 to index
      %inserted_slice = tensor.insert_slice %extracted_slice_2 into %arg7[%11, 0, 0, %12, 0] [1, 1, 1, 1, 16] [1, 1, 1, 1, 1] : tensor<1x16xf32> into tensor<1x2x1x48x16xf32>
      scf.yield %inserted_slice : tensor<1x2x1x48x16xf32>
    }
    %extracted_slice_0 = tensor.extract_slice %8[0, 32] [32, 16] [1, 1] : tensor<32x48xf32> to tensor<32x16xf32>
    %expanded_1 = tensor.expand_shape %extracted_slice_0 [[0], [1, 2]] output_shape [32, 1, 16] : tensor<32x16xf32> into tensor<32x1x16xf32>
    %10 = scf.for %arg6 = %c0 to %c32 step %c1 iter_args(%arg7 = %9) -> (tensor<1x2x1x48x16xf32>) {
      %extracted_slice_2 = tensor.extract_slice %expanded_1[%arg6, 0, 0] [1, 1, 16] [1, 1, 1] : tensor<32x1x16xf32> to tensor<1x16xf32>
      %11 = arith.divui %arg6, %c32 : index
      %extracted = tensor.extract %4[%arg6] : tensor<32xi32>
      %12 = arith.index_cast %extracted : i32 to index
      %inserted_slice = tensor.insert_slice %extracted_slice_2 into %arg7[%11, 1, 0, %12, 0] [1, 1, 1, 1, 16] [1, 1, 1, 1, 1] : tensor<1x16xf32> into tensor<1x2x1x48x16xf32>
      scf.yield %inserted_slice : tensor<1x2x1x48x16xf32>
    }
    bufferization.materialize_in_destination %8 in restrict writable %arg5 : (tensor<32x48xf32>, memref<32x48xf32>) -> ()
    bufferization.materialize_in_destination %10 in restrict writable %arg3 : (tensor<1x2x1x48x16xf32>, memref<1x2x1x48x16xf32>) -> ()
    return
  }
  func.func private @attention_1x32x1x16(%arg0: memref<32x48xf32>, %arg1: memref<1x2x1x48x16xf32>, %arg2: memref<32xi32>, %arg3: memref<1x32x1x16xf32>) attributes {access = ["read", "read", "read", "write"], attention = {bias = "none", cache = {each = 32 : i64, row = 1 : i64}, depths = [16, 16], extents = [1, 32, 1, 48], log_sum = false, mask = "causal", positions = "tensor", queries = [1], shared = [0, 2]}, kernel = "attention", tied = [-1], work = {bytes = 4224 : i64, context = 48 : i64, operations = 0 : i64, position_bytes = 128 : i64, position_operations = 70 : i64}} {
    %0 = bufferization.to_tensor %arg0 restrict : memref<32x48xf32> to tensor<32x48xf32>
    %1 = bufferization.to_tensor %arg1 restrict : memref<1x2x1x48x16xf32> to tensor<1x2x1x48x16xf32>
    %2 = bufferization.to_tensor %arg2 restrict : memref<32xi32> to tensor<32xi32>
    %extracted_slice = tensor.extract_slice %0[0, 0] [32, 16] [1, 1] : tensor<32x48xf32> to tensor<32x16xf32>
    %expanded = tensor.expand_shape %extracted_slice [[0], [1, 2]] output_shape [32, 1, 16] : tensor<32x16xf32> into tensor<32x1x16xf32>
    %expanded_0 = tensor.expand_shape %expanded [[0, 1], [2], [3]] output_shape [1, 32, 1, 16] : tensor<32x1x16xf32> into tensor<1x32x1x16xf32>
    %extracted_slice_1 = tensor.extract_slice %1[0, 0, 0, 0, 0] [1, 1, 1, 48, 16] [1, 1, 1, 1, 1] : tensor<1x2x1x48x16xf32> to tensor<1x1x48x16xf32>
    %cst = arith.constant 0.000000e+00 : f32
    %3 = tensor.empty() : tensor<1x32x1x48xf32>
    %4 = linalg.fill ins(%cst : f32) outs(%3 : tensor<1x32x1x48xf32>) -> tensor<1x32x1x48xf32>
    %5 = linalg.contract indexing_maps = [#map5, #map6, #map7] {role = "scores"} ins(%expanded_0, %extracted_slice_1 : tensor<1x32x1x16xf32>, tensor<1x1x48x16xf32>) outs(%4 : tensor<1x32x1x48xf32>) -> tensor<1x32x1x48xf32>
    %expanded_2 = tensor.expand_shape %2 [[0, 1]] output_shape [1, 32] : tensor<32xi32> into tensor<1x32xi32>
    %cst_3 = arith.constant 2.500000e-01 : f32
    %cst_4 = arith.constant 0xFF800000 : f32
    %6 = linalg.generic {indexing_maps = [#map8, #map9, #map8], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%5, %expanded_2 : tensor<1x32x1x48xf32>, tensor<1x32xi32>) outs(%3 : tensor<1x32x1x48xf32>) attrs =  {role = "weigh"} {
    ^bb0(%in: f32, %in_6: i32, %out: f32):
      %11 = linalg.index 3 : index
      %12 = arith.index_cast %11 : index to i32
      %13 = arith.cmpi sle, %12, %in_6 : i32
      %14 = arith.mulf %in, %cst_3 : f32
      %15 = arith.select %13, %14, %cst_4 : f32
      linalg.yield %15 : f32
    } -> tensor<1x32x1x48xf32>
    %7 = linalg.softmax {role = "softmax"} dimension(3) ins(%6 : tensor<1x32x1x48xf32>) outs(%3 : tensor<1x32x1x48xf32>) -> tensor<1x32x1x48xf32>
    %extracted_slice_5 = tensor.extract_slice %1[0, 1, 0, 0, 0] [1, 1, 1, 48, 16] [1, 1, 1, 1, 1] : tensor<1x2x1x48x16xf32> to tensor<1x1x48x16xf32>
    %8 = tensor.empty() : tensor<1x32x1x16xf32>
    %9 = linalg.fill ins(%cst : f32) outs(%8 : tensor<1x32x1x16xf32>) -> tensor<1x32x1x16xf32>
    %10 = linalg.contract indexing_maps = [#map5, #map10, #map7] {role = "weighted"} ins(%7, %extracted_slice_5 : tensor<1x32x1x48xf32>, tensor<1x1x48x16xf32>) outs(%9 : tensor<1x32x1x16xf32>) -> tensor<1x32x1x16xf32>
    bufferization.materialize_in_destination %10 in restrict writable %arg3 : (tensor<1x32x1x16xf32>, memref<1x32x1x16xf32>) -> ()
    return
  }
  func.func private @rows_32x16(%arg0: memref<1x32x1x16xf32>, %arg1: memref<32x16xf32>) attributes {access = ["read", "write"], block = [32, 1, 1], grid = [32, 1, 1], kernel = "rows", shared_bytes = 0 : i64, tied = [-1], work = {bytes = 4096 : i64, context = 0 : i64, operations = 0 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %thread_id_x = gpu.thread_id x
    %block_id_x = gpu.block_id x
    nvvm.griddepcontrol launch_dependents
    %c4 = arith.constant 4 : index
    %0 = arith.muli %thread_id_x, %c4 : index
    %c16 = arith.constant 16 : index
    %1 = arith.cmpi ult, %0, %c16 : index
    %c0 = arith.constant 0 : index
    %2 = arith.select %1, %0, %c0 : index
    %c32 = arith.constant 32 : index
    %3 = arith.divui %block_id_x, %c32 : index
    %c16_0 = arith.constant 16 : index
    %4 = arith.divui %2, %c16_0 : index
    nvvm.griddepcontrol wait
    %c32_1 = arith.constant 32 : index
    %5 = arith.divui %block_id_x, %c32_1 : index
    %c16_2 = arith.constant 16 : index
    %6 = arith.divui %2, %c16_2 : index
    %c0_3 = arith.constant 0 : index
    %c0_4 = arith.constant 0 : index
    %7 = vector.load %arg0[%c0_3, %block_id_x, %c0_4, %2] {alignment = 16 : i64} : memref<1x32x1x16xf32>, vector<4xf32>
    scf.if %1 {
      vector.store %7, %arg1[%block_id_x, %2] {alignment = 16 : i64} : memref<32x16xf32>, vector<4xf32>
    }
    return
  }
  func.func @out_batch1_positions32(%arg0: memref<128xi8>, %arg1: memref<128xi8>, %arg2: memref<8192xi8>, %arg3: memref<6144xi8>, %arg4: memref<192xi8>, %arg5: memref<6144xi8>, %arg6: memref<2048xi8>) attributes {arguments = ["input:tokens", "input:positions", "weight:x", "weight:w", "weight:b", "state:kv", "result:out"], bounds = [{first = 0 : i64, input = "positions", last = 47 : i64}], entry = "out", extents = array<i64: 1, 32>, grows = {kv = 4 : i64}, inputs = {positions = array<i64: 1, 32>, tokens = array<i64: 1, 32>}, repeatable, results = ["result:out", "state:kv"], sizes = ["batch", "positions"], types = [tensor<32xi32>, tensor<32xi32>, tensor<32x64xf32>, tensor<48x64xbf16>, tensor<48xf32>, tensor<1x1x2x1x48x16xf32>, tensor<32x16xf32>]} {
    %c0 = arith.constant 0 : index
    %view = memref.view %arg2[%c0][] : memref<8192xi8> to memref<32x64xf32>
    %c0_0 = arith.constant 0 : index
    %view_1 = memref.view %arg3[%c0_0][] : memref<6144xi8> to memref<48x64xbf16>
    %c0_2 = arith.constant 0 : index
    %view_3 = memref.view %arg4[%c0_2][] : memref<192xi8> to memref<48xf32>
    %c0_4 = arith.constant 0 : index
    %view_5 = memref.view %arg5[%c0_4][] : memref<6144xi8> to memref<1x2x1x48x16xf32>
    %c0_6 = arith.constant 0 : index
    %view_7 = memref.view %arg1[%c0_6][] : memref<128xi8> to memref<32xi32>
    %alloc = memref.alloc() : memref<32x48xf32>
    call @contraction_32x48(%view, %view_1, %view_3, %view_5, %view_7, %alloc) : (memref<32x64xf32>, memref<48x64xbf16>, memref<48xf32>, memref<1x2x1x48x16xf32>, memref<32xi32>, memref<32x48xf32>) -> ()
    %c0_8 = arith.constant 0 : index
    %view_9 = memref.view %arg5[%c0_8][] : memref<6144xi8> to memref<1x2x1x48x16xf32>
    %c0_10 = arith.constant 0 : index
    %view_11 = memref.view %arg1[%c0_10][] : memref<128xi8> to memref<32xi32>
    %alloc_12 = memref.alloc() : memref<1x32x1x16xf32>
    call @attention_1x32x1x16(%alloc, %view_9, %view_11, %alloc_12) : (memref<32x48xf32>, memref<1x2x1x48x16xf32>, memref<32xi32>, memref<1x32x1x16xf32>) -> ()
    %c0_13 = arith.constant 0 : index
    %view_14 = memref.view %arg6[%c0_13][] : memref<2048xi8> to memref<32x16xf32>
    call @rows_32x16(%alloc_12, %view_14) : (memref<1x32x1x16xf32>, memref<32x16xf32>) -> ()
    return
  }
}
// ----- becomes
func.func "contraction_32x48"
  access = ["read", "read", "read", "read_write", "read", "write"]
  block = [256, 1, 1]
  cached_only = unit
  function_type = (memref<32x64xf32>, memref<48x64xbf16>, memref<48xf32>, memref<1x2x1x48x16xf32>, memref<32xi32>, memref<32x48xf32>) -> ()
  grid = [3, 1, 1]
  kernel = "contraction"
  product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 32, 48, 64>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}
  refused = ["a result has another shape than the product"]
  residency = 1 : i32
  shared_bytes = 25600 : i64
  sym_visibility = "private"
  tensor_maps = [{argument = 0 : i64, box = array<i64: 32, 64>, dtype = "f32", extents = array<i64: 64, 32>, offset = 0 : i64, strides = array<i64: 256>}, {argument = 1 : i64, box = array<i64: 64, 16>, dtype = "bf16", extents = array<i64: 64, 48>, offset = 0 : i64, strides = array<i64: 128>}]
  tied = [-1, 3]
  work = {bytes = 20800 : i64, context = 0 : i64, operations = 198144 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}
  8 arith.addf vector<2xf32>
  210 arith.addi
  16 arith.andi
  48 arith.andi vector<2xi32>
  45 arith.cmpi
  394 arith.constant
  4 arith.constant vector<2xf32>
  48 arith.constant vector<2xi32>
  22 arith.divui
  3 arith.extui
  96 arith.index_cast
  6 arith.minui
  60 arith.muli
  3 arith.ori
  23 arith.remui
  64 arith.select
  3 arith.shrui
  48 arith.subf vector<2xf32>
  19 arith.subi
  48 arith.truncf vector<2xbf16>
  4 arith.trunci
  9 arith.xori
  2 builtin.unrealized_conversion_cast
  1 func.return
  1 gpu.barrier
  2 gpu.block_id
  1 gpu.dynamic_shared_memory
  17 gpu.shuffle
  5 gpu.thread_id
  48 llvm.call_intrinsic
  320 llvm.extractvalue
  56 llvm.inline_asm
  48 llvm.inttoptr
  48 llvm.load vector<2xf32>
  8 llvm.mlir.undef
  3 memref.extract_aligned_pointer_as_index
  4 memref.load
  4 memref.reinterpret_cast
  1 memref.view
  1 nvvm.fence.proxy
  4 nvvm.griddepcontrol
  3 nvvm.wgmma.commit.group.sync.aligned
  2 nvvm.wgmma.wait.group.sync.aligned
  4 scf.condition
  2 scf.for
  26 scf.if
  4 scf.while
  34 scf.yield
  48 vector.bitcast vector<1xi32>
  48 vector.bitcast vector<2xf32>
  64 vector.bitcast vector<2xi32>
  8 vector.bitcast vector<4xf32>
  48 vector.extract vector<1xi32>
  8 vector.extract vector<2xf32>
  128 vector.extract vector<2xi32>
  4 vector.from_elements vector<2xf32>
  8 vector.from_elements vector<4xi32>
  8 vector.load vector<2xf32>
  2 vector.load vector<4xf32>
  10 vector.store vector<4xf32>
func.func "attention_1x32x1x16"
  access = ["read", "read", "read", "write"]
  attention = {bias = "none", cache = {each = 32 : i64, row = 1 : i64}, depths = [16, 16], extents = [1, 32, 1, 48], log_sum = false, mask = "causal", positions = "tensor", queries = [1], shared = [0, 2]}
  function_type = (memref<32x48xf32>, memref<1x2x1x48x16xf32>, memref<32xi32>, memref<1x32x1x16xf32>) -> ()
  kernel = "attention"
  sym_visibility = "private"
  tied = [-1]
  work = {bytes = 4224 : i64, context = 48 : i64, operations = 0 : i64, position_bytes = 128 : i64, position_operations = 70 : i64}
  2 arith.addf
  1 arith.cmpi
  3 arith.constant
  1 arith.index_cast
  3 arith.mulf
  1 arith.select
  1 bufferization.materialize_in_destination
  3 bufferization.to_tensor
  1 func.return
  2 linalg.contract
  2 linalg.fill
  1 linalg.generic
  1 linalg.index
  1 linalg.softmax
  5 linalg.yield
  2 tensor.empty
  3 tensor.expand_shape
  3 tensor.extract_slice
func.func "rows_32x16"
  access = ["read", "write"]
  block = [32, 1, 1]
  function_type = (memref<1x32x1x16xf32>, memref<32x16xf32>) -> ()
  grid = [32, 1, 1]
  kernel = "rows"
  shared_bytes = 0 : i64
  sym_visibility = "private"
  tied = [-1]
  work = {bytes = 4096 : i64, context = 0 : i64, operations = 0 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}
  1 arith.cmpi
  9 arith.constant
  4 arith.divui
  1 arith.muli
  1 arith.select
  1 func.return
  1 gpu.block_id
  1 gpu.thread_id
  2 nvvm.griddepcontrol
  1 scf.if
  1 scf.yield
  1 vector.load vector<4xf32>
  1 vector.store vector<4xf32>
func.func "out_batch1_positions32"
  arguments = ["input:tokens", "input:positions", "weight:x", "weight:w", "weight:b", "state:kv", "result:out"]
  bounds = [{first = 0 : i64, input = "positions", last = 47 : i64}]
  entry = "out"
  extents = array<i64: 1, 32>
  function_type = (memref<128xi8>, memref<128xi8>, memref<8192xi8>, memref<6144xi8>, memref<192xi8>, memref<6144xi8>, memref<2048xi8>) -> ()
  grows = {kv = 4 : i64}
  inputs = {positions = array<i64: 1, 32>, tokens = array<i64: 1, 32>}
  repeatable = unit
  results = ["result:out", "state:kv"]
  sizes = ["batch", "positions"]
  types = [tensor<32xi32>, tensor<32xi32>, tensor<32x64xf32>, tensor<48x64xbf16>, tensor<48xf32>, tensor<1x1x2x1x48x16xf32>, tensor<32x16xf32>]
  8 arith.constant
  3 func.call
  1 func.return
  2 memref.alloc
  8 memref.view
