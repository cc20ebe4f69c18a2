// pass: shard-batch{devices=2}
// target: cpu:x86-64-v3
// show: error
module {
  func.func @product(%x: tensor<8x4xf32>) -> tensor<4xf32> attributes {arguments = ["input:x"], batched = array<i64: 0>, entry = "product", extents = array<i64: 8>, inputs = {x = array<i64: 8, 4>}, results = ["result:product"], sizes = ["batch"]} {
    %one = arith.constant 1.0 : f32
    %e = tensor.empty() : tensor<4xf32>
    %f = linalg.fill ins(%one : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %product = linalg.reduce { arith.mulf } ins(%x : tensor<8x4xf32>) outs(%f : tensor<4xf32>) dimensions = [0]
    return %product : tensor<4xf32>
  }
}
// ----- becomes
pass shard-batch failed: this cannot be divided among devices: what it makes of all sequences together is no sum, and neither their largest nor their least (linalg.reduce)
