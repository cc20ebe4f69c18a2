// pass: delay-collectives{when=always gigabytes=250 blocks=16}
// target: cuda:sm_90a
// show: text
module {
  shard.grid @devices(shape = 2)
  func.func private @all_reduce_f32_4(memref<4xf32>) attributes {access = ["read_write"], collective = "all_reduce"}
  func.func private @product(%from: memref<4xf32>, %to: memref<4xf32>) attributes {access = ["read", "write"], kernel = "contraction", tied = [-1], grid = [132, 1, 1], block = [384, 1, 1], work = {bytes = 400000000, context = 0, operations = 100000000000, position_bytes = 0, position_operations = 0}} {
    return
  }
  func.func private @short(%from: memref<4xf32>, %to: memref<4xf32>) attributes {access = ["read", "write"], kernel = "rows", tied = [-1], grid = [4096, 1, 1], block = [96, 1, 1], work = {bytes = 0, context = 0, operations = 0, position_bytes = 0, position_operations = 0}} {
    return
  }
  func.func private @attention(%from: memref<4xf32>, %to: memref<4xf32>) attributes {access = ["read", "write"], kernel = "attention-gradient", tied = [-1], grid = [16, 384, 1], block = [128, 1, 1], work = {bytes = 300000000, context = 0, operations = 100000000000, position_bytes = 0, position_operations = 0}} {
    return
  }
  func.func @e(%x: memref<16xi8>, %y: memref<16xi8>) attributes {arguments = ["input:x", "result:y"], entry = "e", extents = array<i64>, inputs = {x = array<i64: 4>}, results = ["result:y"], sizes = [], types = [tensor<4xf32>, tensor<4xf32>]} {
    %c0 = arith.constant 0 : index
    %in = memref.view %x[%c0][] : memref<16xi8> to memref<4xf32>
    %out = memref.view %y[%c0][] : memref<16xi8> to memref<4xf32>
    %first = memref.alloc() : memref<4xf32>
    %second = memref.alloc() : memref<4xf32>
    %other = memref.alloc() : memref<4xf32>
    call @product(%in, %first) : (memref<4xf32>, memref<4xf32>) -> ()
    call @all_reduce_f32_4(%first) : (memref<4xf32>) -> ()
    call @short(%in, %other) : (memref<4xf32>, memref<4xf32>) -> ()
    call @product(%in, %second) : (memref<4xf32>, memref<4xf32>) -> ()
    call @all_reduce_f32_4(%second) : (memref<4xf32>) -> ()
    call @product(%second, %other) : (memref<4xf32>, memref<4xf32>) -> ()
    call @short(%in, %other) : (memref<4xf32>, memref<4xf32>) -> ()
    call @attention(%in, %other) : (memref<4xf32>, memref<4xf32>) -> ()
    call @product(%first, %out) : (memref<4xf32>, memref<4xf32>) -> ()
    return
  }
}
// ----- becomes
module {
  shard.grid @devices(shape = 2)
  func.func private @all_reduce_f32_4(memref<4xf32>) attributes {access = ["read_write"], collective = "all_reduce"}
  func.func private @product(%arg0: memref<4xf32>, %arg1: memref<4xf32>) attributes {access = ["read", "write"], block = [384, 1, 1], grid = [132, 1, 1], kernel = "contraction", tied = [-1], work = {bytes = 400000000 : i64, context = 0 : i64, operations = 100000000000 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    return
  }
  func.func private @short(%arg0: memref<4xf32>, %arg1: memref<4xf32>) attributes {access = ["read", "write"], block = [96, 1, 1], grid = [4096, 1, 1], kernel = "rows", tied = [-1], work = {bytes = 0 : i64, context = 0 : i64, operations = 0 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    return
  }
  func.func private @attention(%arg0: memref<4xf32>, %arg1: memref<4xf32>) attributes {access = ["read", "write"], block = [128, 1, 1], grid = [16, 384, 1], kernel = "attention-gradient", tied = [-1], work = {bytes = 300000000 : i64, context = 0 : i64, operations = 100000000000 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    return
  }
  func.func @e(%arg0: memref<16xi8>, %arg1: memref<16xi8>) attributes {arguments = ["input:x", "result:y"], entry = "e", extents = array<i64>, inputs = {x = array<i64: 4>}, results = ["result:y"], sizes = [], types = [tensor<4xf32>, tensor<4xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<16xi8> to memref<4xf32>
    %view_1 = memref.view %arg1[%constant_0][] : memref<16xi8> to memref<4xf32>
    %alloc_0 = memref.alloc() : memref<4xf32>
    %alloc_1 = memref.alloc() : memref<4xf32>
    %alloc_2 = memref.alloc() : memref<4xf32>
    call @product(%view_0, %alloc_0) : (memref<4xf32>, memref<4xf32>) -> ()
    call @short(%view_0, %alloc_2) : (memref<4xf32>, memref<4xf32>) -> ()
    call @product(%view_0, %alloc_1) : (memref<4xf32>, memref<4xf32>) -> ()
    call @all_reduce_f32_4(%alloc_1) : (memref<4xf32>) -> ()
    call @product(%alloc_1, %alloc_2) : (memref<4xf32>, memref<4xf32>) -> ()
    call @all_reduce_f32_4(%alloc_0) : (memref<4xf32>) -> ()
    call @short(%view_0, %alloc_2) : (memref<4xf32>, memref<4xf32>) -> ()
    call @attention(%view_0, %alloc_2) : (memref<4xf32>, memref<4xf32>) -> ()
    call @product(%alloc_0, %view_1) : (memref<4xf32>, memref<4xf32>) -> ()
    return
  }
}
