"""Programs to MLIR: each form's ops, hygiene, requires, locations; and random programs, which never get past a
UserError."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lispgpt.errors import UserError
from lispgpt.frontend import registry
from lispgpt.frontend.program import Program, evaluate
from lispgpt.mlir import new_context
from lispgpt.source import Source

DIALECTS = "(require-dialect arith memref scf func tensor linalg cf gpu vector llvm affine math)\n"


def evaluated(text: str, root: Path = Path("/none"), name: str = "t.lisp", **options: Any) -> tuple[Program, str]:
    with new_context():
        given = {"overrides": {}, "checkpoint_config": {}, "shapes": [], **options}
        program = evaluate(Source(name, text), root=root, **given)
        return program, str(program.module)


def module(text: str) -> str:
    return evaluated(DIALECTS + text)[1]


def body(text: str) -> list[str]:
    """The ops of `(defn f [(: x i32) (: y f32) (: m memref<8xf32>)] -> i32 …)`, without their types' spelling."""
    lines = module(f"(defn f [(: x i32) (: y f32) (: m memref<8xf32>) (: c i1)] -> i32 {text})").splitlines()
    inside = [line.strip() for line in lines[2:]]
    return [line for line in inside if line not in ("}", "")]


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


def test_labels_take_the_operands_after_them() -> None:
    text = module("""(func.func {:sym_name "max" :function_type (-> [i64 i64] [i64])}
      (region
        (block [(: x i64) (: y i64)]
          (def c (arith.cmpi {:predicate "sgt"} x y))
          (cf.cond_br c ^one x ^other y))
        (block ^one [(: v i64)] (func.return v))
        (block ^other [(: v i64)] (func.return v))))""")
    assert "cf.cond_br %0, ^bb1(%arg0 : i64), ^bb2(%arg1 : i64)" in text


def test_several_results() -> None:
    text = module("""(defn f [(: x i32)] -> i32
      (def [low high] (arith.mulsi_extended x x))
      (arith.addi high low))""")
    assert "arith.addi %high, %low" in text


def test_segments_are_worked_out() -> None:
    assert (
        "memref.subview %arg2[4] [4] [1]"
        in body(
            '(memref.subview {:result "memref<4xf32, strided<[1], offset: 4>>" :static_offsets [4] :static_sizes [4]'
            " :static_strides [1]} m) x"
        )[0]
    )
    text = module("""(defn f [(: m memref<8x8xf32>)] -> i32
      (scf.parallel [0 0] [8 8] [1 1]
        (region (block [(: i index) (: j index)] (memref.store 1.0 m i j) (scf.yield))))
      (: 0 i32))""")
    assert "scf.parallel (%arg1, %arg2)" in text


def test_named_linalg_ops_get_their_bodies() -> None:
    text = module("""(defn f [(: a memref<4x4xf32>) (: b memref<4x4xf32>) (: v memref<2x4x4xf32>)] -> i32
      (linalg.fill 0.0 b)
      (linalg.matmul a a b)
      (linalg.batch_matmul v v v)
      (linalg.transpose {:permutation [1 0]} a b)
      (linalg.generic {:ins 1 :outs 1 :iterator_types ["parallel" "#linalg.iterator_type<parallel>"]
                       :indexing_maps [affine_map<(d0,d1)->(d0,d1)> "affine_map<(d0, d1) -> (d0, d1)>"]}
        a b (region (block [(: x f32) (: y f32)] (linalg.yield x))))
      (: 0 i32))""")
    for op in ("fill", "matmul", "batch_matmul", "transpose", "generic"):
        assert f"linalg.{op} " in text


