// pass: choose-tiles{use=matmul copies=registers}
// target: rocm:gfx1151
// show: text
module {
  func.func private @contraction_32x64(%arg0: memref<32x64xf32>, %arg1: memref<64x64xbf16>, %arg2: memref<32x64xf32>) attributes {access = ["read", "read", "write"], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 32, 64, 64>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1], work = {bytes = 24576 : i64, context = 0 : i64, operations = 262144 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<32x64xf32> to tensor<32x64xf32>
    %to_tensor_1 = bufferization.to_tensor %arg1 restrict : memref<64x64xbf16> to tensor<64x64xbf16>
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<32x64xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<32x64xf32>) -> tensor<32x64xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%to_tensor_0, %to_tensor_1 : tensor<32x64xf32>, tensor<64x64xbf16>) outs(%fill_0 : tensor<32x64xf32>) -> tensor<32x64xf32>
    bufferization.materialize_in_destination %contract_0 in restrict writable %arg2 : (tensor<32x64xf32>, memref<32x64xf32>) -> ()
    return
  }
  func.func @y(%arg0: memref<8192xi8>, %arg1: memref<8192xi8>, %arg2: memref<8192xi8>) attributes {arguments = ["input:x", "weight:w", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 32, 64>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<32x64xf32>, tensor<64x64xbf16>, tensor<32x64xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<8192xi8> to memref<32x64xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<8192xi8> to memref<64x64xbf16>
    %constant_2 = arith.constant 0 : index
    %view_2 = memref.view %arg2[%constant_2][] : memref<8192xi8> to memref<32x64xf32>
    call @contraction_32x64(%view_0, %view_1, %view_2) : (memref<32x64xf32>, memref<64x64xbf16>, memref<32x64xf32>) -> ()
    return
  }
}
// ----- becomes
module {
  func.func private @contraction_32x64(%arg0: memref<32x64xf32>, %arg1: memref<64x64xbf16>, %arg2: memref<32x64xf32>) attributes {access = ["read", "read", "write"], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 32, 64, 64>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1], tile = {grid = array<i64: 2, 2>, residency = 2 : i64, threads = 256 : i64}, tiles = "matmul", work = {bytes = 24576 : i64, context = 0 : i64, operations = 262144 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<32x64xf32> to tensor<32x64xf32>
    %to_tensor_1 = bufferization.to_tensor %arg1 restrict : memref<64x64xbf16> to tensor<64x64xbf16>
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<32x64xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<32x64xf32>) -> tensor<32x64xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%to_tensor_0, %to_tensor_1 : tensor<32x64xf32>, tensor<64x64xbf16>) outs(%fill_0 : tensor<32x64xf32>) -> tensor<32x64xf32>
    bufferization.materialize_in_destination %contract_0 in restrict writable %arg2 : (tensor<32x64xf32>, memref<32x64xf32>) -> ()
    %block_id_0 = gpu.block_id x
    %constant_1 = arith.constant 16 : index
    %muli_0 = arith.muli %block_id_0, %constant_1 : index
    %block_id_1 = gpu.block_id y
    %constant_2 = arith.constant 32 : index
    %muli_1 = arith.muli %block_id_1, %constant_2 : index
    %shared_0 = "tile.shared"() : () -> memref<1x1x32x256xbf16, {padding = 8 : i64, swizzle = 0 : i64}>
    %shared_1 = "tile.shared"() : () -> memref<1x2x16x256xbf16, {padding = 8 : i64, swizzle = 0 : i64}>
    %view_0 = "tile.view"(%to_tensor_1) {batch = array<i64>, inner = array<i64: 1>, outer = array<i64: 0>} : (tensor<64x64xbf16>) -> tensor<1x64x64xbf16>
    %view_1 = "tile.view"(%to_tensor_0) {batch = array<i64>, inner = array<i64: 1>, outer = array<i64: 0>} : (tensor<32x64xf32>) -> tensor<1x32x64xf32>
    %constant_3 = arith.constant 0 : index
    %constant_4 = arith.constant 0 : index
    %load_0 = "tile.load"(%view_0, %constant_3, %muli_1, %constant_4) : (tensor<1x64x64xbf16>, index, index, index) -> tensor<32x256xbf16, {layout = "patches", teams = array<i64: 1, 1>, unit = "subgroup"}>
    %constant_5 = arith.constant 0 : index
    %constant_6 = arith.constant 0 : index
    %load_1 = "tile.load"(%view_1, %constant_5, %muli_0, %constant_6) : (tensor<1x32x64xf32>, index, index, index) -> tensor<16x256xf32, {layout = "patches", teams = array<i64: 1, 1>, unit = "subgroup"}>
    %zeros_0 = "tile.zeros"() : () -> tensor<8x16x32xf32, {layout = "sums", teams = array<i64: 1, 1>, unit = "subgroup"}>
    %constant_7 = arith.constant 0 : index
    %constant_8 = arith.constant 1 : index
    %constant_9 = arith.constant 1 : index
    %for_0:3 = scf.for %arg3 = %constant_7 to %constant_8 step %constant_9 iter_args(%arg4 = %load_0, %arg5 = %load_1, %arg6 = %zeros_0) -> (tensor<32x256xbf16, {layout = "patches", teams = array<i64: 1, 1>, unit = "subgroup"}>, tensor<16x256xf32, {layout = "patches", teams = array<i64: 1, 1>, unit = "subgroup"}>, tensor<8x16x32xf32, {layout = "sums", teams = array<i64: 1, 1>, unit = "subgroup"}>) {
      gpu.barrier
      %constant_10 = arith.constant 0 : index
      %slot_0 = "tile.slot"(%shared_0, %constant_10) : (memref<1x1x32x256xbf16, {padding = 8 : i64, swizzle = 0 : i64}>, index) -> memref<1x32x256xbf16, {padding = 8 : i64, swizzle = 0 : i64}>
      %constant_11 = arith.constant 0 : index
      %slot_1 = "tile.slot"(%shared_1, %constant_11) : (memref<1x2x16x256xbf16, {padding = 8 : i64, swizzle = 0 : i64}>, index) -> memref<2x16x256xbf16, {padding = 8 : i64, swizzle = 0 : i64}>
      "tile.put"(%arg4, %slot_0) : (tensor<32x256xbf16, {layout = "patches", teams = array<i64: 1, 1>, unit = "subgroup"}>, memref<1x32x256xbf16, {padding = 8 : i64, swizzle = 0 : i64}>) -> ()
      "tile.put"(%arg5, %slot_1) : (tensor<16x256xf32, {layout = "patches", teams = array<i64: 1, 1>, unit = "subgroup"}>, memref<2x16x256xbf16, {padding = 8 : i64, swizzle = 0 : i64}>) -> ()
      gpu.barrier
      %constant_12 = arith.constant 1 : index
      %addi_0 = arith.addi %arg3, %constant_12 : index
      %constant_13 = arith.constant 256 : index
      %muli_2 = arith.muli %addi_0, %constant_13 : index
      %constant_14 = arith.constant 256 : index
      %muli_3 = arith.muli %addi_0, %constant_14 : index
      %constant_15 = arith.constant 0 : index
      %load_2 = "tile.load"(%view_0, %constant_15, %muli_1, %muli_2) : (tensor<1x64x64xbf16>, index, index, index) -> tensor<32x256xbf16, {layout = "patches", teams = array<i64: 1, 1>, unit = "subgroup"}>
      %constant_16 = arith.constant 0 : index
      %load_3 = "tile.load"(%view_1, %constant_16, %muli_0, %muli_3) : (tensor<1x32x64xf32>, index, index, index) -> tensor<16x256xf32, {layout = "patches", teams = array<i64: 1, 1>, unit = "subgroup"}>
      %mma_0 = "tile.mma"(%arg6, %slot_1, %slot_0) : (tensor<8x16x32xf32, {layout = "sums", teams = array<i64: 1, 1>, unit = "subgroup"}>, memref<2x16x256xbf16, {padding = 8 : i64, swizzle = 0 : i64}>, memref<1x32x256xbf16, {padding = 8 : i64, swizzle = 0 : i64}>) -> tensor<8x16x32xf32, {layout = "sums", teams = array<i64: 1, 1>, unit = "subgroup"}>
      scf.yield %load_2, %load_3, %mma_0 : tensor<32x256xbf16, {layout = "patches", teams = array<i64: 1, 1>, unit = "subgroup"}>, tensor<16x256xf32, {layout = "patches", teams = array<i64: 1, 1>, unit = "subgroup"}>, tensor<8x16x32xf32, {layout = "sums", teams = array<i64: 1, 1>, unit = "subgroup"}>
    }
    %add_parts_0 = "tile.add_parts"(%for_0#2) : (tensor<8x16x32xf32, {layout = "sums", teams = array<i64: 1, 1>, unit = "subgroup"}>) -> tensor<16x32xf32, {layout = "spread", teams = array<i64: 1, 1>, unit = "subgroup"}>
    %constant_17 = arith.constant 0 : index
    "tile.store"(%add_parts_0, %contract_0, %constant_17, %muli_0, %muli_1) : (tensor<16x32xf32, {layout = "spread", teams = array<i64: 1, 1>, unit = "subgroup"}>, tensor<32x64xf32>, index, index, index) -> ()
    return
  }
  func.func @y(%arg0: memref<8192xi8>, %arg1: memref<8192xi8>, %arg2: memref<8192xi8>) attributes {arguments = ["input:x", "weight:w", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 32, 64>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<32x64xf32>, tensor<64x64xbf16>, tensor<32x64xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<8192xi8> to memref<32x64xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<8192xi8> to memref<64x64xbf16>
    %constant_2 = arith.constant 0 : index
    %view_2 = memref.view %arg2[%constant_2][] : memref<8192xi8> to memref<32x64xf32>
    call @contraction_32x64(%view_0, %view_1, %view_2) : (memref<32x64xf32>, memref<64x64xbf16>, memref<32x64xf32>) -> ()
    return
  }
}
