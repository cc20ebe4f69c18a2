// pass: destination-passing
// target: cpu:x86-64-v3
// show: text
module {
  func.func private @rows_4(%x: tensor<4xf32>) -> tensor<4xf32> attributes {kernel = "rows", tied = [-1]} {
    %e = tensor.empty() : tensor<4xf32>
    %y = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {
    ^bb0(%in: f32, %o: f32):
      %s = arith.addf %in, %in : f32
      linalg.yield %s : f32
    } -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
  func.func @y(%w: tensor<2x4xf32>) -> tensor<2x4xf32> attributes {arguments = ["weight:w"], entry = "y", extents = array<i64>, inputs = {}, repeatable, results = ["result:y"], sizes = []} {
    %w0 = tensor.extract_slice %w[0, 0] [1, 4] [1, 1] : tensor<2x4xf32> to tensor<4xf32>
    %a = call @rows_4(%w0) : (tensor<4xf32>) -> tensor<4xf32>
    %w1 = tensor.extract_slice %w[1, 0] [1, 4] [1, 1] : tensor<2x4xf32> to tensor<4xf32>
    %b = call @rows_4(%w1) : (tensor<4xf32>) -> tensor<4xf32>
    %e = tensor.empty() : tensor<2x4xf32>
    %one = tensor.insert_slice %a into %e[0, 0] [1, 4] [1, 1] : tensor<4xf32> into tensor<2x4xf32>
    %both = tensor.insert_slice %b into %one[1, 0] [1, 4] [1, 1] : tensor<4xf32> into tensor<2x4xf32>
    return %both : tensor<2x4xf32>
  }
}
// ----- becomes
module {
  func.func private @rows_4(%arg0: memref<4xf32>, %arg1: memref<4xf32>) attributes {access = ["read", "write"], kernel = "rows", tied = [-1]} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<4xf32> to tensor<4xf32>
    %empty_0 = tensor.empty() : tensor<4xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%to_tensor_0 : tensor<4xf32>) outs(%empty_0 : tensor<4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %addf_0 = arith.addf %in, %in : f32
      linalg.yield %addf_0 : f32
    } -> tensor<4xf32>
    bufferization.materialize_in_destination %generic_0 in restrict writable %arg1 : (tensor<4xf32>, memref<4xf32>) -> ()
    return
  }
  func.func @y(%arg0: memref<32xi8>, %arg1: memref<32xi8>) attributes {arguments = ["weight:w", "result:y"], entry = "y", extents = array<i64>, inputs = {}, repeatable, results = ["result:y"], sizes = [], types = [tensor<2x4xf32>, tensor<2x4xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<32xi8> to memref<4xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<32xi8> to memref<4xf32>
    call @rows_4(%view_0, %view_1) : (memref<4xf32>, memref<4xf32>) -> ()
    %constant_2 = arith.constant 16 : index
    %view_2 = memref.view %arg0[%constant_2][] : memref<32xi8> to memref<4xf32>
    %constant_3 = arith.constant 16 : index
    %view_3 = memref.view %arg1[%constant_3][] : memref<32xi8> to memref<4xf32>
    call @rows_4(%view_2, %view_3) : (memref<4xf32>, memref<4xf32>) -> ()
    return
  }
}
