// pass: line-tables
// target: cpu:x86-64-v3
// show: places
llvm.func @product(%x: f32, %y: f32) -> f32 {
  %z = llvm.fmul %x, %y : f32 loc("lib/nn.lisp:25:3"("gpt2.lisp":28:13))
  llvm.return %z : f32 loc("gpt2.lisp":29:5)
} loc("gpt2.lisp":29:5)
// ----- becomes
"product" loc(fused<#llvm.di_subprogram<id = distinct[0]<>, compileUnit = <id = distinct[1]<>, sourceLanguage = DW_LANG_C, file = <"-" in "">, producer = "MLIR", isOptimized = true, emissionKind = LineTablesOnly>, scope = #llvm.di_file<"gpt2.lisp" in "">, name = "product", linkageName = "product", file = <"gpt2.lisp" in "">, line = 29, scopeLine = 29, subprogramFlags = "Definition|Optimized", type = <callingConvention = DW_CC_normal>>>["gpt2.lisp":29:5])
