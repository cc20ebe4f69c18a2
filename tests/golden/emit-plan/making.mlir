// pass: emit-plan
// target: cpu:x86-64-v3
// show: text
module {
  func.func private @rows_4(%arg0: memref<4xf32>, %arg1: memref<4xf32>) attributes {access = ["read", "write"], block = [1, 1, 1], grid = [1, 1, 1], kernel = "rows", shared_bytes = 0 : i64, tied = [-1]} {
    return
  }
  func.func @y(%w: memref<32xi8>, %made: memref<32xi8>, %y: memref<16xi8>, %arena: memref<256xi8>) attributes {arguments = ["weight:w", "made:w.0123abcd", "result:y", "arena:arena"], entry = "y", extents = array<i64>, inputs = {}, repeatable, results = ["result:y"], sizes = [], types = [tensor<2x4xf32>, tensor<2x4xf32>, tensor<4xf32>, tensor<256xi8>]} {
    %start = arith.constant 16 : index
    %zero = arith.constant 0 : index
    %read = memref.view %made[%start][] : memref<32xi8> to memref<4xf32>
    %written = memref.view %y[%zero][] : memref<16xi8> to memref<4xf32>
    call @rows_4(%read, %written) : (memref<4xf32>, memref<4xf32>) -> ()
    return
  }
  func.func @make_weights(%w: memref<32xi8>, %made: memref<32xi8>, %arena: memref<256xi8>) attributes {arguments = ["weight:w", "made:w.0123abcd", "arena:arena"], entry = "make-weights", extents = array<i64>, inputs = {}, makes, results = ["made:w.0123abcd"], sizes = [], types = [tensor<2x4xf32>, tensor<2x4xf32>, tensor<256xi8>]} {
    %start = arith.constant 16 : index
    %zero = arith.constant 0 : index
    %first = memref.view %w[%zero][] : memref<32xi8> to memref<4xf32>
    %one = memref.view %made[%zero][] : memref<32xi8> to memref<4xf32>
    call @rows_4(%first, %one) : (memref<4xf32>, memref<4xf32>) -> ()
    %second = memref.view %w[%start][] : memref<32xi8> to memref<4xf32>
    %other = memref.view %made[%start][] : memref<32xi8> to memref<4xf32>
    call @rows_4(%second, %other) : (memref<4xf32>, memref<4xf32>) -> ()
    return
  }
}
// ----- becomes
module {
  func.func private @rows_4(%arg0: memref<4xf32>, %arg1: memref<4xf32>) attributes {access = ["read", "write"], block = [1, 1, 1], grid = [1, 1, 1], kernel = "rows", shared_bytes = 0 : i64, tied = [-1]} {
    return
  }
  llvm.mlir.global external constant @plan("{\22buffers\22: [{\22name\22: \22w\22, \22kind\22: \22weight\22, \22shape\22: [2, 4], \22dtype\22: \22f32\22}, {\22name\22: \22made/w.0123abcd\22, \22kind\22: \22made\22, \22shape\22: [2, 4], \22dtype\22: \22f32\22}, {\22name\22: \22y/result/y\22, \22kind\22: \22result\22, \22shape\22: [4], \22dtype\22: \22f32\22}, {\22name\22: \22arena\22, \22kind\22: \22arena\22, \22shape\22: [256], \22dtype\22: \22i8\22}], \22entries\22: [{\22name\22: \22y\22, \22sizes\22: {}, \22inputs\22: {}, \22results\22: {\22y\22: \22y/result/y\22}, \22steps\22: [{\22kind\22: \22launch\22, \22kernel\22: \22rows_4\22, \22grid\22: [1, 1, 1], \22block\22: [1, 1, 1], \22shared_bytes\22: 0, \22arguments\22: [{\22buffer\22: \22made/w.0123abcd\22, \22offset\22: 16, \22nbytes\22: 16, \22access\22: \22read\22}, {\22buffer\22: \22y/result/y\22, \22offset\22: 0, \22nbytes\22: 16, \22access\22: \22write\22}]}], \22repeatable\22: true}], \22kernels\22: {\22rows_4\22: {\22elements\22: [\22f32\22, \22f32\22]}}, \22making\22: {\22name\22: \22make-weights\22, \22sizes\22: {}, \22inputs\22: {}, \22results\22: {}, \22steps\22: [{\22kind\22: \22launch\22, \22kernel\22: \22rows_4\22, \22grid\22: [1, 1, 1], \22block\22: [1, 1, 1], \22shared_bytes\22: 0, \22arguments\22: [{\22buffer\22: \22w\22, \22offset\22: 0, \22nbytes\22: 16, \22access\22: \22read\22}, {\22buffer\22: \22made/w.0123abcd\22, \22offset\22: 0, \22nbytes\22: 16, \22access\22: \22write\22}]}, {\22kind\22: \22launch\22, \22kernel\22: \22rows_4\22, \22grid\22: [1, 1, 1], \22block\22: [1, 1, 1], \22shared_bytes\22: 0, \22arguments\22: [{\22buffer\22: \22w\22, \22offset\22: 16, \22nbytes\22: 16, \22access\22: \22read\22}, {\22buffer\22: \22made/w.0123abcd\22, \22offset\22: 16, \22nbytes\22: 16, \22access\22: \22write\22}]}], \22repeatable\22: false}}") {addr_space = 0 : i32}
}
