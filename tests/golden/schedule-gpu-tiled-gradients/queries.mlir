// pass: schedule-gpu-tiled-gradients
// target: rocm:gfx1151
// show: summary
module {
  func.func private @attention_gradient_1x32x1x1x32(%arg0: memref<1x32x1x32xbf16>, %arg1: memref<1x32x1x32xbf16>, %arg2: memref<1x32x1x1xf32>, %arg3: memref<1x32x1x1x32xbf16>, %arg4: memref<1x32x1x32xbf16>, %arg5: memref<1x32x1x1xf32>, %arg6: memref<1x32x1x1x32xf32>) attributes {access = ["read", "read", "read", "read", "read", "read", "write"], kernel = "attention-gradient", sums = {bounds = ["upper"], depths = [32, 32, 32], extents = [1, 32, 1, 1, 32], over = "positions"}, tied = [-1], work = {bytes = 12544 : i64, context = 0 : i64, operations = 202752 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %0 = bufferization.to_tensor %arg0 restrict : memref<1x32x1x32xbf16> to tensor<1x32x1x32xbf16>
    %1 = bufferization.to_tensor %arg1 restrict : memref<1x32x1x32xbf16> to tensor<1x32x1x32xbf16>
    %2 = bufferization.to_tensor %arg2 restrict : memref<1x32x1x1xf32> to tensor<1x32x1x1xf32>
    %3 = bufferization.to_tensor %arg3 restrict : memref<1x32x1x1x32xbf16> to tensor<1x32x1x1x32xbf16>
    %4 = bufferization.to_tensor %arg4 restrict : memref<1x32x1x32xbf16> to tensor<1x32x1x32xbf16>
    %5 = bufferization.to_tensor %arg5 restrict : memref<1x32x1x1xf32> to tensor<1x32x1x1xf32>
    %expanded = tensor.expand_shape %0 [[0], [1], [2], [3, 4]] output_shape [1, 32, 1, 1, 32] : tensor<1x32x1x32xbf16> into tensor<1x32x1x1x32xbf16>
    %cst = arith.constant 0.000000e+00 : f32
    %6 = tensor.empty() : tensor<1x32x1x1x32xf32>
    %7 = linalg.fill ins(%cst : f32) outs(%6 : tensor<1x32x1x1x32xf32>) -> tensor<1x32x1x1x32xf32>
    %8 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d4, d2, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3, d4)>] {role = "scores"} ins(%expanded, %1 : tensor<1x32x1x1x32xbf16>, tensor<1x32x1x32xbf16>) outs(%7 : tensor<1x32x1x1x32xf32>) -> tensor<1x32x1x1x32xf32>
    %cst_0 = arith.constant 0.176776692 : f32
    %c1 = arith.constant 1 : index
    %cst_1 = arith.constant 0xFF800000 : f32
    %9 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%8 : tensor<1x32x1x1x32xf32>) outs(%6 : tensor<1x32x1x1x32xf32>) attrs =  {role = "weigh"} {
    ^bb0(%in: f32, %out: f32):
      %17 = arith.mulf %cst_0, %in : f32
      %18 = linalg.index 2 : index
      %19 = arith.muli %18, %c1 : index
      %20 = linalg.index 3 : index
      %21 = linalg.index 4 : index
      %22 = linalg.index 1 : index
      %23 = arith.cmpi sle, %21, %22 : index
      %24 = arith.select %23, %17, %cst_1 : f32
      linalg.yield %24 : f32
    } -> tensor<1x32x1x1x32xf32>
    %10 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%9, %2 : tensor<1x32x1x1x32xf32>, tensor<1x32x1x1xf32>) outs(%6 : tensor<1x32x1x1x32xf32>) attrs =  {role = "weigh"} {
    ^bb0(%in: f32, %in_2: f32, %out: f32):
      %17 = arith.subf %in, %in_2 : f32
      %18 = math.exp %17 : f32
      linalg.yield %18 : f32
    } -> tensor<1x32x1x1x32xf32>
    %11 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d4, d2, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3, d4)>] {role = "scores"} ins(%3, %4 : tensor<1x32x1x1x32xbf16>, tensor<1x32x1x32xbf16>) outs(%7 : tensor<1x32x1x1x32xf32>) -> tensor<1x32x1x1x32xf32>
    %12 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%10, %11, %5 : tensor<1x32x1x1x32xf32>, tensor<1x32x1x1x32xf32>, tensor<1x32x1x1xf32>) outs(%6 : tensor<1x32x1x1x32xf32>) attrs =  {role = "weigh"} {
    ^bb0(%in: f32, %in_2: f32, %in_3: f32, %out: f32):
      %17 = arith.subf %in_2, %in_3 : f32
      %18 = arith.mulf %in, %17 : f32
      linalg.yield %18 : f32
    } -> tensor<1x32x1x1x32xf32>
    %13 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%12 : tensor<1x32x1x1x32xf32>) outs(%6 : tensor<1x32x1x1x32xf32>) attrs =  {role = "weigh"} {
    ^bb0(%in: f32, %out: f32):
      %17 = linalg.index 4 : index
      %18 = linalg.index 1 : index
      %19 = arith.cmpi sle, %17, %18 : index
      %20 = arith.select %19, %in, %cst : f32
      %21 = arith.mulf %20, %cst_0 : f32
      linalg.yield %21 : f32
    } -> tensor<1x32x1x1x32xf32>
    %14 = tensor.empty() : tensor<1x32x1x1x32xbf16>
    %15 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%13 : tensor<1x32x1x1x32xf32>) outs(%14 : tensor<1x32x1x1x32xbf16>) attrs =  {role = "weigh"} {
    ^bb0(%in: f32, %out: bf16):
      %17 = arith.truncf %in : f32 to bf16
      linalg.yield %17 : bf16
    } -> tensor<1x32x1x1x32xbf16>
    %16 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d5, d2, d4)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3, d4)>] {role = "sum"} ins(%15, %1 : tensor<1x32x1x1x32xbf16>, tensor<1x32x1x32xbf16>) outs(%7 : tensor<1x32x1x1x32xf32>) -> tensor<1x32x1x1x32xf32>
    bufferization.materialize_in_destination %16 in restrict writable %arg6 : (tensor<1x32x1x1x32xf32>, memref<1x32x1x1x32xf32>) -> ()
    return
  }
}
// ----- becomes
func.func "attention_gradient_1x32x1x1x32"
  access = ["read", "read", "read", "read", "read", "read", "write"]
  block = [64, 1, 1]
  function_type = (memref<1x32x1x32xbf16>, memref<1x32x1x32xbf16>, memref<1x32x1x1xf32>, memref<1x32x1x1x32xbf16>, memref<1x32x1x32xbf16>, memref<1x32x1x1xf32>, memref<1x32x1x1x32xf32>) -> ()
  grid = [1, 1, 1]
  kernel = "attention-gradient"
  shared_bytes = 0 : i64
  sums = {bounds = ["upper"], depths = [32, 32, 32], extents = [1, 32, 1, 1, 32], over = "positions"}
  sym_visibility = "private"
  tied = [-1]
  work = {bytes = 12544 : i64, context = 0 : i64, operations = 202752 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}
  6 amdgpu.wmma vector<8xf32>
  52 arith.addi
  16 arith.cmpi
  361 arith.constant
  3 arith.constant vector<8xf32>
  7 arith.divui
  8 arith.extf
  3 arith.minui
  32 arith.mulf
  14 arith.muli
  12 arith.remui
  16 arith.select
  16 arith.subf
  1 arith.subi
  16 arith.truncf
  1 builtin.unrealized_conversion_cast
  1 func.return
  3 gpu.barrier
  2 gpu.block_id
  1 gpu.thread_id
  8 llvm.call_intrinsic
  1 memref.alloca
  16 memref.load
  32 memref.store
  4 memref.view
  2 scf.for vector<8xf32>
  2 scf.yield vector<8xf32>
  8 vector.extract vector<8xbf16>
  32 vector.extract vector<8xf32>
  16 vector.load vector<4xbf16>
  16 vector.load vector<8xbf16>
  11 vector.shuffle vector<16xbf16>
  8 vector.shuffle vector<8xbf16>
  2 vector.store vector<8xbf16>
