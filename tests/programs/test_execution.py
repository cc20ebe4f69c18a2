"""Calling main: results, arguments, output in order, crashes, missing functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("type_", "constant", "shown"),
    [
        ("i32", "-7", "-7"),
        ("i64", "9007199254740993", "9007199254740993"),
        ("index", "12", "12"),
        ("i1", "true", "1"),
        ("f32", "0.1", "0.1"),
        ("f64", "0.1", "0.1"),
        ("bf16", "1.5", "1.5"),
    ],
)
def test_result_of_main_is_printed(type_: str, constant: str, shown: str, run_main: Callable[..., Any]) -> None:
    typed = constant if constant == "true" else f"{constant} : {type_}"
    ran = run_main(f"%r = arith.constant {typed}", type_)
    assert (ran.code, ran.output) == (0, shown + "\n")


def test_main_without_result_prints_nothing(run_mlir: Callable[..., Any]) -> None:
    ran = run_mlir("module { func.func @main() { return } }")
    assert (ran.code, ran.output, ran.errors) == (0, "", "")


@pytest.mark.parametrize("argc", ["i32", "i64"])
def test_main_gets_the_users_arguments(argc: str, run_mlir: Callable[..., Any]) -> None:
    text = f"""module {{
      func.func private @atoi(!llvm.ptr) -> i32
      func.func @main(%argc: {argc}, %argv: !llvm.ptr) -> i32 {{
        %slot = llvm.getelementptr %argv[1] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
        %second = llvm.load %slot : !llvm.ptr -> !llvm.ptr
        %n = call @atoi(%second) : (!llvm.ptr) -> i32
        %wide = {"arith.extsi %argc : i32 to i64" if argc == "i32" else "arith.addi %argc, %argc : i64"}
        %c = arith.trunci %wide : i64 to i32
        %r = arith.addi %n, %c : i32
        return %r : i32 }} }}"""
    assert run_mlir(text, "x", "40").output == ("42\n" if argc == "i32" else "44\n")


def test_c_output_and_print_helpers_stay_in_order(run_mlir: Callable[..., Any]) -> None:
    text = """module {
      llvm.func @printf(!llvm.ptr, ...) -> i32
      llvm.mlir.global internal constant @text("one %d ")
      func.func private @printF32(f32)
      func.func private @printNewline()
      func.func private @printMemrefF32(memref<*xf32>) attributes {llvm.emit_c_interface}
      func.func @main() -> i32 {
        %t = llvm.mlir.addressof @text : !llvm.ptr
        %n = arith.constant 1 : i32
        %p = llvm.call @printf(%t, %n) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, i32) -> i32
        %x = arith.constant 2.5 : f32
        call @printF32(%x) : (f32) -> ()
        call @printNewline() : () -> ()
        %m = memref.alloc() : memref<2x3xf32>
        linalg.fill ins(%x : f32) outs(%m : memref<2x3xf32>)
        %s = memref.subview %m[0, 1] [2, 2] [1, 1] : memref<2x3xf32> to memref<2x2xf32, strided<[3, 1], offset: 1>>
        %u = memref.cast %s : memref<2x2xf32, strided<[3, 1], offset: 1>> to memref<*xf32>
        call @printMemrefF32(%u) : (memref<*xf32>) -> ()
        return %n : i32 } }"""
    lines = run_mlir(text).lines
    assert lines[0] == "one 1 2.5"
    assert lines[1].endswith("rank = 2 offset = 1 sizes = [2, 2] strides = [3, 1] data = ")
    assert lines[2:] == ["[[2.5,   2.5], ", " [2.5,   2.5]]", "1"]


def test_exit_code_of_exit(run_mlir: Callable[..., Any]) -> None:
    text = """module { func.func private @exit(i32)
      func.func @main() { %c = arith.constant 7 : i32
        call @exit(%c) : (i32) -> ()
        return } }"""
    assert run_mlir(text).code == 7


def test_crash_names_the_signal(run_main: Callable[..., Any]) -> None:
    body = """%z = arith.constant 16 : i64
      %p = llvm.inttoptr %z : i64 to !llvm.ptr
      %r = llvm.load volatile %p : !llvm.ptr -> i32"""
    ran = run_main(body, "i32")
    assert ran.code == 101
    assert "the program crashed (SIGSEGV" in ran.errors


def test_endless_recursion_is_a_crash_with_a_message(run_mlir: Callable[..., Any]) -> None:
    text = """module {
      func.func @f(%n: i64, %p: !llvm.ptr) -> i64 {
        %one = arith.constant 1 : i64
        %s = llvm.alloca %one x i64 : (i64) -> !llvm.ptr
        llvm.store volatile %n, %s : i64, !llvm.ptr
        %a = func.call @f(%n, %s) : (i64, !llvm.ptr) -> i64
        %b = llvm.load volatile %s : !llvm.ptr -> i64
        %r = arith.addi %a, %b : i64
        return %r : i64 }
      func.func @main() -> i64 {
        %z = arith.constant 5 : i64
        %p = llvm.mlir.zero : !llvm.ptr
        %r = func.call @f(%z, %p) : (i64, !llvm.ptr) -> i64
        return %r : i64 } }"""
    ran = run_mlir(text)
    assert ran.code == 101
    assert "SIGSEGV" in ran.errors


def test_missing_function_is_named(run_mlir: Callable[..., Any]) -> None:
    text = """module { func.func private @no_such_function()
      func.func @main() { call @no_such_function() : () -> ()
        return } }"""
    ran = run_mlir(text)
    assert ran.code == 101
    assert "no_such_function" in ran.errors
    assert "JIT session" not in ran.errors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("module { func.func @f() { return } }", "no function main"),
        ("module { func.func @main(%x: f32) { return } }", "main takes nothing, or argc and argv"),
        ("module { func.func private @main() -> memref<4xf32> }", "main returns nothing, an integer or a float"),
    ],
)
def test_what_main_may_not_be(text: str, message: str, run_mlir: Callable[..., Any]) -> None:
    ran = run_mlir(text)
    assert ran.code == 101
    assert message in ran.errors


def test_an_op_without_lowering_is_named(run_main: Callable[..., Any]) -> None:
    ran = run_main("amdgpu.lds_barrier\n%r = arith.constant 1 : i32", "i32")
    assert ran.code == 101
    assert "amdgpu.lds_barrier" in ran.errors
