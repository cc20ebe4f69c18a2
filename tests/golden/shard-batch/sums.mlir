// pass: shard-batch{devices=2}
// target: cpu:x86-64-v3
// show: text
module {
  func.func @train(%x: tensor<8x3x4xf32>, %w: tensor<2x4xf32>) -> (tensor<f32>, tensor<2x4xf32>) attributes {arguments = ["input:x", "weight:w"], batched = array<i64: 0, -1>, entry = "train", extents = array<i64: 8>, inputs = {x = array<i64: 8, 3, 4>}, results = ["result:loss", "weight:w"], sizes = ["batch"]} {
    %zero = arith.constant 0.0 : f32
    %rows = tensor.collapse_shape %x [[0, 1], [2]] : tensor<8x3x4xf32> into tensor<24x4xf32>
    %e0 = tensor.empty() : tensor<24x2xf32>
    %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<24x2xf32>) -> tensor<24x2xf32>
    %y = linalg.contract indexing_maps = [affine_map<(r, o, k) -> (r, k)>, affine_map<(r, o, k) -> (o, k)>, affine_map<(r, o, k) -> (r, o)>] ins(%rows, %w : tensor<24x4xf32>, tensor<2x4xf32>) outs(%f0 : tensor<24x2xf32>) -> tensor<24x2xf32>
    %e1 = tensor.empty() : tensor<f32>
    %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<f32>) -> tensor<f32>
    %loss = linalg.reduce { arith.addf } ins(%y : tensor<24x2xf32>) outs(%f1 : tensor<f32>) dimensions = [0, 1]
    %e2 = tensor.empty() : tensor<4xf32>
    %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<4xf32>) -> tensor<4xf32>
    %part = linalg.reduce { arith.addf } ins(%rows : tensor<24x4xf32>) outs(%f2 : tensor<4xf32>) dimensions = [0]
    %e3 = tensor.empty() : tensor<2x4xf32>
    %one = tensor.insert_slice %part into %e3[0, 0] [1, 4] [1, 1] : tensor<4xf32> into tensor<2x4xf32>
    %both = tensor.insert_slice %part into %one[1, 0] [1, 4] [1, 1] : tensor<4xf32> into tensor<2x4xf32>
    %e4 = tensor.empty() : tensor<2x4xf32>
    %next = linalg.generic {indexing_maps = [affine_map<(o, k) -> (o, k)>, affine_map<(o, k) -> (o, k)>, affine_map<(o, k) -> (o, k)>], iterator_types = ["parallel", "parallel"]} ins(%w, %both : tensor<2x4xf32>, tensor<2x4xf32>) outs(%e4 : tensor<2x4xf32>) {
    ^bb0(%a: f32, %g: f32, %o: f32):
      %s = arith.mulf %g, %g : f32
      %n = arith.subf %a, %s : f32
      linalg.yield %n : f32
    } -> tensor<2x4xf32>
    return %loss, %next : tensor<f32>, tensor<2x4xf32>
  }
}
// ----- becomes
module {
  shard.grid @devices(shape = 2)
  func.func @train(%arg0: tensor<4x3x4xf32>, %arg1: tensor<2x4xf32>) -> (tensor<f32>, tensor<2x4xf32>) attributes {arguments = ["input:x", "weight:w"], entry = "train", extents = array<i64: 4>, inputs = {x = array<i64: 4, 3, 4>}, results = ["result:loss", "weight:w"], sizes = ["batch"]} {
    %constant_0 = arith.constant 0.000000e+00 : f32
    %collapse_shape_0 = tensor.collapse_shape %arg0 [[0, 1], [2]] : tensor<4x3x4xf32> into tensor<12x4xf32>
    %empty_0 = tensor.empty() : tensor<24x2xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<24x2xf32>) -> tensor<24x2xf32>
    %empty_1 = tensor.empty() : tensor<12x2xf32>
    %fill_1 = linalg.fill ins(%constant_0 : f32) outs(%empty_1 : tensor<12x2xf32>) -> tensor<12x2xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%collapse_shape_0, %arg1 : tensor<12x4xf32>, tensor<2x4xf32>) outs(%fill_1 : tensor<12x2xf32>) -> tensor<12x2xf32>
    %empty_2 = tensor.empty() : tensor<f32>
    %fill_2 = linalg.fill ins(%constant_0 : f32) outs(%empty_2 : tensor<f32>) -> tensor<f32>
    %reduce_0 = linalg.reduce { arith.addf } ins(%contract_0 : tensor<12x2xf32>) outs(%fill_2 : tensor<f32>) dimensions = [0, 1] 
    %all_reduce_0 = shard.all_reduce %reduce_0 on @devices grid_axes = [0] : tensor<f32> -> tensor<f32>
    %empty_3 = tensor.empty() : tensor<4xf32>
    %fill_3 = linalg.fill ins(%constant_0 : f32) outs(%empty_3 : tensor<4xf32>) -> tensor<4xf32>
    %reduce_1 = linalg.reduce { arith.addf } ins(%collapse_shape_0 : tensor<12x4xf32>) outs(%fill_3 : tensor<4xf32>) dimensions = [0] 
    %all_reduce_1 = shard.all_reduce %reduce_1 on @devices grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
    %empty_4 = tensor.empty() : tensor<2x4xf32>
    %insert_slice_0 = tensor.insert_slice %all_reduce_1 into %empty_4[0, 0] [1, 4] [1, 1] : tensor<4xf32> into tensor<2x4xf32>
    %insert_slice_1 = tensor.insert_slice %all_reduce_1 into %insert_slice_0[1, 0] [1, 4] [1, 1] : tensor<4xf32> into tensor<2x4xf32>
    %empty_5 = tensor.empty() : tensor<2x4xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%arg1, %insert_slice_1 : tensor<2x4xf32>, tensor<2x4xf32>) outs(%empty_5 : tensor<2x4xf32>) {
    ^bb0(%in: f32, %in_3: f32, %out: f32):
      %mulf_0 = arith.mulf %in_3, %in_3 : f32
      %subf_0 = arith.subf %in, %mulf_0 : f32
      linalg.yield %subf_0 : f32
    } -> tensor<2x4xf32>
    return %all_reduce_0, %generic_0 : tensor<f32>, tensor<2x4xf32>
  }
}
