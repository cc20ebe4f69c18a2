"""What the compiler knows of ops by their names, beside what MLIR itself can be asked: one table, a row an op.

An op that has no row is still an op of the language; a row makes it read better: plain numbers find their types, groups
of operands are counted, blocks end by themselves, bodies are made.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

from lispgpt.ir.mlir import ir


@dataclass(frozen=True)
class OpFacts:
    """What is known of one op.

    index_from: a plain number at this operand or a later one is an index, whatever its neighbours are.
    element_operands: any other plain number is of the element type of the first shaped operand.
    groups: the sizes of its groups of operands, -1 for what the others leave.
    slice_of: it takes offsets, sizes and strides behind so many operands.
    regions: how many regions it has even where none is written.
    terminator: the op that ends a block of its regions where the program does not say it.
    terminator_yields: the terminator takes the values that the op gives (or its function type promises).
    attribute_names: attributes that MLIR keeps under another name than programs write: printed names, older ones.
    numbered: attributes that are numbers, with the names of these in order.
    destination: its results have the types of its last operands, which it writes.
    resultless: it has no results unless the program says so.
    body: who makes the body of its region where none is written: "" nobody, "definition" the op's definition,
    "copy" it gives its first operand's element, "program" only the program can.
    """

    index_from: int | None = None
    element_operands: bool = False
    groups: tuple[int, ...] | None = None
    slice_of: int | None = None
    regions: int = 0
    terminator: str | None = None
    terminator_yields: bool = True
    attribute_names: dict[str, str] = field(default_factory=dict)
    numbered: dict[str, tuple[str, ...]] = field(default_factory=dict)
    destination: bool = False
    resultless: bool = False
    body: str = ""


_INTEGER_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_FLOAT_PREDICATES = (
    "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true",
)  # fmt: skip
_ATOMICS = (
    "addf", "addi", "andi", "assign", "maximumf", "maxnumf", "maxs", "maxu", "minimumf", "minnumf", "mins", "minu",
    "mulf", "muli", "ori", "xori",
)  # fmt: skip
_POSITION = {"position": "static_position"}
_NOTHING = OpFacts()
_LINALG = OpFacts(regions=1, body="definition", destination=True)
_LINALG_COPY, _LINALG_OWN = replace(_LINALG, body="copy"), replace(_LINALG, body="program")
_LINALG_WITHOUT_BODY = OpFacts(destination=True)

_FACTS = {
    "affine.apply": OpFacts(index_from=0),
    "affine.for": OpFacts(terminator="affine.yield"),
    "affine.if": OpFacts(regions=2, terminator="affine.yield"),
    "affine.load": OpFacts(index_from=1),
    "affine.parallel": OpFacts(terminator="affine.yield"),
    "affine.store": OpFacts(index_from=2, element_operands=True),
    "arith.cmpf": OpFacts(numbered={"predicate": _FLOAT_PREDICATES}),
    "arith.cmpi": OpFacts(numbered={"predicate": _INTEGER_PREDICATES}),
    "builtin.module": OpFacts(regions=1),
    "func.func": OpFacts(regions=1, terminator="func.return", resultless=True),
    "gpu.alloc": OpFacts(groups=(0, -1, 0)),
    "gpu.func": OpFacts(regions=1, terminator="gpu.return", attribute_names={"gpu.kernel": "kernel"}, resultless=True),
    "gpu.launch": OpFacts(index_from=0, terminator="gpu.terminator", terminator_yields=False, resultless=True),
    "gpu.module": OpFacts(regions=1, resultless=True),
    "index.cmp": OpFacts(attribute_names={"predicate": "pred"}),
    "linalg.broadcast": _LINALG_COPY,
    "linalg.copy": _LINALG_COPY,
    "linalg.fill": _LINALG_COPY,
    "linalg.generic": _LINALG_OWN,
    "linalg.index": OpFacts(),
    "linalg.map": _LINALG_OWN,
    "linalg.pack": _LINALG_WITHOUT_BODY,
    "linalg.reduce": _LINALG_OWN,
    "linalg.softmax": _LINALG_WITHOUT_BODY,
    "linalg.transpose": _LINALG_COPY,
    "linalg.unpack": _LINALG_WITHOUT_BODY,
    "linalg.yield": OpFacts(),
    "llvm.call": OpFacts(groups=(-1, 0)),
    "llvm.fcmp": OpFacts(numbered={"predicate": ("_false", *_FLOAT_PREDICATES[1:-1], "_true")}),
    "llvm.func": OpFacts(regions=1, resultless=True),
    "llvm.icmp": OpFacts(numbered={"predicate": _INTEGER_PREDICATES}),
    "llvm.mlir.global": OpFacts(regions=1),
    "memref.alloc": OpFacts(index_from=0, groups=(-1, 0)),
    "memref.alloca": OpFacts(index_from=0, groups=(-1, 0)),
    "memref.alloca_scope": OpFacts(terminator="memref.alloca_scope.return"),
    "memref.atomic_rmw": OpFacts(index_from=2, numbered={"kind": _ATOMICS}),
    "memref.dim": OpFacts(index_from=1),
    "memref.load": OpFacts(index_from=1),
    "memref.prefetch": OpFacts(index_from=1),
    "memref.reinterpret_cast": OpFacts(index_from=1, slice_of=1),
    "memref.store": OpFacts(index_from=2, element_operands=True),
    "memref.subview": OpFacts(index_from=1, slice_of=1),
    "memref.view": OpFacts(index_from=1),
    "scf.execute_region": OpFacts(terminator="scf.yield", resultless=True),
    "scf.for": OpFacts(terminator="scf.yield"),
    "scf.forall": OpFacts(index_from=0, terminator="scf.forall.in_parallel", terminator_yields=False),
    "scf.forall.in_parallel": OpFacts(regions=1),
    "scf.if": OpFacts(regions=2, terminator="scf.yield", resultless=True),
    "scf.index_switch": OpFacts(terminator="scf.yield"),
    "scf.parallel": OpFacts(index_from=0, terminator="scf.reduce", terminator_yields=False),
    "tensor.dim": OpFacts(index_from=1),
    "tensor.empty": OpFacts(index_from=0),
    "tensor.extract": OpFacts(index_from=1),
    "tensor.extract_slice": OpFacts(index_from=1, slice_of=1),
    "tensor.insert": OpFacts(index_from=2, element_operands=True),
    "tensor.insert_slice": OpFacts(index_from=2, slice_of=2),
    "tensor.parallel_insert_slice": OpFacts(slice_of=2),
    "vector.create_mask": OpFacts(index_from=0),
    "vector.extract": OpFacts(attribute_names=_POSITION),
    "vector.insert": OpFacts(element_operands=True, attribute_names=_POSITION),
    "vector.load": OpFacts(index_from=1),
    "vector.store": OpFacts(index_from=2, element_operands=True),
    "vector.transfer_read": OpFacts(index_from=1, element_operands=True),
    "vector.transfer_write": OpFacts(index_from=2),
}

ENUMERATIONS = {
    "cast": ("#linalg.type_fn<{}>",),
    "dimension": ("#gpu<dim {}>",),
    "fastmath": ("#arith.fastmath<{}>", "#llvm.fastmath<{}>"),
    "fastmathFlags": ("#llvm.fastmath<{}>",),
    "kind": ("#vector.kind<{}>", "#linalg.elementwise_kind<{}>"),
    "linkage": ("#llvm.linkage<{}>",),
    "mapping": ("#gpu.{}",),
    "mode": ("#gpu<shuffle_mode {}>",),
    "op": ("#gpu<all_reduce_op {}>",),
    "overflowFlags": ("#arith.overflow<{}>", "#llvm.overflow<{}>"),
    "pred": ("#index<cmp_predicate {}>",),
}
"""How a word is spelled in full as an attribute of these names."""

LINKAGES = (
    "private", "internal", "available_externally", "linkonce", "weak", "common", "appending", "extern_weak",
    "linkonce_odr", "weak_odr", "external",
)  # fmt: skip
"""LLVM's linkages in the order of their numbers."""


def infers_results(name: str) -> bool:
    """Whether an op of the active context works out its result types from its operands and attributes."""
    try:
        ir.InferTypeOpInterface(SimpleNamespace(OPERATION_NAME=name))
    except ValueError:
        return False
    return True


def facts(name: str) -> OpFacts:
    """What is known of an op by its full name; of one without a row only that a named linalg op has a body."""
    found = _FACTS.get(name)
    if found is None:
        if name.startswith("linalg.winograd"):
            return _LINALG_WITHOUT_BODY
        return _LINALG if name.startswith("linalg.") else _NOTHING
    return found
