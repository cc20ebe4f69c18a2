// pass: check-device-calls
// target: cuda:sm_80
// show: error
module attributes {gpu.container_module} {
  gpu.module @kernels {
    llvm.func @vprintf(!llvm.ptr, !llvm.ptr) -> i32
    llvm.func @__nv_sinf(f32) -> f32
    llvm.func @wave(%x: f32) -> f32 attributes {gpu.kernel} {
      %y = llvm.call @__nv_sinf(%x) : (f32) -> f32
      llvm.return %y : f32
    }
  }
}
// ----- becomes
pass check-device-calls failed: a kernel calls sinf, for which cuda:sm_80 has no instruction and no library is used here; write it with exp, exp2, tanh, sqrt and arithmetic
