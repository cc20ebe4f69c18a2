// pass: lower-tuples
// target: cpu:x86-64-v3
// show: text
module {
  func.func @pair(%arg0: i32, %arg1: f32) -> tuple<i32, f32> {
    %0 = builtin.unrealized_conversion_cast %arg0, %arg1 : i32, f32 to tuple<i32, f32>
    return %0 : tuple<i32, f32>
  }
  func.func @number(%arg0: tuple<i32, f32>) -> i32 {
    %0 = builtin.unrealized_conversion_cast %arg0 : tuple<i32, f32> to i32
    return %0 : i32
  }
}
// ----- becomes
module {
  func.func @pair(%arg0: i32, %arg1: f32) -> !llvm.struct<(i32, f32)> {
    %undef_0 = llvm.mlir.undef : !llvm.struct<(i32, f32)>
    %insertvalue_0 = llvm.insertvalue %arg0, %undef_0[0] : !llvm.struct<(i32, f32)> 
    %insertvalue_1 = llvm.insertvalue %arg1, %insertvalue_0[1] : !llvm.struct<(i32, f32)> 
    return %insertvalue_1 : !llvm.struct<(i32, f32)>
  }
  func.func @number(%arg0: !llvm.struct<(i32, f32)>) -> i32 {
    %extractvalue_0 = llvm.extractvalue %arg0[0] : !llvm.struct<(i32, f32)> 
    return %extractvalue_0 : i32
  }
}
