// pass: math-intrinsics
// target: cuda:sm_80
// show: text
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @roots(%arg0: memref<4xf32>) kernel {
      %thread_id_0 = gpu.thread_id x
      %load_0 = memref.load %arg0[%thread_id_0] : memref<4xf32>
      %sqrt_0 = math.sqrt %load_0 : f32
      %floor_0 = math.floor %sqrt_0 : f32
      %fma_0 = math.fma %load_0, %sqrt_0, %floor_0 : f32
      memref.store %fma_0, %arg0[%thread_id_0] : memref<4xf32>
      gpu.return
    }
  }
}
// ----- becomes
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @roots(%arg0: memref<4xf32>) kernel {
      %thread_id_0 = gpu.thread_id x
      %load_0 = memref.load %arg0[%thread_id_0] : memref<4xf32>
      %call_intrinsic_0 = llvm.call_intrinsic "llvm.sqrt.f32"(%load_0) : (f32) -> f32
      %call_intrinsic_1 = llvm.call_intrinsic "llvm.floor.f32"(%call_intrinsic_0) : (f32) -> f32
      %call_intrinsic_2 = llvm.call_intrinsic "llvm.fma.f32"(%load_0, %call_intrinsic_0, %call_intrinsic_1) : (f32, f32, f32) -> f32
      memref.store %call_intrinsic_2, %arg0[%thread_id_0] : memref<4xf32>
      gpu.return
    }
  }
}
