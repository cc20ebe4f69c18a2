// pass: schedule-gpu-warpgroups
// target: cuda:sm_90a
// show: summary
#map = affine_map<(d0, d1, d2) -> (d2, d0)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map2 = affine_map<(d0, d1, d2) -> (d0, d1)>
module {
  func.func private @contraction_768x1024(%arg0: memref<4096x768xbf16>, %arg1: memref<4096x1024xbf16>, %arg2: memref<768x1024xf32>) attributes {access = ["read", "read", "write"], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 768, 1024, 4096>, left = array<i64: 2, 0>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 2, 1>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1], work = {bytes = 17825792 : i64, context = 0 : i64, operations = 6442450944 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %0 = bufferization.to_tensor %arg0 restrict : memref<4096x768xbf16> to tensor<4096x768xbf16>
    %1 = bufferization.to_tensor %arg1 restrict : memref<4096x1024xbf16> to tensor<4096x1024xbf16>
    %cst = arith.constant 0.000000e+00 : f32
    %2 = tensor.empty() : tensor<768x1024xf32>
    %3 = linalg.fill ins(%cst : f32) outs(%2 : tensor<768x1024xf32>) -> tensor<768x1024xf32>
    %4 = linalg.contract indexing_maps = [#map, #map1, #map2] ins(%0, %1 : tensor<4096x768xbf16>, tensor<4096x1024xbf16>) outs(%3 : tensor<768x1024xf32>) -> tensor<768x1024xf32>
    bufferization.materialize_in_destination %4 in restrict writable %arg2 : (tensor<768x1024xf32>, memref<768x1024xf32>) -> ()
    return
  }
  func.func @f(%arg0: memref<6291456xi8>, %arg1: memref<8388608xi8>, %arg2: memref<3145728xi8>) attributes {arguments = ["input:x", "input:z", "result:dw"], entry = "f", extents = array<i64>, inputs = {x = array<i64: 4096, 768>, z = array<i64: 4096, 1024>}, repeatable, results = ["result:dw"], sizes = [], types = [tensor<4096x768xbf16>, tensor<4096x1024xbf16>, tensor<768x1024xf32>]} {
    %c0 = arith.constant 0 : index
    %view = memref.view %arg0[%c0][] : memref<6291456xi8> to memref<4096x768xbf16>
    %c0_0 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%c0_0][] : memref<8388608xi8> to memref<4096x1024xbf16>
    %c0_2 = arith.constant 0 : index
    %view_3 = memref.view %arg2[%c0_2][] : memref<3145728xi8> to memref<768x1024xf32>
    call @contraction_768x1024(%view, %view_1, %view_3) : (memref<4096x768xbf16>, memref<4096x1024xbf16>, memref<768x1024xf32>) -> ()
    return
  }
}
// ----- becomes
func.func "contraction_768x1024"
  access = ["read", "read", "write", "scratch", "read_write"]
  block = [384, 1, 1]
  cluster = array<i32: 2, 1, 1>
  function_type = (memref<4096x768xbf16>, memref<4096x1024xbf16>, memref<768x1024xf32>, memref<96x8x256x4xf32>, memref<3072xi32>) -> ()
  grid = [132, 1, 1]
  kernel = "contraction"
  product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 768, 1024, 4096>, left = array<i64: 2, 0>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 2, 1>, rows = array<i64: 0>, sums = array<i64: 2>}
  residency = 1 : i32
  shared_bytes = 231424 : i64
  sym_visibility = "private"
  tensor_maps = [{argument = 0 : i64, box = array<i64: 64, 64>, dtype = "bf16", extents = array<i64: 768, 4096>, offset = 0 : i64, strides = array<i64: 1536>}, {argument = 1 : i64, box = array<i64: 64, 64>, dtype = "bf16", extents = array<i64: 1024, 4096>, offset = 0 : i64, strides = array<i64: 2048>}, {argument = 2 : i64, box = array<i64: 32, 16>, dtype = "f32", extents = array<i64: 1024, 768>, offset = 0 : i64, strides = array<i64: 4096>}]
  tied = [-1]
  work = {bytes = 17825792 : i64, context = 0 : i64, operations = 6442450944 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}
  32 arith.addf
  226 arith.addi
  3 arith.andi
  35 arith.cmpi
  464 arith.constant
  16 arith.constant vector<2xf32>
  20 arith.divui
  1 arith.extui
  135 arith.index_cast
  2 arith.index_castui
  4 arith.minui
  97 arith.muli
  2 arith.ori
  20 arith.remui
  41 arith.select
  2 arith.shrui
  15 arith.subi
  2 arith.trunci
  21 arith.xori
  3 builtin.unrealized_conversion_cast
  1 func.return
  2 gpu.block_id
  1 gpu.dynamic_shared_memory
  1 gpu.shuffle
  1 gpu.thread_id
  1 llvm.atomicrmw
  192 llvm.extractvalue
  2 llvm.fence
  82 llvm.inline_asm
  3 llvm.inttoptr
  1 llvm.load
  32 llvm.mlir.undef
  1 llvm.store
  4 memref.extract_aligned_pointer_as_index
  2 nvvm.barrier
  2 nvvm.cluster.arrive
  2 nvvm.cluster.wait
  2 nvvm.fence.proxy
  4 nvvm.griddepcontrol
  1 nvvm.wgmma.commit.group.sync.aligned
  1 nvvm.wgmma.wait.group.sync.aligned
  3 scf.condition
  5 scf.for
  14 scf.if
  3 scf.while
  24 scf.yield
  32 vector.extract vector<2xf32>
  32 vector.extract vector<4xf32>
  16 vector.from_elements vector<2xf32>
  8 vector.from_elements vector<4xf32>
  8 vector.load vector<4xf32>
  8 vector.store vector<4xf32>
func.func "f"
  arguments = ["input:x", "input:z", "result:dw", "signals:fragments"]
  entry = "f"
  extents = array<i64>
  function_type = (memref<6291456xi8>, memref<8388608xi8>, memref<3145728xi8>, memref<12288xi8>) -> ()
  inputs = {x = array<i64: 4096, 768>, z = array<i64: 4096, 1024>}
  repeatable = unit
  results = ["result:dw"]
  sizes = []
  types = [tensor<4096x768xbf16>, tensor<4096x1024xbf16>, tensor<768x1024xf32>, tensor<3072xi32>]
  4 arith.constant
  1 func.call
  1 func.return
  1 memref.alloc
  4 memref.view
