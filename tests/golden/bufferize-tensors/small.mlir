// pass: bufferize-tensors
// target: cpu:x86-64-v3
// show: text
module {
  func.func @main() -> f32 {
    %constant_0 = arith.constant 1 : index
    %constant_1 = arith.constant 0.000000e+00 : f32
    %constant_2 = arith.constant dense<[1.000000e+00, 2.000000e+00, 3.000000e+00]> : tensor<3xf32>
    %empty_0 = tensor.empty() : tensor<3xf32>
    %fill_0 = linalg.fill ins(%constant_1 : f32) outs(%empty_0 : tensor<3xf32>) -> tensor<3xf32>
    %add_0 = linalg.add ins(%constant_2, %constant_2 : tensor<3xf32>, tensor<3xf32>) outs(%fill_0 : tensor<3xf32>) -> tensor<3xf32>
    %extract_0 = tensor.extract %add_0[%constant_0] : tensor<3xf32>
    return %extract_0 : f32
  }
}
// ----- becomes
module {
  memref.global "private" constant @__constant_3xf32 : memref<3xf32> = dense<[1.000000e+00, 2.000000e+00, 3.000000e+00]> {alignment = 64 : i64}
  func.func @main() -> f32 {
    %constant_0 = arith.constant 1 : index
    %constant_1 = arith.constant 0.000000e+00 : f32
    %get_global_0 = memref.get_global @__constant_3xf32 : memref<3xf32>
    %alloc_0 = memref.alloc() {alignment = 64 : i64} : memref<3xf32>
    linalg.fill ins(%constant_1 : f32) outs(%alloc_0 : memref<3xf32>)
    linalg.add ins(%get_global_0, %get_global_0 : memref<3xf32>, memref<3xf32>) outs(%alloc_0 : memref<3xf32>)
    %load_0 = memref.load %alloc_0[%constant_0] : memref<3xf32>
    memref.dealloc %alloc_0 : memref<3xf32>
    return %load_0 : f32
  }
}
