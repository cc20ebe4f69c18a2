"""Forms that are MLIR ops: their operands, attributes, regions and results, as MLIR prints them."""

from __future__ import annotations

import pytest
from language.evaluating import body, module


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


def test_kernels() -> None:
    text = module("""(kernel fill [out v]
        (let [tile (shared [32] f32)]
          (memref.store v tile (thread-id x))
          (gpu.barrier)
          (memref.store (memref.load tile (thread-id x)) out (+ (* (block-id x) 32) (thread-id x)))))
      (defn main [(: m memref<64xf32>)] -> i32 (launch fill [2] [32] m 1.0) (: 0 i32))""")
    assert "workgroup(%arg13 : memref<32xf32, #gpu.address_space<workgroup>>)" in text
    assert "gpu.barrier" in text and "gpu.terminator" in text
