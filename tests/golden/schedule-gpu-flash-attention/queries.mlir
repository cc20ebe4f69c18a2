// pass: schedule-gpu-flash-attention
// target: cuda:sm_90a
// show: summary
module {
  func.func private @attention_gradient_1x128x1x1x64(%arg0: memref<1x128x1x64xbf16>, %arg1: memref<1x128x1x64xbf16>, %arg2: memref<1x1x1x128xf32>, %arg3: memref<1x128x1x1x64xbf16>, %arg4: memref<1x128x1x64xbf16>, %arg5: memref<1x1x1x128xf32>, %arg6: memref<1x128x1x1x64xf32>) attributes {access = ["read", "read", "read", "read", "read", "read", "write"], kernel = "attention-gradient", sums = {bounds = ["upper"], depths = [64, 64, 64], extents = [1, 1, 1, 128, 128], over = "positions"}, tied = [-1], work = {bytes = 99328 : i64, context = 0 : i64, operations = 6389760 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %0 = bufferization.to_tensor %arg0 restrict : memref<1x128x1x64xbf16> to tensor<1x128x1x64xbf16>
    %1 = bufferization.to_tensor %arg1 restrict : memref<1x128x1x64xbf16> to tensor<1x128x1x64xbf16>
    %2 = bufferization.to_tensor %arg2 restrict : memref<1x1x1x128xf32> to tensor<1x1x1x128xf32>
    %3 = bufferization.to_tensor %arg3 restrict : memref<1x128x1x1x64xbf16> to tensor<1x128x1x1x64xbf16>
    %4 = bufferization.to_tensor %arg4 restrict : memref<1x128x1x64xbf16> to tensor<1x128x1x64xbf16>
    %5 = bufferization.to_tensor %arg5 restrict : memref<1x1x1x128xf32> to tensor<1x1x1x128xf32>
    %expanded = tensor.expand_shape %0 [[0], [1], [2], [3, 4]] output_shape [1, 128, 1, 1, 64] : tensor<1x128x1x64xbf16> into tensor<1x128x1x1x64xbf16>
    %cst = arith.constant 0.000000e+00 : f32
    %6 = tensor.empty() : tensor<1x1x1x128x128xf32>
    %7 = linalg.fill ins(%cst : f32) outs(%6 : tensor<1x1x1x128x128xf32>) -> tensor<1x1x1x128x128xf32>
    %8 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, d1, d2, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d4, d1, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3, d4)>] {role = "scores"} ins(%expanded, %1 : tensor<1x128x1x1x64xbf16>, tensor<1x128x1x64xbf16>) outs(%7 : tensor<1x1x1x128x128xf32>) -> tensor<1x1x1x128x128xf32>
    %cst_0 = arith.constant 1.250000e-01 : f32
    %c1 = arith.constant 1 : index
    %cst_1 = arith.constant 0xFF800000 : f32
    %9 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%8 : tensor<1x1x1x128x128xf32>) outs(%6 : tensor<1x1x1x128x128xf32>) attrs =  {role = "weigh"} {
    ^bb0(%in: f32, %out: f32):
      %19 = linalg.index 3 : index
      %20 = linalg.index 4 : index
      %21 = linalg.index 2 : index
      %22 = linalg.index 1 : index
      %23 = arith.mulf %cst_0, %in : f32
      %24 = arith.muli %22, %c1 : index
      %25 = arith.cmpi sle, %20, %19 : index
      %26 = arith.select %25, %23, %cst_1 : f32
      linalg.yield %26 : f32
    } -> tensor<1x1x1x128x128xf32>
    %10 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%9, %2 : tensor<1x1x1x128x128xf32>, tensor<1x1x1x128xf32>) outs(%6 : tensor<1x1x1x128x128xf32>) attrs =  {role = "weigh"} {
    ^bb0(%in: f32, %in_2: f32, %out: f32):
      %19 = arith.subf %in, %in_2 : f32
      %20 = math.exp %19 : f32
      linalg.yield %20 : f32
    } -> tensor<1x1x1x128x128xf32>
    %11 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, d1, d2, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d4, d1, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3, d4)>] {role = "scores"} ins(%3, %4 : tensor<1x128x1x1x64xbf16>, tensor<1x128x1x64xbf16>) outs(%7 : tensor<1x1x1x128x128xf32>) -> tensor<1x1x1x128x128xf32>
    %12 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%10, %11, %5 : tensor<1x1x1x128x128xf32>, tensor<1x1x1x128x128xf32>, tensor<1x1x1x128xf32>) outs(%6 : tensor<1x1x1x128x128xf32>) attrs =  {role = "weigh"} {
    ^bb0(%in: f32, %in_2: f32, %in_3: f32, %out: f32):
      %19 = arith.subf %in_2, %in_3 : f32
      %20 = arith.mulf %in, %19 : f32
      linalg.yield %20 : f32
    } -> tensor<1x1x1x128x128xf32>
    %13 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%12 : tensor<1x1x1x128x128xf32>) outs(%6 : tensor<1x1x1x128x128xf32>) attrs =  {role = "weigh"} {
    ^bb0(%in: f32, %out: f32):
      %19 = linalg.index 4 : index
      %20 = linalg.index 3 : index
      %21 = arith.cmpi sle, %19, %20 : index
      %22 = arith.select %21, %in, %cst : f32
      %23 = arith.mulf %22, %cst_0 : f32
      linalg.yield %23 : f32
    } -> tensor<1x1x1x128x128xf32>
    %14 = tensor.empty() : tensor<1x1x1x128x128xbf16>
    %15 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%13 : tensor<1x1x1x128x128xf32>) outs(%14 : tensor<1x1x1x128x128xbf16>) attrs =  {role = "weigh"} {
    ^bb0(%in: f32, %out: bf16):
      %19 = arith.truncf %in : f32 to bf16
      linalg.yield %19 : bf16
    } -> tensor<1x1x1x128x128xbf16>
    %16 = tensor.empty() : tensor<1x128x1x1x64xf32>
    %17 = linalg.fill ins(%cst : f32) outs(%16 : tensor<1x128x1x1x64xf32>) -> tensor<1x128x1x1x64xf32>
    %18 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d2, d3, d1, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d5, d2, d4)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3, d4)>] {role = "sum"} ins(%15, %1 : tensor<1x1x1x128x128xbf16>, tensor<1x128x1x64xbf16>) outs(%17 : tensor<1x128x1x1x64xf32>) -> tensor<1x128x1x1x64xf32>
    bufferization.materialize_in_destination %18 in restrict writable %arg6 : (tensor<1x128x1x1x64xf32>, memref<1x128x1x1x64xf32>) -> ()
    return
  }
}
// ----- becomes
func.func "attention_gradient_1x128x1x1x64"
  access = ["read", "read", "read", "read", "read", "read", "write"]
  block = [128, 1, 1]
  function_type = (memref<1x128x1x64xbf16>, memref<1x128x1x64xbf16>, memref<1x1x1x128xf32>, memref<1x128x1x1x64xbf16>, memref<1x128x1x64xbf16>, memref<1x1x1x128xf32>, memref<1x128x1x1x64xf32>) -> ()
  grid = [2, 1, 1]
  kernel = "attention-gradient"
  shared_bytes = 34816 : i64
  sums = {bounds = ["upper"], depths = [64, 64, 64], extents = [1, 1, 1, 128, 128], over = "positions"}
  sym_visibility = "private"
  tensor_maps = [{argument = 1 : i64, box = array<i64: 64, 32>, dtype = "bf16", extents = array<i64: 64, 128>, offset = 0 : i64, strides = array<i64: 128>}, {argument = 4 : i64, box = array<i64: 64, 32>, dtype = "bf16", extents = array<i64: 64, 128>, offset = 0 : i64, strides = array<i64: 128>}]
  tied = [-1]
  work = {bytes = 99328 : i64, context = 0 : i64, operations = 6389760 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}
  167 arith.addi
  14 arith.andi
  73 arith.cmpi
  597 arith.constant
  8 arith.divui
  45 arith.index_cast
  1 arith.minui
  128 arith.mulf
  60 arith.muli
  10 arith.ori
  15 arith.remui
  32 arith.select
  10 arith.shrui
  64 arith.subf
  2 arith.subi
  8 arith.truncf vector<2xbf16>
  4 arith.trunci
  2 builtin.unrealized_conversion_cast
  1 func.return
  1 gpu.barrier
  2 gpu.block_id
  1 gpu.dynamic_shared_memory
  1 gpu.thread_id
  32 llvm.call_intrinsic
  296 llvm.extractvalue
  38 llvm.inline_asm
  2 memref.extract_aligned_pointer_as_index
  4 memref.load
  2 nvvm.griddepcontrol
  3 nvvm.wgmma.commit.group.sync.aligned
  1 nvvm.wgmma.fence.aligned
  4 scf.condition
  2 scf.for
  6 scf.if
  4 scf.while
  13 scf.yield
  40 vector.bitcast vector<1xi32>
  40 vector.extract vector<1xi32>
  24 vector.from_elements vector<2xf32>
  32 vector.load vector<2xbf16>
  16 vector.store vector<2xf32>