def test_attribute_kinds() -> None:
    text = module("""(memref.global {:sym_name "@t" :type memref<2xf32> :constant true :sym_visibility "private"
                                    :initial_value (: dense<[1.0, 2.0]> tensor<2xf32>)})
      (llvm.mlir.global {:sym_name "s" :linkage 10 :global_type !llvm.array<2 x i8> :constant false :value "r\\0"})
      (llvm.mlir.global {:sym_name "u" :linkage "internal" :global_type i32 :constant true :value 7})""")
    assert 'memref.global "private" constant @t : memref<2xf32> = dense<[1.000000e+00, 2.000000e+00]>' in text
    assert 'llvm.mlir.global external @s("r\\00")' in text
    assert "llvm.mlir.global internal constant @u(7 : i32)" in text


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("(index.constant {:value 42})", "index.constant 42"),
        ('(index.cmp {:predicate "slt"} i 3)', "index.cmp slt(%arg3"),
        ("(complex.create {:result complex<f32>} y 2.0)", "complex.create %arg1"),
        ("(builtin.unrealized_conversion_cast {:result tuple<i32, f32>} x y)", "to tuple<i32, f32>"),
        ('(arith.constant {:value "dense<[1, 2]> : tensor<2xi32>"})', "dense<[1, 2]> : tensor<2xi32>"),
        ("(arith.constant {:value 7 :result i16})", "arith.constant 7 : i16"),
        ('(arith.addf {:fastmath "fast"} y y)', "arith.addf %arg1, %arg1 fastmath<fast>"),
        ('(arith.addi {:overflowFlags "nsw"} x x)', "arith.addi %arg0, %arg0 overflow<nsw>"),
        ("(vector.extract {:result f32 :position [0]} v)", "vector.extract %arg4[0]"),
        ("(vector.shuffle {:mask [1 0] :result vector<2xf32>} v v)", "vector.shuffle %arg4, %arg4 [1, 0]"),
        ('(vector.reduction {:kind "add" :result f32} v)', "vector.reduction <add>, %arg4"),
        ("(vector.transfer_read {:result vector<4xf32> :permutation_map affine_map<(d0)->(d0)>} m 0 0.0)", "_read"),
        ('(memref.atomic_rmw {:kind "addf" :result f32} y m 0)', "memref.atomic_rmw addf %arg1"),
        ("(memref.expand_shape {:result memref<2x4xf32> :reassociation [[0 1]] :static_output_shape [2 4]} m)", "[[0"),
        ("(memref.subview {:result \"memref<?xf32, strided<[?], offset: ?>>\"} m i i i)", "[%arg3] [%arg3] [%arg3]"),
        ("(memref.alloc {:result memref<?x4xf32>} i)", "memref.alloc(%arg3)"),
        ("(affine.apply {:map affine_map<(d0)->(d0 + 1)>} i)", "affine.apply"),
        ("(affine.for {:lower_bound 0 :upper_bound 8} (do (block [(: k index)] (affine.store 1.0 m k))))", "= 0 to 8"),
        ('(gpu.thread_id {:dimension "x"})', "gpu.thread_id x"),
        ('(gpu.shuffle {:mode "xor"} y (: 1 i32) (: 32 i32))', "gpu.shuffle xor %arg1"),
        ("(scf.index_switch {:cases [2] :result i32} i (do (scf.yield x)) (do (scf.yield (: 1 i32))))", "case 2"),
        ("(scf.forall {:bounds [8]} (do (block [(: k index)] (memref.store 1.0 m k))))", "scf.forall (%arg5)"),
        ("(tensor.pad {:result tensor<6x4xf32> :static_low [1 0] :static_high [1 0]} t "
         "(do (block [(: a index) (: b index)] (tensor.yield (: 0.0 f32)))))", "tensor.pad %"),
        ("(tensor.from_elements {:result tensor<2xf32>} y y)", "tensor.from_elements %arg1, %arg1"),
        ("(linalg.reduce {:dimensions [1]} t (tensor.empty {:result tensor<4xf32>}) "
         "(do (block [(: a f32) (: b f32)] (linalg.yield (arith.addf a b)))))", "dimensions = [1]"),
        ("(math.fma y y y)", "math.fma %arg1"),
        ("(llvm.intr.fabs {:result f32} y)", "llvm.intr.fabs(%arg1)"),
    ],
)  # fmt: skip
def test_ops_of_many_dialects(form: str, shown: str) -> None:
    parameters = "[(: x i32) (: y f32) (: m memref<8xf32>) (: i index) (: v vector<4xf32>)]"
    declared = "(require-dialect index complex)\n"
    text = module(f"{declared}(defn f {parameters} -> i32 (def t (tensor.empty {{:result tensor<4x4xf32>}})) {form} x)")
    assert shown in text


def test_functions_call_each_other_before_they_are_defined() -> None:
    text = module("""(defn even [(: n i64)] -> i1 (if (=i n 0) (: 1 i1) (odd (-i n 1))))
                     (defn odd [(: n i64)] -> i1 (if (=i n 0) (: 0 i1) (call i1 even (-i n 1))))""")
    assert text.count("call @") == 2


def test_structs_pointers_and_printing() -> None:
    text = module("""(defstruct Point [x i64] [y f32])
      (defn main [] -> i64
        (let [p (new Point)]
          (Point/x! p 3)
          (println "%d %f" (Point/x p) (Point/y p))
          (when (null? p) (println "%s" "none"))
          (+ (Point/x p) (ptr-load i64 (ptr-at i64 p (: 1 i64))))))""")
    assert "func.func private @malloc(i64) -> !llvm.ptr" in text
    assert text.count("llvm.func @printf(!llvm.ptr, ...) -> i32") == 1
    assert "arith.extf" in text


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


