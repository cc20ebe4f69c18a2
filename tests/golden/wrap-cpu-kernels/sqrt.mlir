// pass: wrap-cpu-kernels
// target: cpu:x86-64-v3
// show: summary
module {
  llvm.func @rows_4(%arg0: i64, %arg1: !llvm.ptr, %arg2: !llvm.ptr) attributes {access = ["read", "write"], grid = array<i64: 1, 1, 1>, kernel = "rows", sym_visibility = "private", tied = [-1], work = {bytes = 32 : i64, context = 0 : i64, operations = 4 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %constant_0 = llvm.mlir.constant(1 : index) : i64
    %constant_1 = llvm.mlir.constant(4 : index) : i64
    %mul_0 = llvm.mul %arg0, %constant_1 : i64
    %add_0 = llvm.add %mul_0, %constant_1 : i64
    llvm.br ^bb1(%mul_0 : i64)
  ^bb1(%4: i64):  // 2 preds: ^bb0, ^bb2
    %icmp_0 = llvm.icmp "slt" %4, %add_0 : i64
    llvm.cond_br %icmp_0, ^bb2, ^bb3
  ^bb2:  // pred: ^bb1
    %getelementptr_0 = llvm.getelementptr inbounds|nuw %arg1[%4] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    %load_0 = llvm.load %getelementptr_0 : !llvm.ptr -> f32
    %sqrt_0 = llvm.intr.sqrt(%load_0) : (f32) -> f32
    %getelementptr_1 = llvm.getelementptr inbounds|nuw %arg2[%4] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    llvm.store %sqrt_0, %getelementptr_1 : f32, !llvm.ptr
    %add_1 = llvm.add %4, %constant_0 : i64
    llvm.br ^bb1(%add_1 : i64)
  ^bb3:  // pred: ^bb1
    llvm.return
  }
  llvm.func @rows_8(%arg0: i64, %arg1: !llvm.ptr, %arg2: !llvm.ptr) attributes {access = ["read", "write"], grid = array<i64: 2, 1, 1>, kernel = "rows", sym_visibility = "private", tied = [-1], work = {bytes = 64 : i64, context = 0 : i64, operations = 8 : i64, position_bytes = 0 : i64, position_operations = 0 : i64}} {
    %constant_0 = llvm.mlir.constant(1 : index) : i64
    %constant_1 = llvm.mlir.constant(4 : index) : i64
    %mul_0 = llvm.mul %arg0, %constant_1 : i64
    %add_0 = llvm.add %mul_0, %constant_1 : i64
    llvm.br ^bb1(%mul_0 : i64)
  ^bb1(%4: i64):  // 2 preds: ^bb0, ^bb2
    %icmp_0 = llvm.icmp "slt" %4, %add_0 : i64
    llvm.cond_br %icmp_0, ^bb2, ^bb3
  ^bb2:  // pred: ^bb1
    %getelementptr_0 = llvm.getelementptr inbounds|nuw %arg1[%4] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    %load_0 = llvm.load %getelementptr_0 : !llvm.ptr -> f32
    %sqrt_0 = llvm.intr.sqrt(%load_0) : (f32) -> f32
    %getelementptr_1 = llvm.getelementptr inbounds|nuw %arg2[%4] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    llvm.store %sqrt_0, %getelementptr_1 : f32, !llvm.ptr
    %add_1 = llvm.add %4, %constant_0 : i64
    llvm.br ^bb1(%add_1 : i64)
  ^bb3:  // pred: ^bb1
    llvm.return
  }
  llvm.mlir.global external constant @plan("{\22buffers\22: [{\22name\22: \22y/x\22, \22kind\22: \22input\22, \22shape\22: [4], \22dtype\22: \22f32\22}, {\22name\22: \22y/y\22, \22kind\22: \22result\22, \22shape\22: [4], \22dtype\22: \22f32\22}, {\22name\22: \22arena\22, \22kind\22: \22arena\22, \22shape\22: [256], \22dtype\22: \22i8\22}], \22entries\22: [{\22name\22: \22y\22, \22sizes\22: {}, \22inputs\22: {\22x\22: \22y/x\22}, \22results\22: {\22y\22: \22y/y\22}, \22steps\22: [{\22kind\22: \22launch\22, \22kernel\22: \22rows_4\22, \22grid\22: [1, 1, 1], \22block\22: [1, 1, 1], \22shared_bytes\22: 0, \22arguments\22: [{\22buffer\22: \22y/x\22, \22offset\22: 0, \22nbytes\22: 16, \22access\22: \22read\22}, {\22buffer\22: \22y/y\22, \22offset\22: 0, \22nbytes\22: 16, \22access\22: \22write\22}]}], \22repeatable\22: true}], \22kernels\22: {\22rows_4\22: {\22work\22: {\22bytes\22: 32, \22context\22: 0, \22operations\22: 4, \22position_bytes\22: 0, \22position_operations\22: 0, \22matrix\22: false}}}}") {addr_space = 0 : i32}
}
// ----- becomes
llvm.func "rows_4_body"
  CConv = #llvm.cconv<ccc>
  function_type = !llvm.func<void (ptr, i64)>
  linkage = #llvm.linkage<internal>
  unnamed_addr = 0 : i64
  visibility_ = 0 : i64
  2 llvm.add
  2 llvm.br
  1 llvm.cond_br
  4 llvm.getelementptr
  1 llvm.icmp
  1 llvm.intr.sqrt
  3 llvm.load
  2 llvm.mlir.constant
  1 llvm.mul
  1 llvm.return
  1 llvm.store
