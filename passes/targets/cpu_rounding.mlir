// An f32 as the nearest bf16, the even one of two; NaN stays NaN.  LLVM calls it by this name for chips that have no
// instruction: where it chooses one of two bf16, say, it does so in f32.  It is a part of compilers' runtime libraries,
// but not of those that every system has.
llvm.func @__truncsfbf2(%x: f32) -> bf16 {
  %sixteen = llvm.mlir.constant(16 : i32) : i32
  %one = llvm.mlir.constant(1 : i32) : i32
  %half = llvm.mlir.constant(32767 : i32) : i32
  %quiet = llvm.mlir.constant(64 : i32) : i32
  %bits = llvm.bitcast %x : f32 to i32
  %upper = llvm.lshr %bits, %sixteen : i32
  %odd = llvm.and %upper, %one : i32
  %more = llvm.add %half, %odd : i32
  %raised = llvm.add %bits, %more : i32
  %nearest = llvm.lshr %raised, %sixteen : i32
  %nan = llvm.fcmp "uno" %x, %x : f32
  %marked = llvm.or %upper, %quiet : i32
  %chosen = llvm.select %nan, %marked, %nearest : i1, i32
  %short = llvm.trunc %chosen : i32 to i16
  %y = llvm.bitcast %short : i16 to bf16
  llvm.return %y : bf16
}
