// pass: loop-softmax
// target: cpu:x86-64-v3
// show: text
module {
  func.func @rows(%arg0: memref<2x3xf32>, %arg1: memref<2x3xf32>) {
    linalg.softmax dimension(1) ins(%arg0 : memref<2x3xf32>) outs(%arg1 : memref<2x3xf32>)
    return
  }
}
// ----- becomes
module {
  func.func @rows(%arg0: memref<2x3xf32>, %arg1: memref<2x3xf32>) {
    %alloc_0 = memref.alloc() : memref<2xf32>
    %constant_0 = arith.constant 0xFF800000 : f32
    linalg.fill ins(%constant_0 : f32) outs(%alloc_0 : memref<2xf32>)
    linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%arg0 : memref<2x3xf32>) outs(%alloc_0 : memref<2xf32>) {
    ^bb0(%in: f32, %out: f32):
      %maximumf_0 = arith.maximumf %in, %out : f32
      linalg.yield %maximumf_0 : f32
    }
    %alloc_1 = memref.alloc() : memref<2xf32>
    %constant_1 = arith.constant 0.000000e+00 : f32
    linalg.fill ins(%constant_1 : f32) outs(%alloc_1 : memref<2xf32>)
    linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%arg0, %alloc_0 : memref<2x3xf32>, memref<2xf32>) outs(%alloc_1 : memref<2xf32>) {
    ^bb0(%in: f32, %in_2: f32, %out: f32):
      %subf_0 = arith.subf %in, %in_2 : f32
      %exp_0 = math.exp %subf_0 : f32
      %addf_0 = arith.addf %exp_0, %out : f32
      linalg.yield %addf_0 : f32
    }
    linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%arg0, %alloc_0, %alloc_1 : memref<2x3xf32>, memref<2xf32>, memref<2xf32>) outs(%arg1 : memref<2x3xf32>) {
    ^bb0(%in: f32, %in_2: f32, %in_3: f32, %out: f32):
      %subf_1 = arith.subf %in, %in_2 : f32
      %exp_1 = math.exp %subf_1 : f32
      %divf_0 = arith.divf %exp_1, %in_3 : f32
      linalg.yield %divf_0 : f32
    }
    memref.dealloc %alloc_0 : memref<2xf32>
    memref.dealloc %alloc_1 : memref<2xf32>
    return
  }
}
