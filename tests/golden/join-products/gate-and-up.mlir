// pass: join-products{when=always}
// target: cuda:sm_90a
// show: text
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d1, d2)>
#map2 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map3 = affine_map<(d0, d1) -> (d0, d1)>
module {
  func.func private @contraction_8x64(%arg0: memref<8x64xf32>, %arg1: memref<64x64xbf16>, %arg2: memref<8x64xf32>) attributes {access = ["read", "read", "write"], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 8, 64, 64>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1], work = {bytes = 12288 : i64, context = 0 : i64, operations = 67584 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %0 = bufferization.to_tensor %arg0 restrict : memref<8x64xf32> to tensor<8x64xf32>
    %1 = bufferization.to_tensor %arg1 restrict : memref<64x64xbf16> to tensor<64x64xbf16>
    %cst = arith.constant 0.000000e+00 : f32
    %2 = tensor.empty() : tensor<8x64xf32>
    %3 = linalg.fill ins(%cst : f32) outs(%2 : tensor<8x64xf32>) -> tensor<8x64xf32>
    %4 = linalg.contract indexing_maps = [#map, #map1, #map2] ins(%0, %1 : tensor<8x64xf32>, tensor<64x64xbf16>) outs(%3 : tensor<8x64xf32>) -> tensor<8x64xf32>
    %cst_0 = arith.constant 1.000000e+00 : f32
    %5 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%4 : tensor<8x64xf32>) outs(%2 : tensor<8x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      %6 = arith.subf %cst, %in : f32
      %7 = math.exp %6 : f32
      %8 = arith.addf %cst_0, %7 : f32
      %9 = arith.divf %in, %8 : f32
      linalg.yield %9 : f32
    } -> tensor<8x64xf32>
    bufferization.materialize_in_destination %5 in restrict writable %arg2 : (tensor<8x64xf32>, memref<8x64xf32>) -> ()
    return
  }
  func.func private @contraction_8x64_2(%arg0: memref<8x64xf32>, %arg1: memref<64x64xbf16>, %arg2: memref<8x64xf32>, %arg3: memref<8x64xf32>) attributes {access = ["read", "read", "read", "write"], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 8, 64, 64>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1], work = {bytes = 14336 : i64, context = 0 : i64, operations = 66048 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %0 = bufferization.to_tensor %arg0 restrict : memref<8x64xf32> to tensor<8x64xf32>
    %1 = bufferization.to_tensor %arg1 restrict : memref<64x64xbf16> to tensor<64x64xbf16>
    %2 = bufferization.to_tensor %arg2 restrict : memref<8x64xf32> to tensor<8x64xf32>
    %cst = arith.constant 0.000000e+00 : f32
    %3 = tensor.empty() : tensor<8x64xf32>
    %4 = linalg.fill ins(%cst : f32) outs(%3 : tensor<8x64xf32>) -> tensor<8x64xf32>
    %5 = linalg.contract indexing_maps = [#map, #map1, #map2] ins(%0, %1 : tensor<8x64xf32>, tensor<64x64xbf16>) outs(%4 : tensor<8x64xf32>) -> tensor<8x64xf32>
    %6 = linalg.generic {indexing_maps = [#map3, #map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%2, %5 : tensor<8x64xf32>, tensor<8x64xf32>) outs(%3 : tensor<8x64xf32>) {
    ^bb0(%in: f32, %in_0: f32, %out: f32):
      %7 = arith.mulf %in, %in_0 : f32
      linalg.yield %7 : f32
    } -> tensor<8x64xf32>
    bufferization.materialize_in_destination %6 in restrict writable %arg3 : (tensor<8x64xf32>, memref<8x64xf32>) -> ()
    return
  }
  func.func @y(%arg0: memref<2048xi8>, %arg1: memref<8192xi8>, %arg2: memref<8192xi8>, %arg3: memref<2048xi8>) attributes {arguments = ["input:x", "weight:gate", "weight:up", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 8, 64>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<8x64xf32>, tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<8x64xf32>]} {
    %c0 = arith.constant 0 : index
    %view = memref.view %arg0[%c0][] : memref<2048xi8> to memref<8x64xf32>
    %c0_0 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%c0_0][] : memref<8192xi8> to memref<64x64xbf16>
    %alloc = memref.alloc() : memref<8x64xf32>
    call @contraction_8x64(%view, %view_1, %alloc) : (memref<8x64xf32>, memref<64x64xbf16>, memref<8x64xf32>) -> ()
    %c0_2 = arith.constant 0 : index
    %view_3 = memref.view %arg0[%c0_2][] : memref<2048xi8> to memref<8x64xf32>
    %c0_4 = arith.constant 0 : index
    %view_5 = memref.view %arg2[%c0_4][] : memref<8192xi8> to memref<64x64xbf16>
    %c0_6 = arith.constant 0 : index
    %view_7 = memref.view %arg3[%c0_6][] : memref<2048xi8> to memref<8x64xf32>
    call @contraction_8x64_2(%view_3, %view_5, %alloc, %view_7) : (memref<8x64xf32>, memref<64x64xbf16>, memref<8x64xf32>, memref<8x64xf32>) -> ()
    return
  }
}
// ----- becomes
module {
  func.func private @products_8x64(%arg0: memref<8x64xf32>, %arg1: memref<64x64xbf16>, %arg2: memref<64x64xbf16>, %arg3: memref<8x64xf32>) attributes {access = ["read", "read", "read", "write"], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 8, 64, 64>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1], work = {bytes = 20480 : i64, context = 0 : i64, operations = 133632 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<8x64xf32> to tensor<8x64xf32>
    %to_tensor_1 = bufferization.to_tensor %arg1 restrict : memref<64x64xbf16> to tensor<64x64xbf16>
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<8x64xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<8x64xf32>) -> tensor<8x64xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%to_tensor_0, %to_tensor_1 : tensor<8x64xf32>, tensor<64x64xbf16>) outs(%fill_0 : tensor<8x64xf32>) -> tensor<8x64xf32>
    %constant_1 = arith.constant 1.000000e+00 : f32
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%contract_0 : tensor<8x64xf32>) outs(%empty_0 : tensor<8x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      %subf_0 = arith.subf %constant_0, %in : f32
      %exp_0 = math.exp %subf_0 : f32
      %addf_0 = arith.addf %constant_1, %exp_0 : f32
      %divf_0 = arith.divf %in, %addf_0 : f32
      linalg.yield %divf_0 : f32
    } -> tensor<8x64xf32>
    %to_tensor_2 = bufferization.to_tensor %arg2 restrict : memref<64x64xbf16> to tensor<64x64xbf16>
    %contract_1 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%to_tensor_0, %to_tensor_2 : tensor<8x64xf32>, tensor<64x64xbf16>) outs(%fill_0 : tensor<8x64xf32>) -> tensor<8x64xf32>
    %generic_1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%generic_0, %contract_1 : tensor<8x64xf32>, tensor<8x64xf32>) outs(%empty_0 : tensor<8x64xf32>) {
    ^bb0(%in: f32, %in_1: f32, %out: f32):
      %mulf_0 = arith.mulf %in, %in_1 : f32
      linalg.yield %mulf_0 : f32
    } -> tensor<8x64xf32>
    bufferization.materialize_in_destination %generic_1 in restrict writable %arg3 : (tensor<8x64xf32>, memref<8x64xf32>) -> ()
    return
  }
  func.func @y(%arg0: memref<2048xi8>, %arg1: memref<8192xi8>, %arg2: memref<8192xi8>, %arg3: memref<2048xi8>) attributes {arguments = ["input:x", "weight:gate", "weight:up", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 8, 64>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<8x64xf32>, tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<8x64xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<2048xi8> to memref<8x64xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<8192xi8> to memref<64x64xbf16>
    %constant_2 = arith.constant 0 : index
    %view_2 = memref.view %arg0[%constant_2][] : memref<2048xi8> to memref<8x64xf32>
    %constant_3 = arith.constant 0 : index
    %view_3 = memref.view %arg2[%constant_3][] : memref<8192xi8> to memref<64x64xbf16>
    %constant_4 = arith.constant 0 : index
    %view_4 = memref.view %arg3[%constant_4][] : memref<2048xi8> to memref<8x64xf32>
    call @products_8x64(%view_0, %view_1, %view_3, %view_4) : (memref<8x64xf32>, memref<64x64xbf16>, memref<64x64xbf16>, memref<8x64xf32>) -> ()
    return
  }
}
