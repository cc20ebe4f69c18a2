// pass: schedule-gpu-tiled-attention
// target: rocm:gfx1151
// show: summary
module {
  func.func private @attention_64x1x64(%arg0: memref<64x1x64xf32>, %arg1: memref<64x1x64xf32>, %arg2: memref<64x1x64xf32>, %arg3: memref<64x1x64xf32>) attributes {access = ["read", "read", "read", "write"], attention = {bias = "none", depths = [64, 64], extents = [1, 64, 64], mask = "causal", positions = "index", queries = [1], shared = [0]}, kernel = "attention", tied = [-1], work = {bytes = 65536 : i64, context = 0 : i64, operations = 1073152 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<64x1x64xf32> to tensor<64x1x64xf32>
    %to_tensor_1 = bufferization.to_tensor %arg1 restrict : memref<64x1x64xf32> to tensor<64x1x64xf32>
    %to_tensor_2 = bufferization.to_tensor %arg2 restrict : memref<64x1x64xf32> to tensor<64x1x64xf32>
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<1x64x64xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<1x64x64xf32>) -> tensor<1x64x64xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d1, d0, d3)>, affine_map<(d0, d1, d2, d3) -> (d2, d0, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>] {role = "scores"} ins(%to_tensor_0, %to_tensor_1 : tensor<64x1x64xf32>, tensor<64x1x64xf32>) outs(%fill_0 : tensor<1x64x64xf32>) -> tensor<1x64x64xf32>
    %constant_1 = arith.constant 1.250000e-01 : f32
    %constant_2 = arith.constant 0xFF800000 : f32
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%contract_0 : tensor<1x64x64xf32>) outs(%empty_0 : tensor<1x64x64xf32>) attrs =  {role = "weigh"} {
    ^bb0(%in: f32, %out: f32):
      %index_0 = linalg.index 2 : index
      %index_1 = linalg.index 1 : index
      %cmpi_0 = arith.cmpi sle, %index_0, %index_1 : index
      %mulf_0 = arith.mulf %constant_1, %in : f32
      %select_0 = arith.select %cmpi_0, %mulf_0, %constant_2 : f32
      linalg.yield %select_0 : f32
    } -> tensor<1x64x64xf32>
    %softmax_0 = linalg.softmax {role = "softmax"} dimension(2) ins(%generic_0 : tensor<1x64x64xf32>) outs(%empty_0 : tensor<1x64x64xf32>) -> tensor<1x64x64xf32>
    %empty_1 = tensor.empty() : tensor<64x1x64xf32>
    %fill_1 = linalg.fill ins(%constant_0 : f32) outs(%empty_1 : tensor<64x1x64xf32>) -> tensor<64x1x64xf32>
    %contract_1 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d1, d0, d3)>, affine_map<(d0, d1, d2, d3) -> (d3, d1, d2)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>] {role = "weighted"} ins(%softmax_0, %to_tensor_2 : tensor<1x64x64xf32>, tensor<64x1x64xf32>) outs(%fill_1 : tensor<64x1x64xf32>) -> tensor<64x1x64xf32>
    bufferization.materialize_in_destination %contract_1 in restrict writable %arg3 : (tensor<64x1x64xf32>, memref<64x1x64xf32>) -> ()
    return
  }
  func.func @y(%arg0: memref<16384xi8>, %arg1: memref<16384xi8>, %arg2: memref<16384xi8>, %arg3: memref<16384xi8>) attributes {arguments = ["input:q", "input:k", "input:v", "result:y"], entry = "y", extents = array<i64>, inputs = {k = array<i64: 64, 1, 64>, q = array<i64: 64, 1, 64>, v = array<i64: 64, 1, 64>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<64x1x64xf32>, tensor<64x1x64xf32>, tensor<64x1x64xf32>, tensor<64x1x64xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<16384xi8> to memref<64x1x64xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<16384xi8> to memref<64x1x64xf32>
    %constant_2 = arith.constant 0 : index
    %view_2 = memref.view %arg2[%constant_2][] : memref<16384xi8> to memref<64x1x64xf32>
    %constant_3 = arith.constant 0 : index
    %view_3 = memref.view %arg3[%constant_3][] : memref<16384xi8> to memref<64x1x64xf32>
    call @attention_64x1x64(%view_0, %view_1, %view_2, %view_3) : (memref<64x1x64xf32>, memref<64x1x64xf32>, memref<64x1x64xf32>, memref<64x1x64xf32>) -> ()
    return
  }
}
// ----- becomes
func.func "attention_64x1x64"
  access = ["read", "read", "read", "write"]
  attention = {bias = "none", depths = [64, 64], extents = [1, 64, 64], mask = "causal", positions = "index", queries = [1], shared = [0]}
  block = [128, 1, 1]
  function_type = (memref<64x1x64xf32>, memref<64x1x64xf32>, memref<64x1x64xf32>, memref<64x1x64xf32>) -> ()
  grid = [1, 1, 1]
  kernel = "attention"
  shared_bytes = 0 : i64
  sym_visibility = "private"
  tied = [-1]
  work = {bytes = 65536 : i64, context = 0 : i64, operations = 1073152 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}
  48 amdgpu.wmma vector<8xf32>
  40 arith.addf
  186 arith.addi
  8 arith.andi vector<2xi32>
  4 arith.andi vector<8xi32>
  17 arith.cmpi
  797 arith.constant
  16 arith.constant vector<2xi32>
  2 arith.constant vector<8xf32>
  8 arith.constant vector<8xi32>
  8 arith.divf
  19 arith.divui
  16 arith.extf
  4 arith.index_cast
  6 arith.maxsi
  6 arith.minsi
  8 arith.minui
  72 arith.mulf
  4 arith.mulf vector<8xf32>
  18 arith.muli
  8 arith.negf
  20 arith.remui
  16 arith.select
  8 arith.shli vector<2xi32>
  4 arith.shli vector<8xi32>
  24 arith.subf
  4 arith.subf vector<16xf32>
  8 arith.subf vector<4xf32>
  1 arith.subi
  32 arith.truncf
  8 arith.truncf vector<16xbf16>
  16 arith.truncf vector<4xbf16>
  1 builtin.unrealized_conversion_cast
  1 func.return
  3 gpu.barrier
  2 gpu.block_id
  74 gpu.shuffle
  1 gpu.thread_id
  96 llvm.call_intrinsic
  1 memref.alloca
  96 memref.store
  3 memref.view
  1 scf.for vector<8xf32>
  1 scf.if
  2 scf.yield
  1 scf.yield vector<8xf32>
  16 vector.bitcast vector<2xf32>
  8 vector.bitcast vector<2xi32>
  8 vector.bitcast vector<8xf32>
  4 vector.bitcast vector<8xi32>
  32 vector.extract vector<4xbf16>
  48 vector.extract vector<8xf32>
  4 vector.from_elements vector<8xf32>
  4 vector.interleave vector<16xf32>
  8 vector.interleave vector<4xf32>
  24 vector.load vector<4xf32>
  72 vector.load vector<8xbf16>
  36 vector.shuffle vector<16xbf16>
  4 vector.shuffle vector<16xf32>
  8 vector.shuffle vector<8xf32>
  8 vector.store vector<4xbf16>
func.func "y"
  arguments = ["input:q", "input:k", "input:v", "result:y"]
  entry = "y"
  extents = array<i64>
  function_type = (memref<16384xi8>, memref<16384xi8>, memref<16384xi8>, memref<16384xi8>) -> ()
  inputs = {k = array<i64: 64, 1, 64>, q = array<i64: 64, 1, 64>, v = array<i64: 64, 1, 64>}
  repeatable = unit
  results = ["result:y"]
  sizes = []
  types = [tensor<64x1x64xf32>, tensor<64x1x64xf32>, tensor<64x1x64xf32>, tensor<64x1x64xf32>]
  4 arith.constant
  1 func.call
  1 func.return
  4 memref.view
