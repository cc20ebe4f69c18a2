"""Macros that are native code: compiled while compiling, called with forms, and gone from the program afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from language.evaluating import evaluated, module

from lispgpt.base.errors import UserError

FIRST = """(extern :value-ffi)
(extern-fn value_list_new (-> [] [!llvm.ptr]))
(extern-fn value_list_first (-> [!llvm.ptr] [!llvm.ptr]))
(extern-fn value_list_rest (-> [!llvm.ptr] [!llvm.ptr]))
(extern-fn value_list_get (-> [!llvm.ptr i64] [!llvm.ptr]))
(extern-fn value_list_len (-> [!llvm.ptr] [i64]))
(extern-fn value_is_symbol (-> [!llvm.ptr] [i1]))
(extern-fn value_number_get (-> [!llvm.ptr] [f64]))
(extern-fn value_number_new (-> [f64] [!llvm.ptr]))
(extern-fn value_list_push (-> [!llvm.ptr !llvm.ptr] []))
"""
TWICE = "(defn twice [(: forms !llvm.ptr)] -> !llvm.ptr (let [x (value_list_first forms)] `(arith.addi ~x ~x)))"


def test_a_template_is_built_when_the_macro_runs() -> None:
    text = module(FIRST + TWICE + "(defmacro twice) (defn f [(: a i64)] -> i64 (twice (arith.muli a 3)))")
    assert text.count("arith.muli") == 2 and text.count("arith.addi") == 1
    assert "llvm.ptr" not in text and "value_" not in text and "twice" not in text


def test_templates_hold_every_kind_of_form() -> None:
    macro = """(defn shown [(: forms !llvm.ptr)] -> !llvm.ptr
      `(let [text "n %d" flag true none nil]
         (if flag (: ~(value_list_first forms) {:a 1}) (str text :key 2.5 none))))"""
    with pytest.raises(UserError, match="a template in native code cannot hold a map"):
        module(FIRST + macro + "(defmacro shown)")
    macro = macro.replace("{:a 1}", "i64")
    assert "constant 7 : i64" in module(FIRST + macro + "(defmacro shown) (defn f [] -> i64 (shown 7))")


def test_native_code_chooses_repeats_and_calls() -> None:
    program = """
    (defn half [(: n f64)] -> f64 (/f n (: 2.0 f64)))
    (defn spread [(: forms !llvm.ptr)] -> !llvm.ptr
      (let [count (value_number_get (value_list_first forms))
            whole (arith.fptosi {:result i64} (half count))
            made (value_list_new)]
        (value_list_push made `list)
        (loop [i (: 0 i64)] :while (<i i whole) :do
          (do (value_list_push made (value_list_get forms (: 1 i64))) (+i i 1)))
        (if (value_is_symbol (value_list_get forms (: 1 i64))) made (value_number_new -1.0))))
    (defmacro spread)
    (defn f [(: a i64)] -> i64 (fold + a (spread 6 a)))
    (defn g [] -> i64 (: (spread 6 7) i64))"""
    text = module(FIRST + program)
    assert text.count("arith.addi") == 3
    assert "constant -1 : i64" in text
    assert "@half" not in text


def test_an_expansion_points_at_the_call() -> None:
    with pytest.raises(UserError) as caught:
        module(FIRST + TWICE + "(defmacro twice)\n(defn f [(: a f32)] -> f32\n  (twice a))")
    assert caught.value.render().splitlines()[0].startswith("t.lisp:")
    assert "(twice a)" in caught.value.render()


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("(defmacro nothing)", "there is none before this"),
        ("(defn f [(: x i64)] -> i64 x) (defmacro f)", "this one is (i64) -> i64"),
        ("(defn f [(: x !llvm.ptr)] -> !llvm.ptr (value_list_get x (: 5 i64))) (defmacro f) (f)", "gave no form"),
        ("(defn f [(: x !llvm.ptr)] -> !llvm.ptr (value_list_get null (: 0 i64))) (defmacro f) (f)", "not the address"),
        ("(extern-fn far (-> [!llvm.ptr] [!llvm.ptr])) (defn f [(: x !llvm.ptr)] -> !llvm.ptr (far x)) (defmacro f)",
         "calls far, which is nowhere"),
        ("(extern :other)", "no functions but :value-ffi are built in"),
    ],
)  # fmt: skip
def test_what_is_wrong(program: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        module(FIRST + program.replace("null", "(llvm.mlir.zero {:result !llvm.ptr})"))
    assert message in caught.value.message


def test_macros_of_a_file_leave_its_functions_there(tmp_path: Path) -> None:
    (tmp_path / "macros.lisp").write_text("(require-dialect arith func llvm)" + FIRST + TWICE + "(defmacro twice)")
    program = """(require-dialect func arith) (require-macros "./macros.lisp")
      (defn twice-two [(: a i64)] -> i64 (twice a)) (extern-fn value_list_first (-> [i64] [i64]))"""
    _, text = evaluated(program, name=str(tmp_path / "main.lisp"))
    assert "arith.addi %arg0, %arg0" in text
    assert "!llvm.ptr" not in text
