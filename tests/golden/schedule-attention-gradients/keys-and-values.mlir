// pass: schedule-attention-gradients
// target: cpu:x86-64-v3
// show: summary
module {
  func.func private @attention_gradient_1x16x1x8(%arg0: memref<1x16x1x8xf32>, %arg1: memref<1x16x1x8xf32>, %arg2: memref<1x16x1x1xf32>, %arg3: memref<1x16x1x8xf32>, %arg4: memref<1x16x1x8xf32>, %arg5: memref<1x16x1x1xf32>, %arg6: memref<1x16x1x8xf32>, %arg7: memref<1x16x1x8xf32>) attributes {access = ["read", "read", "read", "read", "read", "read", "write", "write"], kernel = "attention-gradient", sums = {bounds = ["upper"], depths = [8, 8, 8, 8], extents = [1, 16, 1, 1, 16], over = "queries"}, tied = [-1, -1], work = {bytes = 3200 : i64, context = 0 : i64, operations = 17920 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %0 = bufferization.to_tensor %arg0 restrict : memref<1x16x1x8xf32> to tensor<1x16x1x8xf32>
    %1 = bufferization.to_tensor %arg1 restrict : memref<1x16x1x8xf32> to tensor<1x16x1x8xf32>
    %2 = bufferization.to_tensor %arg2 restrict : memref<1x16x1x1xf32> to tensor<1x16x1x1xf32>
    %3 = bufferization.to_tensor %arg3 restrict : memref<1x16x1x8xf32> to tensor<1x16x1x8xf32>
    %4 = bufferization.to_tensor %arg4 restrict : memref<1x16x1x8xf32> to tensor<1x16x1x8xf32>
    %5 = bufferization.to_tensor %arg5 restrict : memref<1x16x1x1xf32> to tensor<1x16x1x1xf32>
    %expanded = tensor.expand_shape %0 [[0], [1], [2], [3, 4]] output_shape [1, 16, 1, 1, 8] : tensor<1x16x1x8xf32> into tensor<1x16x1x1x8xf32>
    %cst = arith.constant 0.000000e+00 : f32
    %6 = tensor.empty() : tensor<1x16x1x1x16xf32>
    %7 = linalg.fill ins(%cst : f32) outs(%6 : tensor<1x16x1x1x16xf32>) -> tensor<1x16x1x1x16xf32>
    %8 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d4, d2, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3, d4)>] {role = "scores"} ins(%expanded, %1 : tensor<1x16x1x1x8xf32>, tensor<1x16x1x8xf32>) outs(%7 : tensor<1x16x1x1x16xf32>) -> tensor<1x16x1x1x16xf32>
    %cst_0 = arith.constant 0.353553385 : f32
    %c1 = arith.constant 1 : index
    %cst_1 = arith.constant 0xFF800000 : f32
    %9 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%8 : tensor<1x16x1x1x16xf32>) outs(%6 : tensor<1x16x1x1x16xf32>) attrs =  {role = "weigh"} {
    ^bb0(%in: f32, %out: f32):
      %18 = arith.mulf %cst_0, %in : f32
      %19 = linalg.index 2 : index
      %20 = arith.muli %19, %c1 : index
      %21 = linalg.index 3 : index
      %22 = linalg.index 4 : index
      %23 = linalg.index 1 : index
      %24 = arith.cmpi sle, %22, %23 : index
      %25 = arith.select %24, %18, %cst_1 : f32
      linalg.yield %25 : f32
    } -> tensor<1x16x1x1x16xf32>
    %10 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%9, %2 : tensor<1x16x1x1x16xf32>, tensor<1x16x1x1xf32>) outs(%6 : tensor<1x16x1x1x16xf32>) attrs =  {role = "weigh"} {
    ^bb0(%in: f32, %in_3: f32, %out: f32):
      %18 = arith.subf %in, %in_3 : f32
      %19 = math.exp %18 : f32
      linalg.yield %19 : f32
    } -> tensor<1x16x1x1x16xf32>
    %expanded_2 = tensor.expand_shape %3 [[0], [1], [2], [3, 4]] output_shape [1, 16, 1, 1, 8] : tensor<1x16x1x8xf32> into tensor<1x16x1x1x8xf32>
    %11 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d4, d2, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3, d4)>] {role = "scores"} ins(%expanded_2, %4 : tensor<1x16x1x1x8xf32>, tensor<1x16x1x8xf32>) outs(%7 : tensor<1x16x1x1x16xf32>) -> tensor<1x16x1x1x16xf32>
    %12 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%10, %11, %5 : tensor<1x16x1x1x16xf32>, tensor<1x16x1x1x16xf32>, tensor<1x16x1x1xf32>) outs(%6 : tensor<1x16x1x1x16xf32>) attrs =  {role = "weigh"} {
    ^bb0(%in: f32, %in_3: f32, %in_4: f32, %out: f32):
      %18 = arith.subf %in_3, %in_4 : f32
      %19 = arith.mulf %in, %18 : f32
      linalg.yield %19 : f32
    } -> tensor<1x16x1x1x16xf32>
    %13 = tensor.empty() : tensor<1x16x1x8xf32>
    %14 = linalg.fill ins(%cst : f32) outs(%13 : tensor<1x16x1x8xf32>) -> tensor<1x16x1x8xf32>
    %15 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d4, d2, d5, d1)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d4, d2, d5, d3)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3)>] {role = "sum"} ins(%10, %expanded_2 : tensor<1x16x1x1x16xf32>, tensor<1x16x1x1x8xf32>) outs(%14 : tensor<1x16x1x8xf32>) -> tensor<1x16x1x8xf32>
    %16 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%12 : tensor<1x16x1x1x16xf32>) outs(%6 : tensor<1x16x1x1x16xf32>) attrs =  {role = "weigh"} {
    ^bb0(%in: f32, %out: f32):
      %18 = linalg.index 4 : index
      %19 = linalg.index 1 : index
      %20 = arith.cmpi sle, %18, %19 : index
      %21 = arith.select %20, %in, %cst : f32
      %22 = arith.mulf %21, %cst_0 : f32
      linalg.yield %22 : f32
    } -> tensor<1x16x1x1x16xf32>
    %17 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d4, d2, d5, d1)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d4, d2, d5, d3)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3)>] {role = "sum"} ins(%16, %expanded : tensor<1x16x1x1x16xf32>, tensor<1x16x1x1x8xf32>) outs(%14 : tensor<1x16x1x8xf32>) -> tensor<1x16x1x8xf32>
    bufferization.materialize_in_destination %15 in restrict writable %arg6 : (tensor<1x16x1x8xf32>, memref<1x16x1x8xf32>) -> ()
    bufferization.materialize_in_destination %17 in restrict writable %arg7 : (tensor<1x16x1x8xf32>, memref<1x16x1x8xf32>) -> ()
    return
  }
}
// ----- becomes
func.func "attention_gradient_1x16x1x8"
  access = ["read", "read", "read", "read", "read", "read", "write", "write"]
  block = [1, 1, 1]
  function_type = (memref<1x16x1x8xf32>, memref<1x16x1x8xf32>, memref<1x16x1x1xf32>, memref<1x16x1x8xf32>, memref<1x16x1x8xf32>, memref<1x16x1x1xf32>, memref<1x16x1x8xf32>, memref<1x16x1x8xf32>) -> ()
  grid = [1, 1, 1]
  kernel = "attention-gradient"
  shared_bytes = 0 : i64
  sums = {bounds = ["upper"], depths = [8, 8, 8, 8], extents = [1, 16, 1, 1, 16], over = "queries"}
  sym_visibility = "private"
  tied = [-1, -1]
  work = {bytes = 3200 : i64, context = 0 : i64, operations = 17920 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}
  78 arith.addi
  2 arith.addi vector<8xindex>
  2 arith.cmpi
  2 arith.cmpi vector<8xi1>
  212 arith.constant
  4 arith.constant vector<8xf32>
  2 arith.constant vector<8xindex>
  9 arith.minui
  3 arith.mulf
  3 arith.mulf vector<8xf32>
  2 arith.muli
  2 arith.select
  2 arith.select vector<8xf32>
  2 arith.subf
  2 arith.subf vector<8xf32>
  1 arith.subi
  1 func.return
  2 gpu.block_id
  1 math.exp
  1 math.exp vector<8xf32>
  8 memref.alloca
  38 memref.load
  34 memref.store
  25 scf.for
  4 scf.for vector<8xf32>
  25 scf.yield
  4 scf.yield vector<8xf32>
  38 vector.broadcast vector<8xf32>
  4 vector.broadcast vector<8xindex>
  64 vector.fma vector<8xf32>
  56 vector.load vector<8xf32>
  32 vector.reduction vector<8xf32>
  40 vector.store vector<8xf32>
