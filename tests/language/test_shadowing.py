"""A name that a program defines is the program's everywhere in its scope, whatever the language means by it."""

from __future__ import annotations

import pytest
from language.evaluating import module

from lispgpt.language.core import registry
from lispgpt.language.program import LANGUAGE

TAKEN = sorted({"count", "first", "print", "if", "when", "let", "do", "loop", "batch", "tensor"} & set(registry.NAMES))


def test_the_names_are_the_languages() -> None:
    assert len(TAKEN) == 10 and LANGUAGE.names is registry.NAMES


@pytest.mark.parametrize("arrow", ["-> i64", "-> [i64]", "[-> i64]"])
@pytest.mark.parametrize("name", TAKEN)
def test_a_function_calls_itself_by_a_name_of_the_languages(name: str, arrow: str) -> None:
    text = module(f"(defn {name} [(: x i64)] {arrow} (arith.addi ({name} x) (call i64 {name} x)))")
    assert text.count(f"call @{name}(%arg0)") == 2


@pytest.mark.parametrize("name", TAKEN)
def test_a_function_is_called_before_it_is_defined(name: str) -> None:
    text = module(f"(defn use [(: x i64)] -> i64 ({name} x)) (defn {name} [(: x i64)] -> i64 x)")
    assert f"call @{name}(%arg0)" in text


@pytest.mark.parametrize("name", TAKEN)
def test_a_foreign_function_takes_a_name_of_the_languages(name: str) -> None:
    text = module(f"(extern-fn {name} (-> [i64] [i64])) (defn use [(: x i64)] -> i64 ({name} x))")
    assert f"call @{name}(%arg0)" in text


@pytest.mark.parametrize("name", TAKEN)
def test_parameters_and_local_names_win(name: str) -> None:
    body = f"(let [{name} (fn [a b] (arith.addi a b))] ({name} x x))"
    assert "arith.addi %arg0, %arg0" in module(f"(defn use [(: x i64)] -> i64 {body})")
    assert "arith.addi %arg0, %arg0" in module(f"(defn {name} [(: {name} i64)] -> i64 (arith.addi {name} {name}))")


def test_an_ops_argument_is_a_region_only_while_its_head_is_the_languages() -> None:
    text = module("(defn use [(: x i64)] -> i64 (let [do (fn [a] (arith.muli a a))] (arith.addi (do x) x)))")
    assert "arith.muli %arg0, %arg0" in text


def test_a_symbol_of_an_op_takes_no_core_form_away() -> None:
    text = module(
        '(func.func {:sym_name "let" :function_type (-> [i64] [i64])} (region (block [(: x i64)] (func.return x))))'
        "(defn use [(: x i64)] -> i64 (let [y (call i64 let x)] y))"
    )
    assert "call @let(%arg0)" in text


def test_macros_of_the_library_keep_their_meaning() -> None:
    text = module("(defn if [x] x) (defn let [x] x) (defn f [(: a i64) (: b i64)] -> i1 (<i a b))")
    assert "arith.cmpi slt, %arg0, %arg1" in text
