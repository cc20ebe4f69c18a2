// pass: schedule-contractions{transposed-rows=64 transposed-outputs=192 most-rows=256}
// target: cpu:x86-64-v3
// show: summary
module {
  func.func private @contraction_64x36(%arg0: memref<64x40xf32>, %arg1: memref<36x40xbf16>, %arg2: memref<36xf32>, %arg3: memref<64x36xf32>) attributes {access = ["read", "read", "read", "write"], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 64, 36, 40>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1], work = {bytes = 22480 : i64, context = 0 : i64, operations = 188928 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<64x40xf32> to tensor<64x40xf32>
    %to_tensor_1 = bufferization.to_tensor %arg1 restrict : memref<36x40xbf16> to tensor<36x40xbf16>
    %to_tensor_2 = bufferization.to_tensor %arg2 restrict : memref<36xf32> to tensor<36xf32>
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<64x36xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<64x36xf32>) -> tensor<64x36xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%to_tensor_0, %to_tensor_1 : tensor<64x40xf32>, tensor<36x40xbf16>) outs(%fill_0 : tensor<64x36xf32>) -> tensor<64x36xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%contract_0, %to_tensor_2 : tensor<64x36xf32>, tensor<36xf32>) outs(%empty_0 : tensor<64x36xf32>) {
    ^bb0(%in: f32, %in_0: f32, %out: f32):
      %addf_0 = arith.addf %in, %in_0 : f32
      linalg.yield %addf_0 : f32
    } -> tensor<64x36xf32>
    %generic_1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%generic_0 : tensor<64x36xf32>) outs(%empty_0 : tensor<64x36xf32>) {
    ^bb0(%in: f32, %out: f32):
      %maximumf_0 = arith.maximumf %in, %constant_0 : f32
      linalg.yield %maximumf_0 : f32
    } -> tensor<64x36xf32>
    bufferization.materialize_in_destination %generic_1 in restrict writable %arg3 : (tensor<64x36xf32>, memref<64x36xf32>) -> ()
    return
  }
  func.func @y(%arg0: memref<10240xi8>, %arg1: memref<2880xi8>, %arg2: memref<144xi8>, %arg3: memref<9216xi8>) attributes {arguments = ["input:x", "weight:w", "weight:b", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 64, 40>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<64x40xf32>, tensor<36x40xbf16>, tensor<36xf32>, tensor<64x36xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<10240xi8> to memref<64x40xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<2880xi8> to memref<36x40xbf16>
    %constant_2 = arith.constant 0 : index
    %view_2 = memref.view %arg2[%constant_2][] : memref<144xi8> to memref<36xf32>
    %constant_3 = arith.constant 0 : index
    %view_3 = memref.view %arg3[%constant_3][] : memref<9216xi8> to memref<64x36xf32>
    call @contraction_64x36(%view_0, %view_1, %view_2, %view_3) : (memref<64x40xf32>, memref<36x40xbf16>, memref<36xf32>, memref<64x36xf32>) -> ()
    return
  }
}
// ----- becomes
func.func "contraction_64x36"
  access = ["read", "read", "read", "write"]
  block = [1, 1, 1]
  function_type = (memref<64x40xf32>, memref<36x40xbf16>, memref<36xf32>, memref<64x36xf32>) -> ()
  grid = [3, 1, 1]
  kernel = "contraction"
  product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 64, 36, 40>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}
  shared_bytes = 0 : i64
  sym_visibility = "private"
  tied = [-1]
  work = {bytes = 22480 : i64, context = 0 : i64, operations = 188928 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}
  1 arith.addf vector<4xf32>
  1 arith.addf vector<8xf32>
  111 arith.addi
  5 arith.cmpi
  261 arith.constant
  7 arith.constant vector<8xf32>
  2 arith.divui
  20 arith.extf vector<8xf32>
  1 arith.maximumf vector<4xf32>
  1 arith.maximumf vector<8xf32>
  32 arith.minui
  4 arith.muli
  8 arith.select
  1 func.return
  2 gpu.block_id
  2 memref.alloca
  20 memref.load
  16 memref.prefetch
  7 scf.for
  4 scf.for vector<8xf32>
  1 scf.if
  9 scf.yield
  4 scf.yield vector<8xf32>
  1 vector.broadcast vector<4xf32>
  21 vector.broadcast vector<8xf32>
  30 vector.fma vector<8xf32>
  2 vector.load vector<4xf32>
  20 vector.load vector<8xbf16>
  8 vector.load vector<8xf32>
  72 vector.shuffle vector<8xf32>
  1 vector.store vector<4xf32>
  55 vector.store vector<8xf32>
func.func "y"
  arguments = ["input:x", "weight:w", "weight:b", "result:y"]
  entry = "y"
  extents = array<i64>
  function_type = (memref<10240xi8>, memref<2880xi8>, memref<144xi8>, memref<9216xi8>) -> ()
  inputs = {x = array<i64: 64, 40>}
  repeatable = unit
  results = ["result:y"]
  sizes = []
  types = [tensor<64x40xf32>, tensor<36x40xbf16>, tensor<36xf32>, tensor<64x36xf32>]
  4 arith.constant
  1 func.call
  1 func.return
  4 memref.view
