// pass: fetch-ahead{least=64}
// target: cuda:sm_90a
// show: text
module {
  func.func private @product(%x: memref<4x8xf32>, %w: memref<4x8xbf16>, %y: memref<4x8xf32>) attributes {access = ["read", "read", "write"], block = [32, 1, 1], grid = [2, 3, 1], kernel = "contraction", tied = [-1]} {
    return
  }
  func.func private @norm(%x: memref<4x8xf32>, %y: memref<4x8xf32>) attributes {access = ["read", "write"], block = [32, 1, 1], grid = [4, 1, 1], kernel = "rows", tied = [-1]} {
    return
  }
  func.func private @update(%v: memref<4x8xbf16>) attributes {access = ["read_write"], block = [32, 1, 1], grid = [4, 1, 1], kernel = "rows", tied = [-1]} {
    return
  }
  func.func @e(%x: memref<128xi8>, %w: memref<128xi8>, %y: memref<128xi8>, %v: memref<64xi8>) attributes {arguments = ["input:x", "weight:w", "result:y", "weight:v"], entry = "e", extents = array<i64>, inputs = {x = array<i64: 4, 8>}, results = ["result:y"], sizes = [], types = [tensor<4x8xf32>, tensor<2x4x8xbf16>, tensor<4x8xf32>, tensor<4x8xbf16>]} {
    %c0 = arith.constant 0 : index
    %from = memref.view %x[%c0][] : memref<128xi8> to memref<4x8xf32>
    %first = memref.view %w[%c0][] : memref<128xi8> to memref<4x8xbf16>
    %to = memref.view %y[%c0][] : memref<128xi8> to memref<4x8xf32>
    call @product(%from, %first, %to) : (memref<4x8xf32>, memref<4x8xbf16>, memref<4x8xf32>) -> ()
    call @norm(%to, %to) : (memref<4x8xf32>, memref<4x8xf32>) -> ()
    %c64 = arith.constant 64 : index
    %second = memref.view %w[%c64][] : memref<128xi8> to memref<4x8xbf16>
    call @product(%to, %second, %to) : (memref<4x8xf32>, memref<4x8xbf16>, memref<4x8xf32>) -> ()
    %third = memref.view %v[%c0][] : memref<64xi8> to memref<4x8xbf16>
    call @product(%to, %third, %to) : (memref<4x8xf32>, memref<4x8xbf16>, memref<4x8xf32>) -> ()
    call @update(%third) : (memref<4x8xbf16>) -> ()
    return
  }
}
// ----- becomes
module {
  func.func private @product(%arg0: memref<4x8xf32>, %arg1: memref<4x8xbf16>, %arg2: memref<4x8xf32>, %arg3: memref<4x8xbf16>) attributes {access = ["read", "read", "write", "read"], block = [32, 1, 1], grid = [2, 3, 1], kernel = "contraction", tied = [-1]} {
    %block_id_0 = gpu.block_id x
    %block_id_1 = gpu.block_id y
    %constant_0 = arith.constant 2 : index
    %muli_0 = arith.muli %block_id_1, %constant_0 : index
    %addi_0 = arith.addi %block_id_0, %muli_0 : index
    %constant_1 = arith.constant 128 : index
    %muli_1 = arith.muli %addi_0, %constant_1 : index
    %constant_2 = arith.constant 64 : index
    %subi_0 = arith.subi %constant_2, %muli_1 : index
    %constant_3 = arith.constant 128 : index
    %minui_0 = arith.minui %subi_0, %constant_3 : index
    %thread_id_0 = gpu.thread_id x
    %constant_4 = arith.constant 0 : index
    %cmpi_0 = arith.cmpi eq, %thread_id_0, %constant_4 : index
    %constant_5 = arith.constant 64 : index
    %cmpi_1 = arith.cmpi ult, %muli_1, %constant_5 : index
    %andi_0 = arith.andi %cmpi_0, %cmpi_1 : i1
    %extract_aligned_pointer_as_index_0 = memref.extract_aligned_pointer_as_index %arg3 : memref<4x8xbf16> -> index
    scf.if %andi_0 {
      %addi_1 = arith.addi %extract_aligned_pointer_as_index_0, %muli_1 : index
      %index_cast_0 = arith.index_cast %addi_1 : index to i64
      %index_cast_1 = arith.index_cast %minui_0 : index to i32
      llvm.inline_asm has_side_effects "cp.async.bulk.prefetch.L2.global [$0], $1;", "l,r" %index_cast_0, %index_cast_1 : (i64, i32) -> ()
    }
    return
  }
  func.func private @norm(%arg0: memref<4x8xf32>, %arg1: memref<4x8xf32>) attributes {access = ["read", "write"], block = [32, 1, 1], grid = [4, 1, 1], kernel = "rows", tied = [-1]} {
    return
  }
  func.func private @update(%arg0: memref<4x8xbf16>) attributes {access = ["read_write"], block = [32, 1, 1], grid = [4, 1, 1], kernel = "rows", tied = [-1]} {
    return
  }
  func.func @e(%arg0: memref<128xi8>, %arg1: memref<128xi8>, %arg2: memref<128xi8>, %arg3: memref<64xi8>) attributes {arguments = ["input:x", "weight:w", "result:y", "weight:v"], entry = "e", extents = array<i64>, inputs = {x = array<i64: 4, 8>}, results = ["result:y"], sizes = [], types = [tensor<4x8xf32>, tensor<2x4x8xbf16>, tensor<4x8xf32>, tensor<4x8xbf16>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<128xi8> to memref<4x8xf32>
    %view_1 = memref.view %arg1[%constant_0][] : memref<128xi8> to memref<4x8xbf16>
    %view_2 = memref.view %arg2[%constant_0][] : memref<128xi8> to memref<4x8xf32>
    %constant_1 = arith.constant 64 : index
    %view_3 = memref.view %arg1[%constant_1][] : memref<128xi8> to memref<4x8xbf16>
    call @product(%view_0, %view_1, %view_2, %view_3) : (memref<4x8xf32>, memref<4x8xbf16>, memref<4x8xf32>, memref<4x8xbf16>) -> ()
    call @norm(%view_2, %view_2) : (memref<4x8xf32>, memref<4x8xf32>) -> ()
    %constant_2 = arith.constant 64 : index
    %view_4 = memref.view %arg1[%constant_2][] : memref<128xi8> to memref<4x8xbf16>
    %constant_3 = arith.constant 64 : index
    %view_5 = memref.view %arg1[%constant_3][] : memref<128xi8> to memref<4x8xbf16>
    call @product(%view_2, %view_4, %view_2, %view_5) : (memref<4x8xf32>, memref<4x8xbf16>, memref<4x8xf32>, memref<4x8xbf16>) -> ()
    %view_6 = memref.view %arg3[%constant_0][] : memref<64xi8> to memref<4x8xbf16>
    %constant_4 = arith.constant 64 : index
    %view_7 = memref.view %arg1[%constant_4][] : memref<128xi8> to memref<4x8xbf16>
    call @product(%view_2, %view_6, %view_2, %view_7) : (memref<4x8xf32>, memref<4x8xbf16>, memref<4x8xf32>, memref<4x8xbf16>) -> ()
    call @update(%view_6) : (memref<4x8xbf16>) -> ()
    return
  }
}
