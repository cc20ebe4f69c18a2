// pass: share-calls
// target: cpu:x86-64-v3
// show: text
module {
  llvm.func @double(%arg0: i64, %arg1: i64, %arg2: !llvm.ptr, %arg3: f32) attributes {parallel} {
    llvm.return
  }
  llvm.func @main(%arg0: !llvm.ptr) {
    %constant_0 = llvm.mlir.constant(0 : i64) : i64
    %constant_1 = llvm.mlir.constant(8 : i64) : i64
    %constant_2 = llvm.mlir.constant(2.000000e+00 : f32) : f32
    llvm.call @double(%constant_0, %constant_1, %arg0, %constant_2) : (i64, i64, !llvm.ptr, f32) -> ()
    llvm.return
  }
}
// ----- becomes
module {
  llvm.func @double(%arg0: i64, %arg1: i64, %arg2: !llvm.ptr, %arg3: f32) attributes {parallel} {
    llvm.return
  }
  llvm.func @main(%arg0: !llvm.ptr) {
    %constant_0 = llvm.mlir.constant(1 : i32) : i32
    %alloca_0 = llvm.alloca %constant_0 x !llvm.struct<(ptr, f32)> : (i32) -> !llvm.ptr
    %constant_1 = llvm.mlir.constant(0 : i64) : i64
    %constant_2 = llvm.mlir.constant(8 : i64) : i64
    %constant_3 = llvm.mlir.constant(2.000000e+00 : f32) : f32
    %poison_0 = llvm.mlir.poison : !llvm.struct<(ptr, f32)>
    %insertvalue_0 = llvm.insertvalue %arg0, %poison_0[0] : !llvm.struct<(ptr, f32)> 
    %insertvalue_1 = llvm.insertvalue %constant_3, %insertvalue_0[1] : !llvm.struct<(ptr, f32)> 
    llvm.store %insertvalue_1, %alloca_0 : !llvm.struct<(ptr, f32)>, !llvm.ptr
    %addressof_0 = llvm.mlir.addressof @double_part : !llvm.ptr
    llvm.call @share_work(%addressof_0, %alloca_0, %constant_1, %constant_2) : (!llvm.ptr, !llvm.ptr, i64, i64) -> ()
    llvm.return
  }
  llvm.func @share_work(!llvm.ptr, !llvm.ptr, i64, i64)
  llvm.func internal @double_part(%arg0: i64, %arg1: i64, %arg2: !llvm.ptr) {
    %load_0 = llvm.load %arg2 : !llvm.ptr -> !llvm.struct<(ptr, f32)>
    %extractvalue_0 = llvm.extractvalue %load_0[0] : !llvm.struct<(ptr, f32)> 
    %extractvalue_1 = llvm.extractvalue %load_0[1] : !llvm.struct<(ptr, f32)> 
    llvm.call @double(%arg0, %arg1, %extractvalue_0, %extractvalue_1) : (i64, i64, !llvm.ptr, f32) -> ()
    llvm.return
  }
}
