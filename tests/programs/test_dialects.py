"""Every other dialect that a program may use goes through the default pipeline and gives the right values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

STRUCTURED = {
    "affine": (
        """%z = arith.constant 0.0 : f32
        %one = arith.constant 1.0 : f32
        %m = memref.alloc() : memref<8x8xf32>
        affine.for %i = 0 to 8 { affine.for %j = 0 to 8 { affine.store %z, %m[%i, %j] : memref<8x8xf32> } }
        affine.parallel (%i, %j) = (0, 0) to (8, 8) {
          affine.if affine_set<(d0, d1) : (d0 - d1 >= 0)>(%i, %j) { affine.store %one, %m[%i, %j] : memref<8x8xf32> }
        }
        %r = affine.for %i = 0 to 8 iter_args(%a = %z) -> f32 {
          %v = affine.load %m[%i, 3] : memref<8x8xf32>
          %b = arith.addf %a, %v : f32
          affine.yield %b : f32 }""",
        "f32",
        5,
    ),
    "affine index maps": (
        """%c = arith.constant 29 : index
        %a:2 = affine.delinearize_index %c into (4, 8) : index, index
        %b = affine.apply affine_map<(d0)[s0] -> (d0 floordiv 3 + s0 mod 5)>(%a#1)[%c]
        %r = affine.linearize_index [%a#0, %b] by (4, 8) : index""",
        "index",
        3 * 8 + 5,
    ),
    "scf.parallel with a reduction": (
        """%c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        %c9 = arith.constant 9 : index
        %z = arith.constant 0 : index
        %r = scf.parallel (%i) = (%c0) to (%c9) step (%c1) init (%z) -> index {
          scf.reduce(%i : index) { ^bb0(%a: index, %b: index):
            %s = arith.addi %a, %b : index
            scf.reduce.return %s : index } }""",
        "index",
        36,
    ),
    "scf.while": (
        """%z = arith.constant 0 : i32
        %t = arith.constant 10 : i32
        %o = arith.constant 3 : i32
        %r = scf.while (%a = %z) : (i32) -> i32 {
          %c = arith.cmpi slt, %a, %t : i32
          scf.condition(%c) %a : i32
        } do { ^bb0(%a: i32):
          %b = arith.addi %a, %o : i32
          scf.yield %b : i32 }""",
        "i32",
        12,
    ),
    "scf.index_switch and execute_region": (
        """%c = arith.constant 2 : index
        %q = scf.index_switch %c -> i32 case 2 { %a = arith.constant 22 : i32
          scf.yield %a : i32 } default { %a = arith.constant 1 : i32
          scf.yield %a : i32 }
        %r = scf.execute_region -> i32 { cf.br ^b(%q : i32)
          ^b(%p: i32): scf.yield %p : i32 }""",
        "i32",
        22,
    ),
    "cf.switch": (
        """%f = arith.constant 2 : i32
        %a = arith.constant 12 : i32
        %b = arith.constant 22 : i32
        cf.switch %f : i32, [ default: ^bb1(%a : i32), 2: ^bb1(%b : i32) ]
        ^bb1(%r: i32):""",
        "i32",
        22,
    ),
    "memref views": (
        """%c3 = arith.constant 3 : index
        %c2 = arith.constant 2 : index
        %v = arith.constant 5.0 : f32
        %m = memref.alloc(%c3) : memref<?x4xf32>
        linalg.fill ins(%v : f32) outs(%m : memref<?x4xf32>)
        %e = memref.expand_shape %m [[0], [1, 2]] output_shape [%c3, 2, 2] : memref<?x4xf32> into memref<?x2x2xf32>
        %k = memref.collapse_shape %e [[0, 1], [2]] : memref<?x2x2xf32> into memref<?x2xf32>
        %rc = memref.reinterpret_cast %k to offset: [2], sizes: [%c2, 2], strides: [2, 1]
            : memref<?x2xf32> to memref<?x2xf32, strided<[2, 1], offset: 2>>
        %c0 = arith.constant 0 : index
        %w = arith.constant 7.0 : f32
        memref.store %w, %rc[%c0, %c0] : memref<?x2xf32, strided<[2, 1], offset: 2>>
        %at = memref.atomic_rmw addf %v, %m[%c0, %c2] : (f32, memref<?x4xf32>) -> f32
        %r = memref.load %m[%c0, %c2] : memref<?x4xf32>""",
        "f32",
        12,
    ),
    "strided memref.copy": (
        """%v = arith.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]> : vector<6xf32>
        %m = memref.alloc() : memref<6xf32>
        %c0 = arith.constant 0 : index
        %c2 = arith.constant 2 : index
        vector.store %v, %m[%c0] : memref<6xf32>, vector<6xf32>
        %s = memref.subview %m[1] [3] [2] : memref<6xf32> to memref<3xf32, strided<[2], offset: 1>>
        %n = memref.alloc() : memref<3xf32>
        memref.copy %s, %n : memref<3xf32, strided<[2], offset: 1>> to memref<3xf32>
        %r = memref.load %n[%c2] : memref<3xf32>""",
        "f32",
        6,
    ),
    "vectors": (
        """%v = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : vector<4xf32>
        %m = vector.broadcast %v : vector<4xf32> to vector<4x4xf32>
        %t = vector.transpose %m, [1, 0] : vector<4x4xf32> to vector<4x4xf32>
        %z = arith.constant dense<0.0> : vector<4x4xf32>
        %p = vector.contract {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>,
            affine_map<(i, j, k) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"],
            kind = #vector.kind<add>} %m, %t, %z : vector<4x4xf32>, vector<4x4xf32> into vector<4x4xf32>
        %acc = arith.constant dense<0.0> : vector<4xf32>
        %q = vector.multi_reduction <add>, %p, %acc [1] : vector<4x4xf32> to vector<4xf32>
        %s = vector.shuffle %q, %v [0, 5, 2, 7] : vector<4xf32>, vector<4xf32>
        %c0 = arith.constant 0 : index
        %zf = arith.constant 0.0 : f32
        %mm = memref.alloc() : memref<3x5xf32>
        %o = vector.outerproduct %s, %s : vector<4xf32>, vector<4xf32>
        vector.transfer_write %o, %mm[%c0, %c0] : vector<4x4xf32>, memref<3x5xf32>
        %tr = vector.transfer_read %mm[%c0, %c0], %zf : memref<3x5xf32>, vector<4x4xf32>
        %row = vector.extract %tr[1] : vector<4xf32> from vector<4x4xf32>
        %r = vector.reduction <add>, %row : vector<4xf32> into f32""",
        "f32",
        2 * (120 + 2 + 120 + 4),
    ),
    "linalg on memory": (
        """%v = arith.constant 2.0 : f32
        %z = arith.constant 0.0 : f32
        %a = memref.alloc() : memref<4x4xf32>
        %b = memref.alloc() : memref<4x4xf32>
        linalg.fill ins(%v : f32) outs(%a : memref<4x4xf32>)
        linalg.fill ins(%z : f32) outs(%b : memref<4x4xf32>)
        linalg.matmul ins(%a, %a : memref<4x4xf32>, memref<4x4xf32>) outs(%b : memref<4x4xf32>)
        linalg.add ins(%a, %b : memref<4x4xf32>, memref<4x4xf32>) outs(%b : memref<4x4xf32>)
        %x = memref.alloc() : memref<4xf32>
        linalg.fill ins(%z : f32) outs(%x : memref<4xf32>)
        linalg.reduce {arith.addf} ins(%b : memref<4x4xf32>) outs(%x : memref<4xf32>) dimensions = [1]
        linalg.broadcast ins(%x : memref<4xf32>) outs(%a : memref<4x4xf32>) dimensions = [0]
        linalg.softmax dimension(1) ins(%a : memref<4x4xf32>) outs(%b : memref<4x4xf32>)
        %i = arith.constant 1 : index
        %s = memref.load %b[%i, %i] : memref<4x4xf32>
        %t = memref.load %x[%i] : memref<4xf32>
        %r = arith.addf %s, %t : f32""",
        "f32",
        72.25,
    ),
    "tensors": (
        """%v = arith.constant 2.0 : f32
        %e = tensor.empty() : tensor<4x4xf32>
        %a = linalg.fill ins(%v : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
        %c = linalg.matmul ins(%a, %a : tensor<4x4xf32>, tensor<4x4xf32>) outs(%a : tensor<4x4xf32>)
            -> tensor<4x4xf32>
        %p = tensor.pad %c low[1, 1] high[1, 1] { ^bb0(%x: index, %y: index): tensor.yield %v : f32 }
            : tensor<4x4xf32> to tensor<6x6xf32>
        %sl = tensor.extract_slice %p[0, 0] [2, 2] [1, 1] : tensor<6x6xf32> to tensor<2x2xf32>
        %in = tensor.insert_slice %sl into %c[2, 2] [2, 2] [1, 1] : tensor<2x2xf32> into tensor<4x4xf32>
        %cl = tensor.collapse_shape %in [[0, 1]] : tensor<4x4xf32> into tensor<16xf32>
        %ad = arith.addf %cl, %cl : tensor<16xf32>
        %i = arith.constant 10 : index
        %j = arith.constant 15 : index
        %k = tensor.extract %ad[%i] : tensor<16xf32>
        %l = tensor.extract %ad[%j] : tensor<16xf32>
        %r = arith.addf %k, %l : f32""",
        "f32",
        4 + 36,
    ),
}  # fmt: skip


@pytest.mark.drawn
@pytest.mark.parametrize("case", STRUCTURED, ids=lambda case: re.sub(r"\W+", "-", case))
def test_structured(run_main: Callable[..., Any], case: str) -> None:
    body, type_, expected = STRUCTURED[case]
    ran = run_main(body, type_)
    assert ran.code == 0, ran.errors
    assert float(ran.output) == expected


def test_tensors_cross_functions(run_main: Callable[..., Any]) -> None:
    double = """func.func @double(%a: tensor<?xf32>) -> tensor<?xf32> {
      %b = arith.addf %a, %a : tensor<?xf32>
      return %b : tensor<?xf32> }"""
    body = """%n = arith.constant 5 : index
      %v = arith.constant 2.0 : f32
      %e = tensor.empty(%n) : tensor<?xf32>
      %a = linalg.fill ins(%v : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
      %b = func.call @double(%a) : (tensor<?xf32>) -> tensor<?xf32>
      %i = arith.constant 4 : index
      %r = tensor.extract %b[%i] : tensor<?xf32>"""
    assert run_main(body, "f32", double).output == "4.0\n"
