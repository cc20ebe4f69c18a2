// pass: schedule-gpu-column-contractions
// target: rocm:gfx1151
// show: summary
module {
  func.func private @contraction_1x96(%arg0: memref<1x64xf32>, %arg1: memref<64x96xbf16>, %arg2: memref<1x96xf32>) attributes {access = ["read", "read", "write"], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 1, 96, 64>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 2, 1>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1], work = {bytes = 12928 : i64, context = 0 : i64, operations = 12288 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<1x64xf32> to tensor<1x64xf32>
    %to_tensor_1 = bufferization.to_tensor %arg1 restrict : memref<64x96xbf16> to tensor<64x96xbf16>
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<1x96xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<1x96xf32>) -> tensor<1x96xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%to_tensor_0, %to_tensor_1 : tensor<1x64xf32>, tensor<64x96xbf16>) outs(%fill_0 : tensor<1x96xf32>) -> tensor<1x96xf32>
    bufferization.materialize_in_destination %contract_0 in restrict writable %arg2 : (tensor<1x96xf32>, memref<1x96xf32>) -> ()
    return
  }
  func.func @y(%arg0: memref<256xi8>, %arg1: memref<12288xi8>, %arg2: memref<384xi8>) attributes {arguments = ["input:x", "weight:w", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 1, 64>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<1x64xf32>, tensor<64x96xbf16>, tensor<1x96xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<256xi8> to memref<1x64xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<12288xi8> to memref<64x96xbf16>
    %constant_2 = arith.constant 0 : index
    %view_2 = memref.view %arg2[%constant_2][] : memref<384xi8> to memref<1x96xf32>
    call @contraction_1x96(%view_0, %view_1, %view_2) : (memref<1x64xf32>, memref<64x96xbf16>, memref<1x96xf32>) -> ()
    return
  }
}
// ----- becomes
func.func "contraction_1x96"
  access = ["read", "read", "write"]
  block = [256, 1, 1]
  function_type = (memref<1x64xf32>, memref<64x96xbf16>, memref<1x96xf32>) -> ()
  grid = [6, 1, 1]
  kernel = "contraction"
  product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 1, 96, 64>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 2, 1>, rows = array<i64: 0>, sums = array<i64: 2>}
  shared_bytes = 0 : i64
  sym_visibility = "private"
  tied = [-1]
  work = {bytes = 12928 : i64, context = 0 : i64, operations = 12288 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}
  39 arith.addf
  9 arith.addi
  7 arith.cmpi
  117 arith.constant
  1 arith.constant vector<8xf32>
  3 arith.divui
  4 arith.extf vector<8xf32>
  1 arith.minui
  8 arith.muli
  3 arith.remui
  9 arith.select
  1 builtin.unrealized_conversion_cast
  1 func.return
  2 gpu.barrier
  1 gpu.block_id
  32 gpu.shuffle
  1 gpu.thread_id
  2 memref.alloca
  12 memref.load
  1 memref.store
  1 scf.for vector<8xf32>
  3 scf.if
  3 scf.yield
  1 scf.yield vector<8xf32>
  4 vector.broadcast vector<8xf32>
  32 vector.extract vector<8xf32>
  4 vector.fma vector<8xf32>
  4 vector.from_elements vector<8xf32>
  1 vector.load vector<4xf32>
  4 vector.load vector<8xbf16>
  1 vector.store vector<4xf32>
  1 vector.store vector<8xf32>
func.func "y"
  arguments = ["input:x", "weight:w", "result:y"]
  entry = "y"
  extents = array<i64>
  function_type = (memref<256xi8>, memref<12288xi8>, memref<384xi8>) -> ()
  inputs = {x = array<i64: 1, 64>}
  repeatable = unit
  results = ["result:y"]
  sizes = []
  types = [tensor<1x64xf32>, tensor<64x96xbf16>, tensor<1x96xf32>]
  3 arith.constant
  1 func.call
  1 func.return
  3 memref.view
