// pass: shard-batch{devices=2}
// target: cpu:x86-64-v3
// show: text
module {
  func.func @top(%x: tensor<8x4xf32>) -> tensor<4xf32> attributes {arguments = ["input:x"], batched = array<i64: 0>, entry = "top", extents = array<i64: 8>, inputs = {x = array<i64: 8, 4>}, results = ["result:top"], sizes = ["batch"]} {
    %least = arith.constant 0xFF800000 : f32
    %e = tensor.empty() : tensor<4xf32>
    %f = linalg.fill ins(%least : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %top = linalg.reduce { arith.maximumf } ins(%x : tensor<8x4xf32>) outs(%f : tensor<4xf32>) dimensions = [0]
    return %top : tensor<4xf32>
  }
}
// ----- becomes
module {
  shard.grid @devices(shape = 2)
  func.func @top(%arg0: tensor<4x4xf32>) -> tensor<4xf32> attributes {arguments = ["input:x"], entry = "top", extents = array<i64: 4>, inputs = {x = array<i64: 4, 4>}, results = ["result:top"], sizes = ["batch"]} {
    %constant_0 = arith.constant 0xFF800000 : f32
    %empty_0 = tensor.empty() : tensor<4xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<4xf32>) -> tensor<4xf32>
    %reduce_0 = linalg.reduce { arith.maximumf } ins(%arg0 : tensor<4x4xf32>) outs(%fill_0 : tensor<4xf32>) dimensions = [0] 
    %all_reduce_0 = shard.all_reduce %reduce_0 on @devices grid_axes = [0] reduction = max : tensor<4xf32> -> tensor<4xf32>
    return %all_reduce_0 : tensor<4xf32>
  }
}
