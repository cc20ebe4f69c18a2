// pass: divide-batch{devices=2}
// target: cpu:x86-64-v3
// show: error
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
pass divide-batch failed: this cannot be divided among devices: what it makes of all sequences together is no sum (linalg.reduce)
