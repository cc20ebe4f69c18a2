// pass: schedule-gpu-warpgroups
// target: cuda:sm_90a
// show: summary
module {
  func.func private @contraction_128x256(%arg0: memref<128x128xf32>, %arg1: memref<256x128xbf16>, %arg2: memref<128x256xf32>) attributes {access = ["read", "read", "write"], kernel = "contraction", product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 128, 256, 128>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}, tied = [-1], work = {bytes = 262144 : i64, context = 0 : i64, operations = 8388608 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %to_tensor_0 = bufferization.to_tensor %arg0 restrict : memref<128x128xf32> to tensor<128x128xf32>
    %to_tensor_1 = bufferization.to_tensor %arg1 restrict : memref<256x128xbf16> to tensor<256x128xbf16>
    %constant_0 = arith.constant 0.000000e+00 : f32
    %empty_0 = tensor.empty() : tensor<128x256xf32>
    %fill_0 = linalg.fill ins(%constant_0 : f32) outs(%empty_0 : tensor<128x256xf32>) -> tensor<128x256xf32>
    %contract_0 = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%to_tensor_0, %to_tensor_1 : tensor<128x128xf32>, tensor<256x128xbf16>) outs(%fill_0 : tensor<128x256xf32>) -> tensor<128x256xf32>
    bufferization.materialize_in_destination %contract_0 in restrict writable %arg2 : (tensor<128x256xf32>, memref<128x256xf32>) -> ()
    return
  }
  func.func @y(%arg0: memref<65536xi8>, %arg1: memref<65536xi8>, %arg2: memref<131072xi8>) attributes {arguments = ["input:x", "weight:w", "result:y"], entry = "y", extents = array<i64>, inputs = {x = array<i64: 128, 128>}, repeatable, results = ["result:y"], sizes = [], types = [tensor<128x128xf32>, tensor<256x128xbf16>, tensor<128x256xf32>]} {
    %constant_0 = arith.constant 0 : index
    %view_0 = memref.view %arg0[%constant_0][] : memref<65536xi8> to memref<128x128xf32>
    %constant_1 = arith.constant 0 : index
    %view_1 = memref.view %arg1[%constant_1][] : memref<65536xi8> to memref<256x128xbf16>
    %constant_2 = arith.constant 0 : index
    %view_2 = memref.view %arg2[%constant_2][] : memref<131072xi8> to memref<128x256xf32>
    call @contraction_128x256(%view_0, %view_1, %view_2) : (memref<128x128xf32>, memref<256x128xbf16>, memref<128x256xf32>) -> ()
    return
  }
}
// ----- becomes
func.func "contraction_128x256"
  access = ["read", "read", "write"]
  block = [256, 1, 1]
  function_type = (memref<128x128xf32>, memref<256x128xbf16>, memref<128x256xf32>) -> ()
  grid = [16, 1, 1]
  kernel = "contraction"
  product = {batch = array<i64>, columns = array<i64: 1>, extents = array<i64: 128, 256, 128>, left = array<i64: 0, 2>, operands = array<i64: 0, 1>, result = array<i64: 0, 1>, right = array<i64: 1, 2>, rows = array<i64: 0>, sums = array<i64: 2>}
  residency = 1 : i32
  shared_bytes = 51200 : i64
  sym_visibility = "private"
  tensor_maps = [{argument = 0 : i64, box = array<i64: 32, 64>, dtype = "f32", extents = array<i64: 128, 128>, offset = 0 : i64, strides = array<i64: 512>}, {argument = 1 : i64, box = array<i64: 64, 32>, dtype = "bf16", extents = array<i64: 128, 256>, offset = 0 : i64, strides = array<i64: 256>}, {argument = 2 : i64, box = array<i64: 32, 16>, dtype = "f32", extents = array<i64: 256, 128>, offset = 0 : i64, strides = array<i64: 1024>}]
  tied = [-1]
  work = {bytes = 262144 : i64, context = 0 : i64, operations = 8388608 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}
  236 arith.addi
  5 arith.andi
  64 arith.andi vector<2xi32>
  23 arith.cmpi
  364 arith.constant
  8 arith.constant vector<2xf32>
  64 arith.constant vector<2xi32>
  16 arith.divui
  4 arith.extui
  132 arith.index_cast
  62 arith.muli
  4 arith.ori
  17 arith.remui
  10 arith.select
  4 arith.shrui
  64 arith.subf vector<2xf32>
  2 arith.subi
  64 arith.truncf vector<2xbf16>
  5 arith.trunci
  19 arith.xori
  3 builtin.unrealized_conversion_cast
  1 func.return
  1 gpu.barrier
  2 gpu.block_id
  1 gpu.dynamic_shared_memory
  1 gpu.shuffle
  1 gpu.thread_id
  64 llvm.call_intrinsic
  720 llvm.extractvalue
  80 llvm.inline_asm
  64 llvm.inttoptr
  64 llvm.load vector<2xf32>
  16 llvm.mlir.undef
  2 memref.extract_aligned_pointer_as_index
  1 nvvm.fence.proxy
  4 nvvm.griddepcontrol
  4 nvvm.wgmma.commit.group.sync.aligned
  3 nvvm.wgmma.wait.group.sync.aligned
  5 scf.condition
  2 scf.for
  14 scf.if
  5 scf.while
  22 scf.yield
  64 vector.bitcast vector<1xi32>
  64 vector.bitcast vector<2xf32>
  64 vector.bitcast vector<2xi32>
  64 vector.extract vector<1xi32>
  16 vector.extract vector<2xf32>
  128 vector.extract vector<2xi32>
  8 vector.from_elements vector<2xf32>
func.func "y"
  arguments = ["input:x", "weight:w", "result:y"]
  entry = "y"
  extents = array<i64>
  function_type = (memref<65536xi8>, memref<65536xi8>, memref<131072xi8>) -> ()
  inputs = {x = array<i64: 128, 128>}
  repeatable = unit
  results = ["result:y"]
  sizes = []
  types = [tensor<128x128xf32>, tensor<256x128xbf16>, tensor<128x256xf32>]
  3 arith.constant
  1 func.call
  1 func.return
  3 memref.view
