// pass: shard-states{devices=2}
// target: cpu:x86-64-v3
// show: text
module {
  shard.grid @devices(shape = 2)
  func.func @train(%p0: tensor<4x3xf32>, %p1: tensor<4x3xf32>, %q: tensor<3xf32>, %w: tensor<2x4x3xf32>, %b: tensor<3xf32>, %m: tensor<2x4x3xf32>, %n: tensor<3xf32>) -> (tensor<f32>, tensor<2x4x3xf32>, tensor<3xf32>, tensor<2x4x3xf32>, tensor<3xf32>) attributes {arguments = ["input:p0", "input:p1", "input:q", "weight:w", "weight:b", "state:m", "state:n"], entry = "train", extents = array<i64>, inputs = {p0 = array<i64: 4, 3>, p1 = array<i64: 4, 3>, q = array<i64: 3>}, results = ["result:norm", "weight:w", "weight:b", "state:m", "state:n"], sizes = []} {
    %zero = arith.constant 0.0 : f32
    %s0 = shard.all_reduce %p0 on @devices grid_axes = [0] : tensor<4x3xf32> -> tensor<4x3xf32>
    %s1 = shard.all_reduce %p1 on @devices grid_axes = [0] : tensor<4x3xf32> -> tensor<4x3xf32>
    %t = shard.all_reduce %q on @devices grid_axes = [0] : tensor<3xf32> -> tensor<3xf32>
    %e0 = tensor.empty() : tensor<2x4x3xf32>
    %i1 = tensor.insert_slice %s1 into %e0[1, 0, 0] [1, 4, 3] [1, 1, 1] : tensor<4x3xf32> into tensor<2x4x3xf32>
    %g = tensor.insert_slice %s0 into %i1[0, 0, 0] [1, 4, 3] [1, 1, 1] : tensor<4x3xf32> into tensor<2x4x3xf32>
    %e1 = tensor.empty() : tensor<f32>
    %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<f32>) -> tensor<f32>
    %sum = linalg.reduce { arith.addf } ins(%g : tensor<2x4x3xf32>) outs(%f1 : tensor<f32>) dimensions = [0, 1, 2]
    %e2 = tensor.empty() : tensor<2x4x3xf32>
    %m2 = linalg.generic {indexing_maps = [affine_map<(l, o, k) -> (l, o, k)>, affine_map<(l, o, k) -> (l, o, k)>, affine_map<(l, o, k) -> (l, o, k)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%m, %g : tensor<2x4x3xf32>, tensor<2x4x3xf32>) outs(%e2 : tensor<2x4x3xf32>) {
    ^bb0(%a: f32, %x: f32, %o: f32):
      %y = arith.addf %a, %x : f32
      linalg.yield %y : f32
    } -> tensor<2x4x3xf32>
    %e3 = tensor.empty() : tensor<2x4x3xf32>
    %w2 = linalg.generic {indexing_maps = [affine_map<(l, o, k) -> (l, o, k)>, affine_map<(l, o, k) -> (l, o, k)>, affine_map<(l, o, k) -> (l, o, k)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%w, %m2 : tensor<2x4x3xf32>, tensor<2x4x3xf32>) outs(%e3 : tensor<2x4x3xf32>) {
    ^bb0(%a: f32, %x: f32, %o: f32):
      %y = arith.subf %a, %x : f32
      linalg.yield %y : f32
    } -> tensor<2x4x3xf32>
    %e4 = tensor.empty() : tensor<3xf32>
    %n2 = linalg.generic {indexing_maps = [affine_map<(k) -> (k)>, affine_map<(k) -> (k)>, affine_map<(k) -> (k)>], iterator_types = ["parallel"]} ins(%n, %t : tensor<3xf32>, tensor<3xf32>) outs(%e4 : tensor<3xf32>) {
    ^bb0(%a: f32, %x: f32, %o: f32):
      %y = arith.addf %a, %x : f32
      linalg.yield %y : f32
    } -> tensor<3xf32>
    return %sum, %w2, %n2, %m2, %n2 : tensor<f32>, tensor<2x4x3xf32>, tensor<3xf32>, tensor<2x4x3xf32>, tensor<3xf32>
  }
}
// ----- becomes
module {
  shard.grid @devices(shape = 2)
  func.func @train(%arg0: tensor<4x3xf32>, %arg1: tensor<4x3xf32>, %arg2: tensor<3xf32>, %arg3: tensor<2x4x3xf32>, %arg4: tensor<3xf32>, %arg5: tensor<2x2x3xf32>, %arg6: tensor<3xf32>) -> (tensor<f32>, tensor<2x4x3xf32>, tensor<3xf32>, tensor<2x2x3xf32>, tensor<3xf32>) attributes {arguments = ["input:p0", "input:p1", "input:q", "weight:w", "weight:b", "state:m", "state:n"], entry = "train", extents = array<i64>, inputs = {p0 = array<i64: 4, 3>, p1 = array<i64: 4, 3>, q = array<i64: 3>}, results = ["result:norm", "weight:w", "weight:b", "state:m", "state:n"], sizes = [], wholes = {m = array<i64: 2, 4, 3>}} {
    %constant_0 = arith.constant 0.000000e+00 : f32
    %reduce_scatter_0 = shard.reduce_scatter %arg0 on @devices grid_axes = [0] scatter_dim = 0 : tensor<4x3xf32> -> tensor<2x3xf32>
    %reduce_scatter_1 = shard.reduce_scatter %arg1 on @devices grid_axes = [0] scatter_dim = 0 : tensor<4x3xf32> -> tensor<2x3xf32>
    %all_reduce_0 = shard.all_reduce %arg2 on @devices grid_axes = [0] : tensor<3xf32> -> tensor<3xf32>
    %empty_0 = tensor.empty() : tensor<2x4x3xf32>
    %empty_1 = tensor.empty() : tensor<2x2x3xf32>
    %insert_slice_0 = tensor.insert_slice %reduce_scatter_1 into %empty_1[1, 0, 0] [1, 2, 3] [1, 1, 1] : tensor<2x3xf32> into tensor<2x2x3xf32>
    %insert_slice_1 = tensor.insert_slice %reduce_scatter_0 into %insert_slice_0[0, 0, 0] [1, 2, 3] [1, 1, 1] : tensor<2x3xf32> into tensor<2x2x3xf32>
    %empty_2 = tensor.empty() : tensor<f32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_2 : tensor<f32>) -> tensor<f32>
    %reduce_0 = linalg.reduce { arith.addf } ins(%insert_slice_1 : tensor<2x2x3xf32>) outs(%fill_0 : tensor<f32>) dimensions = [0, 1, 2] 
    %all_reduce_1 = shard.all_reduce %reduce_0 on @devices grid_axes = [0] : tensor<f32> -> tensor<f32>
    %empty_3 = tensor.empty() : tensor<2x4x3xf32>
    %empty_4 = tensor.empty() : tensor<2x2x3xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%arg5, %insert_slice_1 : tensor<2x2x3xf32>, tensor<2x2x3xf32>) outs(%empty_4 : tensor<2x2x3xf32>) {
    ^bb0(%in: f32, %in_12: f32, %out: f32):
      %addf_0 = arith.addf %in, %in_12 : f32
      linalg.yield %addf_0 : f32
    } -> tensor<2x2x3xf32>
    %empty_5 = tensor.empty() : tensor<2x4x3xf32>
    %empty_6 = tensor.empty() : tensor<2x2x3xf32>
    %extract_slice_0 = tensor.extract_slice %arg3[0, 0, 0] [1, 4, 3] [1, 1, 1] : tensor<2x4x3xf32> to tensor<4x3xf32>
    %all_slice_0 = shard.all_slice %extract_slice_0 on @devices grid_axes = [0] slice_axis = 0 : tensor<4x3xf32> -> tensor<2x3xf32>
    %insert_slice_2 = tensor.insert_slice %all_slice_0 into %empty_6[0, 0, 0] [1, 2, 3] [1, 1, 1] : tensor<2x3xf32> into tensor<2x2x3xf32>
    %extract_slice_1 = tensor.extract_slice %arg3[1, 0, 0] [1, 4, 3] [1, 1, 1] : tensor<2x4x3xf32> to tensor<4x3xf32>
    %all_slice_1 = shard.all_slice %extract_slice_1 on @devices grid_axes = [0] slice_axis = 0 : tensor<4x3xf32> -> tensor<2x3xf32>
    %insert_slice_3 = tensor.insert_slice %all_slice_1 into %insert_slice_2[1, 0, 0] [1, 2, 3] [1, 1, 1] : tensor<2x3xf32> into tensor<2x2x3xf32>
    %empty_7 = tensor.empty() : tensor<2x2x3xf32>
    %generic_1 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%insert_slice_3, %generic_0 : tensor<2x2x3xf32>, tensor<2x2x3xf32>) outs(%empty_7 : tensor<2x2x3xf32>) {
    ^bb0(%in: f32, %in_12: f32, %out: f32):
      %subf_0 = arith.subf %in, %in_12 : f32
      linalg.yield %subf_0 : f32
    } -> tensor<2x2x3xf32>
    %empty_8 = tensor.empty() : tensor<3xf32>
    %generic_2 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%arg6, %all_reduce_0 : tensor<3xf32>, tensor<3xf32>) outs(%empty_8 : tensor<3xf32>) {
    ^bb0(%in: f32, %in_12: f32, %out: f32):
      %addf_1 = arith.addf %in, %in_12 : f32
      linalg.yield %addf_1 : f32
    } -> tensor<3xf32>
    %extract_slice_2 = tensor.extract_slice %generic_1[0, 0, 0] [1, 2, 3] [1, 1, 1] : tensor<2x2x3xf32> to tensor<2x3xf32>
    %all_gather_0 = shard.all_gather %extract_slice_2 on @devices grid_axes = [0] gather_axis = 0 : tensor<2x3xf32> -> tensor<4x3xf32>
    %insert_slice_4 = tensor.insert_slice %all_gather_0 into %arg3[0, 0, 0] [1, 4, 3] [1, 1, 1] : tensor<4x3xf32> into tensor<2x4x3xf32>
    %extract_slice_3 = tensor.extract_slice %generic_1[1, 0, 0] [1, 2, 3] [1, 1, 1] : tensor<2x2x3xf32> to tensor<2x3xf32>
    %all_gather_1 = shard.all_gather %extract_slice_3 on @devices grid_axes = [0] gather_axis = 0 : tensor<2x3xf32> -> tensor<4x3xf32>
    %insert_slice_5 = tensor.insert_slice %all_gather_1 into %insert_slice_4[1, 0, 0] [1, 4, 3] [1, 1, 1] : tensor<4x3xf32> into tensor<2x4x3xf32>
    return %all_reduce_1, %insert_slice_5, %generic_2, %generic_0, %generic_2 : tensor<f32>, tensor<2x4x3xf32>, tensor<3xf32>, tensor<2x2x3xf32>, tensor<3xf32>
  }
}
