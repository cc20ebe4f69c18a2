// pass: schedule-gpu-skinny-products
// target: rocm:gfx1151
// show: summary
module {
  func.func private @contraction_8x64(%arg0: memref<8x64xf32>, %arg1: memref<64x64xbf16>, %arg2: memref<8x64xf32>) attributes {access = ["read", "read", "write"], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 8, 64, 64>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1], work = {bytes = 12288 : i64, context = 0 : i64, operations = 65536 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<8x64xf32> to tensor<8x64xf32>
    %to_tensor_1 = bufferization.to_tensor %arg1 restrict : memref<64x64xbf16> to tensor<64x64xbf16>
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<8x64xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<8x64xf32>) -> tensor<8x64xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%to_tensor_0, %to_tensor_1 : tensor<8x64xf32>, tensor<64x64xbf16>) outs(%fill_0 : tensor<8x64xf32>) -> tensor<8x64xf32>
    bufferization.materialize_in_destination %contract_0 in restrict writable %arg2 : (tensor<8x64xf32>, memref<8x64xf32>) -> ()
    return
  }
  func.func @y(%arg0: memref<8192xi8>, %arg1: memref<8192xi8>, %arg2: memref<8192xi8>) attributes {arguments = ["input:x", "weight:w", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 8, 64>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<8x64xf32>, tensor<64x64xbf16>, tensor<8x64xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<8192xi8> to memref<8x64xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<8192xi8> to memref<64x64xbf16>
    %constant_2 = arith.constant 0 : index
    %view_2 = memref.view %arg2[%constant_2][] : memref<8192xi8> to memref<8x64xf32>
    call @contraction_8x64(%view_0, %view_1, %view_2) : (memref<8x64xf32>, memref<64x64xbf16>, memref<8x64xf32>) -> ()
    return
  }
}
// ----- becomes
func.func "contraction_8x64"
  access = ["read", "read", "write"]
  block = [128, 1, 1]
  function_type = (memref<8x64xf32>, memref<64x64xbf16>, memref<8x64xf32>) -> ()
  grid = [4, 1, 1]
  kernel = "contraction"
  product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 8, 64, 64>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}
  shared_bytes = 0 : i64
  sym_visibility = "private"
  tied = [-1]
  work = {bytes = 12288 : i64, context = 0 : i64, operations = 65536 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}
  2 amdgpu.wmma vector<8xf32>
  3 arith.addf
  13 arith.addi
  1 arith.andi vector<8xi32>
  33 arith.constant
  1 arith.constant vector<16xbf16>
  1 arith.constant vector<8xf32>
  2 arith.constant vector<8xi32>
  4 arith.divui
  1 arith.minui
  4 arith.muli
  5 arith.remui
  1 arith.shli vector<8xi32>
  1 arith.subf vector<16xf32>
  2 arith.truncf vector<16xbf16>
  1 builtin.unrealized_conversion_cast
  1 func.return
  1 gpu.barrier
  1 gpu.block_id
  1 gpu.thread_id
  1 memref.alloca
  4 memref.load
  9 memref.store
  2 memref.view
  2 vector.bitcast vector<8xf32>
  1 vector.bitcast vector<8xi32>
  8 vector.extract vector<8xf32>
  1 vector.interleave vector<16xf32>
  4 vector.load vector<4xf32>
  2 vector.load vector<8xbf16>
  1 vector.shuffle vector<16xbf16>
  1 vector.shuffle vector<16xf32>
  2 vector.shuffle vector<8xf32>
func.func "y"
  arguments = ["input:x", "weight:w", "result:y"]
  entry = "y"
  extents = array<i64>
  function_type = (memref<8192xi8>, memref<8192xi8>, memref<8192xi8>) -> ()
  inputs = {x = array<i64: 8, 64>}
  repeatable = unit
  results = ["result:y"]
  sizes = []
  types = [tensor<8x64xf32>, tensor<64x64xbf16>, tensor<8x64xf32>]
  3 arith.constant
  1 func.call
  1 func.return
  3 memref.view
