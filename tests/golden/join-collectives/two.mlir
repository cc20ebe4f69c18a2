// pass: join-collectives{bytes=1024}
// target: cpu:x86-64-v3
// show: text
module {
  shard.grid @devices(shape = 2)
  func.func private @all_reduce_f32_4(memref<4xf32>) attributes {access = ["read_write"], collective = "all_reduce"}
  func.func private @all_reduce_f32_8(memref<8xf32>) attributes {access = ["read_write"], collective = "all_reduce"}
  func.func private @k(%from: memref<4xf32>, %to: memref<8xf32>) attributes {access = ["read", "write"], kernel = "rows", tied = [-1]} {
    return
  }
  func.func @e(%x: memref<16xi8>, %y: memref<32xi8>) attributes {arguments = ["input:x", "result:y"], entry = "e", extents = array<i64>, inputs = {x = array<i64: 4>}, results = ["result:y"], sizes = [], types = [tensor<4xf32>, tensor<8xf32>]} {
    %c0 = arith.constant 0 : index
    %c16 = arith.constant 16 : index
    %a = memref.view %x[%c0][] : memref<16xi8> to memref<4xf32>
    %r = memref.view %y[%c0][] : memref<32xi8> to memref<8xf32>
    %half = memref.view %y[%c16][] : memref<32xi8> to memref<4xf32>
    %b = memref.alloc() : memref<8xf32>
    %c = memref.alloc() : memref<4xf32>
    call @k(%a, %b) : (memref<4xf32>, memref<8xf32>) -> ()
    call @all_reduce_f32_8(%b) : (memref<8xf32>) -> ()
    call @all_reduce_f32_4(%c) : (memref<4xf32>) -> ()
    call @k(%a, %r) : (memref<4xf32>, memref<8xf32>) -> ()
    call @k(%c, %r) : (memref<4xf32>, memref<8xf32>) -> ()
    call @all_reduce_f32_4(%half) : (memref<4xf32>) -> ()
    return
  }
}
// ----- becomes
module {
  func.func private @all_reduce_2(memref<8xf32>, memref<4xf32>) attributes {access = ["read_write", "read_write"], collective = "all_reduce"}
  shard.grid @devices(shape = 2)
  func.func private @all_reduce_f32_4(memref<4xf32>) attributes {access = ["read_write"], collective = "all_reduce"}
  func.func private @k(%arg0: memref<4xf32>, %arg1: memref<8xf32>) attributes {access = ["read", "write"], kernel = "rows", tied = [-1]} {
    return
  }
  func.func @e(%arg0: memref<16xi8>, %arg1: memref<32xi8>) attributes {arguments = ["input:x", "result:y"], entry = "e", extents = array<i64>, inputs = {x = array<i64: 4>}, results = ["result:y"], sizes = [], types = [tensor<4xf32>, tensor<8xf32>]} {
    %constant_0 = arith.constant 0 : index
    %constant_1 = arith.constant 16 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<16xi8> to memref<4xf32>
    %view_1 = memref.view %arg1[%constant_0][] : memref<32xi8> to memref<8xf32>
    %view_2 = memref.view %arg1[%constant_1][] : memref<32xi8> to memref<4xf32>
    %alloc_0 = memref.alloc() : memref<8xf32>
    %alloc_1 = memref.alloc() : memref<4xf32>
    call @k(%view_0, %alloc_0) : (memref<4xf32>, memref<8xf32>) -> ()
    call @k(%view_0, %view_1) : (memref<4xf32>, memref<8xf32>) -> ()
    call @all_reduce_2(%alloc_0, %alloc_1) : (memref<8xf32>, memref<4xf32>) -> ()
    call @k(%alloc_1, %view_1) : (memref<4xf32>, memref<8xf32>) -> ()
    call @all_reduce_f32_4(%view_2) : (memref<4xf32>) -> ()
    return
  }
}
