// pass: schedule-gpu-contractions
// target: rocm:gfx1151
// show: summary
module {
  func.func private @contraction_1x4(%arg0: memref<1x8xf32>, %arg1: memref<4x8xbf16>, %arg2: memref<4xf32>, %arg3: memref<1x4xf32>) attributes {access = ["read", "read", "read", "write"], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 1, 4, 8>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1], work = {bytes = 128 : i64, context = 0 : i64, operations = 72 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<1x8xf32> to tensor<1x8xf32>
    %to_tensor_1 = bufferization.to_tensor %arg1 restrict : memref<4x8xbf16> to tensor<4x8xbf16>
    %to_tensor_2 = bufferization.to_tensor %arg2 restrict : memref<4xf32> to tensor<4xf32>
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<1x4xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<1x4xf32>) -> tensor<1x4xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%to_tensor_0, %to_tensor_1 : tensor<1x8xf32>, tensor<4x8xbf16>) outs(%fill_0 : tensor<1x4xf32>) -> tensor<1x4xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%contract_0, %to_tensor_2 : tensor<1x4xf32>, tensor<4xf32>) outs(%empty_0 : tensor<1x4xf32>) {
    ^bb0(%in: f32, %in_0: f32, %out: f32):
      %addf_0 = arith.addf %in, %in_0 : f32
      linalg.yield %addf_0 : f32
    } -> tensor<1x4xf32>
    %generic_1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%generic_0 : tensor<1x4xf32>) outs(%empty_0 : tensor<1x4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %maximumf_0 = arith.maximumf %in, %constant_0 : f32
      linalg.yield %maximumf_0 : f32
    } -> tensor<1x4xf32>
    bufferization.materialize_in_destination %generic_1 in restrict writable %arg3 : (tensor<1x4xf32>, memref<1x4xf32>) -> ()
    return
  }
  func.func @y(%arg0: memref<32xi8>, %arg1: memref<64xi8>, %arg2: memref<16xi8>, %arg3: memref<16xi8>) attributes {arguments = ["input:x", "weight:w", "weight:b", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 1, 8>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<1x8xf32>, tensor<4x8xbf16>, tensor<4xf32>, tensor<1x4xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<32xi8> to memref<1x8xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<64xi8> to memref<4x8xbf16>
    %constant_2 = arith.constant 0 : index
    %view_2 = memref.view %arg2[%constant_2][] : memref<16xi8> to memref<4xf32>
    %constant_3 = arith.constant 0 : index
    %view_3 = memref.view %arg3[%constant_3][] : memref<16xi8> to memref<1x4xf32>
    call @contraction_1x4(%view_0, %view_1, %view_2, %view_3) : (memref<1x8xf32>, memref<4x8xbf16>, memref<4xf32>, memref<1x4xf32>) -> ()
    return
  }
}
// ----- becomes
func.func "contraction_1x4"
  access = ["read", "read", "read", "write"]
  block = [64, 1, 1]
  function_type = (memref<1x8xf32>, memref<4x8xbf16>, memref<4xf32>, memref<1x4xf32>) -> ()
  grid = [1, 1, 1]
  kernel = "contraction"
  product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 1, 4, 8>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}
  shared_bytes = 0 : i64
  sym_visibility = "private"
  tied = [-1]
  work = {bytes = 128 : i64, context = 0 : i64, operations = 72 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}
  25 arith.addf
  3 arith.addi
  3 arith.cmpi
  34 arith.constant
  1 arith.constant vector<8xf32>
  1 arith.divui
  2 arith.extf vector<8xf32>
  1 arith.maximumf
  2 arith.mulf vector<8xf32>
  3 arith.muli
  2 arith.remui
  2 arith.select
  1 arith.select vector<8xf32>
  1 builtin.unrealized_conversion_cast
  1 func.return
  1 gpu.block_id
  10 gpu.shuffle
  1 gpu.thread_id
  1 memref.load
  1 memref.store
  1 scf.if
  1 scf.yield
  16 vector.extract vector<8xf32>
  2 vector.load vector<8xbf16>
  1 vector.load vector<8xf32>
func.func "y"
  arguments = ["input:x", "weight:w", "weight:b", "result:y"]
  entry = "y"
  extents = array<i64>
  function_type = (memref<32xi8>, memref<64xi8>, memref<16xi8>, memref<16xi8>) -> ()
  inputs = {x = array<i64: 1, 8>}
  repeatable = unit
  results = ["result:y"]
  sizes = []
  types = [tensor<1x8xf32>, tensor<4x8xbf16>, tensor<4xf32>, tensor<1x4xf32>]
  4 arith.constant
  1 func.call
  1 func.return
  4 memref.view
