// What runs at every launch of a program on a GPU, compiled with it: straight calls of the driver, on one stream for all.
// {launch} and {sync} stand for the driver's functions.

llvm.func @gpu_call_failed(i32, i32)
llvm.func @{launch}(!llvm.ptr, i32, i32, i32, i32, i32, i32, i32, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
llvm.func @{sync}(!llvm.ptr) -> i32
llvm.func @mgpuLaunchKernel(%f: !llvm.ptr, %gx: i64, %gy: i64, %gz: i64, %bx: i64, %by: i64, %bz: i64, %shared: i32,
    %stream: !llvm.ptr, %parameters: !llvm.ptr, %extra: !llvm.ptr, %count: i64) {
  %0 = llvm.trunc %gx : i64 to i32
  %1 = llvm.trunc %gy : i64 to i32
  %2 = llvm.trunc %gz : i64 to i32
  %3 = llvm.trunc %bx : i64 to i32
  %4 = llvm.trunc %by : i64 to i32
  %5 = llvm.trunc %bz : i64 to i32
  %status = llvm.call @{launch}(%f, %0, %1, %2, %3, %4, %5, %shared, %stream, %parameters, %extra)
      : (!llvm.ptr, i32, i32, i32, i32, i32, i32, i32, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
  %what = llvm.mlir.constant(0 : i32) : i32
  llvm.call @gpu_check(%status, %what) : (i32, i32) -> ()
  llvm.return
}
llvm.func @mgpuStreamSynchronize(%stream: !llvm.ptr) {
  %status = llvm.call @{sync}(%stream) : (!llvm.ptr) -> i32
  %what = llvm.mlir.constant(1 : i32) : i32
  llvm.call @gpu_check(%status, %what) : (i32, i32) -> ()
  llvm.return
}
llvm.func @gpu_stream() -> !llvm.ptr
llvm.mlir.global internal @gpu_the_stream() : !llvm.ptr {
  %null = llvm.mlir.zero : !llvm.ptr
  llvm.return %null : !llvm.ptr
}
llvm.func @mgpuStreamCreate() -> !llvm.ptr {
  %null = llvm.mlir.zero : !llvm.ptr
  %place = llvm.mlir.addressof @gpu_the_stream : !llvm.ptr
  %known = llvm.load %place : !llvm.ptr -> !llvm.ptr
  %none = llvm.icmp "eq" %known, %null : !llvm.ptr
  llvm.cond_br %none, ^make, ^have
^make:
  %new = llvm.call @gpu_stream() : () -> !llvm.ptr
  llvm.store %new, %place : !llvm.ptr, !llvm.ptr
  llvm.return %new : !llvm.ptr
^have:
  llvm.return %known : !llvm.ptr
}
llvm.func @mgpuStreamDestroy(%stream: !llvm.ptr) {
  llvm.return
}
llvm.func internal @gpu_check(%status: i32, %what: i32) {
  %zero = llvm.mlir.constant(0 : i32) : i32
  %bad = llvm.icmp "ne" %status, %zero : i32
  llvm.cond_br %bad, ^failed, ^good
^failed:
  llvm.call @gpu_call_failed(%status, %what) : (i32, i32) -> ()
  llvm.br ^good
^good:
  llvm.return
}