def test_kernels() -> None:
    text = module("""(kernel fill [out v]
        (let [tile (shared [32] f32)]
          (memref.store v tile (thread-id x))
          (gpu.barrier)
          (memref.store (memref.load tile (thread-id x)) out (+ (* (block-id x) 32) (thread-id x)))))
      (defn main [(: m memref<64xf32>)] -> i32 (launch fill [2] [32] m 1.0) (: 0 i32))""")
    assert "workgroup(%arg13 : memref<32xf32, #gpu.address_space<workgroup>>)" in text
    assert "gpu.barrier" in text and "gpu.terminator" in text


def test_locations_go_through_calls_and_macros() -> None:
    with new_context():
        text = "(require-dialect arith)\n(defmacro inc [x] `(arith.addi ~x 1))\n(defn f [(: x i32)] -> i32\n  (inc x))"
        program = evaluate(Source("t.lisp", text), overrides={}, checkpoint_config={}, shapes=[], root=Path("/none"))
        function = program.module.body.operations[0]
        add = next(op for op in function.regions[0].blocks[0].operations if op.operation.name == "arith.addi")
        assert str(add.location) == 'loc(callsite("t.lisp":2:20 at "t.lisp":4:3))'


ATOMS = [
    "0",
    "1",
    "-1",
    "2.5",
    "1e300",
    "99999999999",
    "true",
    "nil",
    '""',
    '"@f"',
    '"slt"',
    "i1",
    "i32",
    "i64",
    "f32",
    "bf16",
    "index",
    "memref<4xf32>",
    "tensor<4x4xf32>",
    "tensor<?xf32>",
    "vector<4xf32>",
    "!llvm.ptr",
    "affine_map<(d0)->(d0)>",
    "array<i32:1,2>",
    "dense<0>",
    "@f",
    "^b",
    "x",
    "y",
    "m",
    "t",
    "&",
    "->",
    "...",
    ":",
    "{:result",
    "i32}",
    "{:result",
    "[i32",
    "f32]}",
    "{:value",
    "3}",
    "{:predicate",
    "2}",
    "{:sym_name",
    '"f"}',
    "[]",
    "()",
    "[x]",
    "(do)",
    "(region)",
    ":else",
]
OPS = [
    "arith.addi",
    "arith.cmpi",
    "arith.constant",
    "arith.select",
    "memref.alloc",
    "memref.load",
    "memref.store",
    "memref.subview",
    "scf.for",
    "scf.if",
    "scf.while",
    "scf.parallel",
    "scf.yield",
    "func.func",
    "func.return",
    "func.call",
    "tensor.extract",
    "tensor.empty",
    "tensor.insert_slice",
    "linalg.generic",
    "linalg.matmul",
    "linalg.fill",
    "linalg.softmax",
    "linalg.reduce",
    "cf.br",
    "cf.cond_br",
    "gpu.launch",
    "gpu.shuffle",
    "vector.load",
    "vector.extract",
    "vector.transfer_read",
    "llvm.call",
    "llvm.getelementptr",
    "llvm.mlir.global",
    "llvm.load",
    "affine.for",
    "affine.load",
    "math.exp",
    "tensor.collapse_shape",
    "memref.cast",
    "scf.reduce",
]


def random_form(chance: random.Random, depth: int) -> str:
    if depth == 0 or chance.random() < 0.4:
        return (
            chance.choice(["x", "y", "m", "t", "1", "(: 1 index)"]) if chance.random() < 0.7 else chance.choice(ATOMS)
        )
    head = chance.choice(OPS) if chance.random() < 0.7 else chance.choice(list(registry.NAMES))
    return f"({head} {' '.join(random_form(chance, depth - 1) for _ in range(chance.randrange(5)))})"


@settings(max_examples=60, deadline=None)
@given(st.integers(min_value=0))
def test_random_programs_are_evaluated_or_refused(seed: int) -> None:
    chance = random.Random(seed)
    forms = "\n".join(random_form(chance, 3) for _ in range(2))
    parameters = "(: x i32) (: y f32) (: m memref<4xf32>) (: t tensor<4x4xf32>)"
    try:
        evaluated(f"{DIALECTS}(defn f [{parameters}]\n{forms})")
    except UserError as error:
        assert error.message and error.span is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(defn grow [l n] (if (= n 0) l (grow (concat l l) (- n 1)))) (grow [1 2] 60)", "longer than"),
        ("(defmacro m [x] `(m (m ~x))) (m 1)", "without an end"),
        ("(fold (fn [x i] (* x x)) 3 (range 100))", "more than 4096 bits"),
        ("(map (fn [i] (concat (range 1000000) [])) (range 1000000))", "still computing"),
        ("(weights (w [1000000000 1000000000])) (entry f [tokens positions] w)", "too large for any machine"),
        ('(def x (str "" (fold (fn [s i] (str s s)) "ab" (range 64))))', "longer than"),
    ],
)
def test_programs_that_would_not_end_do(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        evaluated(text, shapes=[(1, 1)])
