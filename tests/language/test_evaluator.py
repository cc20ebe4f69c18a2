"""Programs to MLIR: numbers, functions, macros, control flow, requires, configuration, locations."""

from __future__ import annotations

from pathlib import Path

import pytest
from language.evaluating import body, evaluated, module

from lispgpt.base.errors import UserError
from lispgpt.base.source import Source
from lispgpt.ir.mlir import new_context
from lispgpt.language.core.environment import Environment
from lispgpt.language.model.sizes import Wanted
from lispgpt.language.program import evaluate


def test_numbers_become_constants_of_their_neighbours_type() -> None:
    assert body("(arith.addi x 1)")[:2] == ["%c1_i32 = arith.constant 1 : i32", "%0 = arith.addi %arg0, %c1_i32 : i32"]
    assert "arith.constant 2.000000e+00 : f32" in body("(memref.store 2 m 3) x")[0]
    assert "arith.constant 3 : index" in body("(memref.store 2 m 3) x")[1]


def test_compile_time_arithmetic_is_exact_and_emits_nothing() -> None:
    ops = body("(def big (* 1000000007 1000000007)) (arith.addi x (mod big 97))")
    assert ops[0] == f"%c{1000000007**2 % 97}_i32 = arith.constant {1000000007**2 % 97} : i32"


def test_closures_inline() -> None:
    ops = body("(let [k 3 f (fn [a & more] (fold + a more))] (f x k x))")
    assert [op.split()[2] for op in ops[:-1]] == ["arith.constant", "arith.addi", "arith.addi"]


def test_macros_are_hygienic() -> None:
    ops = body("(defmacro twice [e] `(let [t ~e] (arith.muli t t))) (let [t x] (twice (arith.addi t 1)))")
    assert ops[-2] == "%1 = arith.muli %0, %0 : i32"
    ops = body("(defmacro sum [x] `(+ ~x ~x)) (let [+ 5] (sum x))")
    assert "arith.addi %arg0, %arg0" in ops[0]
    ops = body("(defmacro of [index] `(cast ~index index)) (cast (of x) i32)")
    assert "index_cast %arg0 : i32 to index" in ops[0]


def test_if_chooses_now_or_later() -> None:
    assert body('(if (< 1 2) x (error "not evaluated"))') == ["return %arg0 : i32"]
    text = module("(defn f [(: c i1) (: x i64)] -> i64 (if c (+ x 1) 7))")
    assert "scf.if %arg0 -> (i64)" in text
    assert "arith.constant 7 : i64" in text
    assert module('(defn f [(: c i1)] -> i64 (when c (println "x")) 3)').count("else") == 0


def test_cond_and_logic() -> None:
    text = module("(defn f [(: a i64) (: b i64)] -> i64 (cond (and (<i a b) (>i b 0)) a (=i a b) (: 0 i64) :else b))")
    assert text.count("scf.if") == 2
    assert text.count("arith.andi") == 1


def test_loop_is_a_while() -> None:
    text = module("(defn f [(: n i64)] -> i64 (loop {:result i64} [i 0] :while (<i i n) :do (+i i 1)))")
    assert "scf.while" in text and "scf.condition" in text


def test_functions_call_each_other_before_they_are_defined() -> None:
    text = module("""(defn even [(: n i64)] -> i1 (if (=i n 0) (: 1 i1) (odd (-i n 1))))
                     (defn odd [(: n i64)] -> i1 (if (=i n 0) (: 0 i1) (call i1 even (-i n 1))))""")
    assert text.count("call @") == 2


def test_foreign_functions_libraries_and_pipelines() -> None:
    program, text = evaluated("""(require-dialect func)
      (extern-fn exp2 (-> [f64] [f64])) (extern-fn printf (-> [!llvm.ptr ...] [i32]))
      (link-library :m) (link-library "lib.so")
      (compilation-gpu rocm (passes (pass a {:x 1 :y "16,16"})) (func-passes (pass b)) (gpu-passes (pass c {:on true})))
      (compilation (target cpu (pass d) (pass gpu.module e {:f 1}) (pass g :h 2)))
      (defn main [] (func.return))""")
    assert "func.func private @exp2(f64) -> f64" in text
    assert program.has_main and program.libraries == ("m", "lib.so")
    gpu, cpu = program.compilations
    assert [(p.scope, str(p)) for p in gpu.passes] == [("any", "a{x=1 y=16,16}"), ("func", "b"), ("gpu", "c{on=true}")]
    assert (gpu.target, cpu.target, [(p.scope, str(p)) for p in cpu.passes]) == (
        "rocm",
        "cpu",
        [("any", "d"), ("gpu", "e{f=1}"), ("any", "g{h=2}")],
    )


