// pass: mask-rows
// target: cpu:x86-64-v3
// show: text
module {
  func.func @loss_batch4(%x: tensor<4x2xf32>, %w: tensor<3x2xf32>) -> (tensor<f32>, tensor<3x2xf32>) attributes {arguments = ["input:x", "weight:w"], batched = array<i64: 0, -1>, entry = "loss", extents = array<i64: 4>, inputs = {x = array<i64: 4, 2>}, results = ["result:loss", "weight:w"], sizes = ["batch"], up_to = "batch", varies = [array<i64: 0>, array<i64>]} {
    %zero = arith.constant 0.000000e+00 : f32
    %empty = tensor.empty() {varies = [array<i64: 0>]} : tensor<4x3xf32>
    %filled = linalg.fill {varies = [array<i64: 0>]} ins(%zero : f32) outs(%empty : tensor<4x3xf32>) -> tensor<4x3xf32>
    %h = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] {varies = [array<i64: 0>]} ins(%x, %w : tensor<4x2xf32>, tensor<3x2xf32>) outs(%filled : tensor<4x3xf32>) -> tensor<4x3xf32>
    %none = tensor.empty() : tensor<f32>
    %start = linalg.fill ins(%zero : f32) outs(%none : tensor<f32>) -> tensor<f32>
    %sum = linalg.reduce { arith.addf } ins(%h : tensor<4x3xf32>) outs(%start : tensor<f32>) dimensions = [0, 1]
    %mean = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []} ins(%sum : tensor<f32>) outs(%none : tensor<f32>) {
    ^bb0(%in: f32, %out: f32):
      %count = arith.constant {of_size = {factor = 3.000000e+00 : f64, form = "times"}} 1.200000e+01 : f32
      %each = arith.divf %in, %count : f32
      linalg.yield %each : f32
    } -> tensor<f32>
    %nothing = tensor.empty() : tensor<3x2xf32>
    %zeros = linalg.fill ins(%zero : f32) outs(%nothing : tensor<3x2xf32>) -> tensor<3x2xf32>
    %g = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d2, d0)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%h, %x : tensor<4x3xf32>, tensor<4x2xf32>) outs(%zeros : tensor<3x2xf32>) -> tensor<3x2xf32>
    return %mean, %g : tensor<f32>, tensor<3x2xf32>
  }
}
// ----- becomes
module {
  func.func @loss_batch4(%arg0: tensor<4x2xf32>, %arg1: tensor<3x2xf32>, %arg2: tensor<i32>) -> (tensor<f32>, tensor<3x2xf32>) attributes {arguments = ["input:x", "weight:w", "size:batch"], batched = array<i64: 0, -1, -1>, counted = {"input:x" = [array<i64: 0, 1>]}, entry = "loss", extents = array<i64: 4>, inputs = {x = array<i64: 4, 2>}, results = ["result:loss", "weight:w"], sizes = ["batch"], up_to = "batch"} {
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<4x3xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<4x3xf32>) -> tensor<4x3xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%arg0, %arg1 : tensor<4x2xf32>, tensor<3x2xf32>) outs(%fill_0 : tensor<4x3xf32>) -> tensor<4x3xf32>
    %empty_1 = tensor.empty() : tensor<f32>
    %fill_1 = linalg.fill ins(%constant_0 : f32) outs(%empty_1 : tensor<f32>) -> tensor<f32>
    %empty_2 = tensor.empty() : tensor<4x3xf32>
    %generic_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ()>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%contract_0, %arg2 : tensor<4x3xf32>, tensor<i32>) outs(%empty_2 : tensor<4x3xf32>) {
    ^bb0(%in: f32, %in_0: i32, %out: f32):
      %index_0 = linalg.index 0 : index
      %index_cast_0 = arith.index_cast %index_0 : index to i32
      %cmpi_0 = arith.cmpi slt, %index_cast_0, %in_0 : i32
      %constant_1 = arith.constant 0.000000e+00 : f32
      %select_0 = arith.select %cmpi_0, %in, %constant_1 : f32
      linalg.yield %select_0 : f32
    } -> tensor<4x3xf32>
    %reduce_0 = linalg.reduce { arith.addf } ins(%generic_0 : tensor<4x3xf32>) outs(%fill_1 : tensor<f32>) dimensions = [0, 1] 
    %generic_1 = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []} ins(%reduce_0 : tensor<f32>) outs(%empty_1 : tensor<f32>) {
    ^bb0(%in: f32, %out: f32):
      %extract_0 = tensor.extract %arg2[] : tensor<i32>
      %sitofp_0 = arith.sitofp %extract_0 : i32 to f32
      %constant_2 = arith.constant 3.000000e+00 : f32
      %mulf_0 = arith.mulf %constant_2, %sitofp_0 : f32
      %divf_0 = arith.divf %in, %mulf_0 : f32
      linalg.yield %divf_0 : f32
    } -> tensor<f32>
    %empty_3 = tensor.empty() : tensor<3x2xf32>
    %fill_2 = linalg.fill ins(%constant_0 : f32) outs(%empty_3 : tensor<3x2xf32>) -> tensor<3x2xf32>
    %empty_4 = tensor.empty() : tensor<4x3xf32>
    %generic_2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ()>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%contract_0, %arg2 : tensor<4x3xf32>, tensor<i32>) outs(%empty_4 : tensor<4x3xf32>) {
    ^bb0(%in: f32, %in_0: i32, %out: f32):
      %index_1 = linalg.index 0 : index
      %index_cast_1 = arith.index_cast %index_1 : index to i32
      %cmpi_1 = arith.cmpi slt, %index_cast_1, %in_0 : i32
      %constant_3 = arith.constant 0.000000e+00 : f32
      %select_1 = arith.select %cmpi_1, %in, %constant_3 : f32
      linalg.yield %select_1 : f32
    } -> tensor<4x3xf32>
    %empty_5 = tensor.empty() : tensor<4x2xf32>
    %generic_3 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ()>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%arg0, %arg2 : tensor<4x2xf32>, tensor<i32>) outs(%empty_5 : tensor<4x2xf32>) {
    ^bb0(%in: f32, %in_0: i32, %out: f32):
      %index_2 = linalg.index 0 : index
      %index_cast_2 = arith.index_cast %index_2 : index to i32
      %cmpi_2 = arith.cmpi slt, %index_cast_2, %in_0 : i32
      %constant_4 = arith.constant 0.000000e+00 : f32
      %select_2 = arith.select %cmpi_2, %in, %constant_4 : f32
      linalg.yield %select_2 : f32
    } -> tensor<4x2xf32>
    %contract_1 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d2, d0)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%generic_2, %generic_3 : tensor<4x3xf32>, tensor<4x2xf32>) outs(%fill_2 : tensor<3x2xf32>) -> tensor<3x2xf32>
    return %generic_1, %contract_1 : tensor<f32>, tensor<3x2xf32>
  }
}