def test_requires(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "one.lisp").write_text('(require "two.lisp") (defn seven [] (+ four 3))')
    (tmp_path / "lib" / "two.lisp").write_text("(def four 4)")
    use = "(defn main [] -> i64 (: (+ (m/seven) four) i64))"
    text = f'(require ["@lib/one.lisp" :as m]) (require "lib/two.lisp") {use}'
    _, shown = evaluated(text, tmp_path, str(tmp_path / "main.lisp"))
    assert "arith.constant 11 : i64" in shown
    (tmp_path / "lib" / "two.lisp").write_text('(require "one.lisp")')
    with pytest.raises(UserError, match=r"circle: one.lisp → two.lisp → one.lisp"):
        evaluated(text, tmp_path, str(tmp_path / "main.lisp"))


def test_config_overrides() -> None:
    text = "(config layers 12 dtype f32 scale 1.5) (defn main [] -> i64 (: layers i64))"
    program, shown = evaluated(text, overrides={"scale": 2}, checkpoint_config={"layers": 3, "heads": 4})
    assert program.config == {"layers": 3, "dtype": "f32", "scale": 2.0}
    assert "arith.constant 3 : i64" in shown
    with pytest.raises(UserError, match=r"--set layer: .* did you mean `layers`"):
        evaluated(text, overrides={"layer": 2})
    with pytest.raises(UserError, match="--set gives layers as 'many', and the program has 12 there"):
        evaluated(text, overrides={"layers": "many"})


def test_locations_go_through_calls_and_macros() -> None:
    with new_context():
        text = "(require-dialect arith)\n(defmacro inc [x] `(arith.addi ~x 1))\n(defn f [(: x i32)] -> i32\n  (inc x))"
        program = evaluate(
            Source("t.lisp", text), overrides={}, checkpoint_config={}, wanted=Wanted(), root=Path("/none")
        )
        function = program.module.body.operations[0]
        add = next(op for op in function.regions[0].blocks[0].operations if op.operation.name == "arith.addi")
        assert str(add.location) == 'loc(callsite("t.lisp":2:20 at "t.lisp":4:3))'


def test_texts_have_characters_as_lists_have_members() -> None:
    module('(if (= (nth "M*-" 1) "*") nil (error "wrong"))')
    with pytest.raises(UserError, match="3 is not a position in a text of 3"):
        module('(nth "M*-" 3)')


def test_whole_division_now_and_later() -> None:
    values = "(/ 224 32) (quot 223 32) (quot -223 32) (ceil-div 223 32) (ceil-div -223 32) (quot 7.5 2) (/ 7 2)"
    text = module(f"(def values (list {values})) (defn f [] -> i64 (: (* 1 (nth values 0)) i64))")
    assert "constant 7 : i64" in text
    expected = [7, 6, -6, 7, -6, 3.0, 3.5]
    for position, value in enumerate(expected):
        module(f'(def values (list {values})) (if (= (nth values {position}) {value}) nil (error "wrong"))')
    text = module("(defn f [(: a i64) (: b f32)] (func.return (quot a 3) (ceil-div a 3) (quot b 2) (ceil-div b 2)))")
    assert [op in text for op in ("arith.divsi", "arith.ceildivsi", "math.trunc", "math.ceil")] == [True] * 4


def test_bindings_share_a_scope_so_that_many_cost_no_more_each(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Environment] = []
    plain = Environment.__init__

    def counted(self: Environment, *given: object, **named: object) -> None:
        made.append(self)
        plain(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Environment, "__init__", counted)
    counts = []
    for size in (10, 400):
        made.clear()
        names = " ".join(f"x{i + 1} (arith.addi x{i} 1)" for i in range(size))
        module(f"(defn f [(: x0 i32)] -> i32 (let [{names}] x{size}))")
        counts.append(len(made))
    assert counts[0] == counts[1]


def test_a_function_sees_the_bindings_before_it_only() -> None:
    ops = body("(let [y 1 g (fn [] y) y 2 h (let [z 0] (fn [] y)) y 3] (arith.addi x (+ (* 100 (g)) (* 10 (h)) y)))")
    assert "constant 123 : i32" in ops[0]
