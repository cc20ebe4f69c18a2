"""emit-plan: write down each entry's calls as the steps of a plan, and drop the entries.

Before:                                            After:
  func.func @logits_b1_s1(%wte: memref<…xi8>, …)     llvm.mlir.global external constant @plan("{…json…}")
    %w = memref.view %wte[%c0] …
    call @contraction_1x2304(%x, %w, …)

Requires: what plan-arena ensures, and schedules' `grid` (on GPUs also `block` and `shared_bytes`) on every kernel.
Ensures: the global string @plan is the JSON of a `lispgpt.runtime.plan.plan.Plan`, whose `making` is the function that
`makes` something of weights (make_weights.py), and, under "kernels", of what is known of each kernel: its `work`, where
count-work has counted it, and whether it runs on matrix instructions.  Its location holds the forms that launches are
made of.  Only kernels are left, and none writes an argument that its `access` says it only reads.
"""

from __future__ import annotations

import json
from typing import Any

from lispgpt.base.errors import InternalError, UserError
from lispgpt.ir.access import access_of, check_access
from lispgpt.ir.collectives import collective_functions
from lispgpt.ir.mlir import ir
from lispgpt.ir.places import forms_of, name_of
from lispgpt.ir.structure import (
    callee_of,
    defining_op,
    entry_functions,
    integers,
    kernel_functions,
    nested_operations,
    operations,
    strings,
    symbol_of,
)
from lispgpt.ir.tensor_maps import map_facts
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.refusal import refusals
from lispgpt.passes.memory.kernel_buffers import byte_size
from lispgpt.passes.model.kernel_work import recorded_work
from lispgpt.passes.model.make_weights import MAKES
from lispgpt.passes.model.weight_recipes import MADE
from lispgpt.passes.plan.packings import packing_facts
from lispgpt.passes.states import CALLS_VIEWS, IN_ARENA

PLAN_SYMBOL = "plan"
MATRIX_INSTRUCTIONS = ("mma", "mfma", "dpbf16ps")


class EmitPlan(Pass):
    parts_kernels = True
    starts_from = (IN_ARENA, CALLS_VIEWS)

    def run(self, module: ir.Module, target: object) -> None:
        if any(op.name == "llvm.mlir.global" and symbol_of(op) == PLAN_SYMBOL for op in operations(module.body)):
            raise UserError("the plan is written down already: the pipeline has emit-plan twice")
        kernels = {symbol_of(k): k for k in kernel_functions(module)}
        collectives = collective_functions(module)
        buffers: dict[str, dict[str, Any]] = {}
        entries, making, forms = [], None, list[list[tuple[str, ...]]]()
        for kernel in kernels.values():
            check_access(kernel)
        for entry in entry_functions(module):
            steps = _entry(entry, kernels | collectives, buffers)
            if MAKES in entry.attributes:
                making = steps
            else:
                entries.append(steps)
            forms.insert(len(entries) - (making is None), [forms_of(call.location) for call in _calls(entry)])
            entry.erase()
        for group in [*collectives.values(), *(op for op in operations(module.body) if op.name == "shard.grid")]:
            group.erase()
        facts = {name: _facts(kernel) for name, kernel in kernels.items()}
        plan = {"buffers": list(buffers.values()), "entries": entries, "kernels": facts}
        plan |= {"making": making} if making else {}
        value, place = (json.dumps(json.dumps(content)) for content in (plan, forms))
        text = f"llvm.mlir.global external constant @{PLAN_SYMBOL}({value}) loc({place})"
        module.body.append(ir.Operation.parse(text))


def take_plan(module: ir.Module) -> dict[str, Any]:
    """The JSON value of a module's plan, which leaves it: machine code needs none.

    InternalError where no pass has emitted one.
    """
    for op in operations(module.body):
        if op.name == "llvm.mlir.global" and symbol_of(op) == PLAN_SYMBOL:
            plan: dict[str, Any] = json.loads(ir.StringAttr(op.attributes["value"]).value)
            _add_forms(plan, json.loads(name_of(op.location) or "[]"))
            op.erase()
            return plan
    raise InternalError("the pipeline has no emit-plan pass")


def _add_forms(plan: dict[str, Any], forms: list[list[list[str]]]) -> None:
    """Have launches say which forms they compute, by the numbers that these then have in the plan.

    forms: of each entry's launches, and then of those that make weights; none where the plan was read from a text.
    """
    numbers: dict[str, int] = {}
    entries = [*plan["entries"], *([plan["making"]] if "making" in plan else [])]
    for entry, of_entry in zip(entries, forms, strict=False):
        for step, own in zip(entry["steps"], of_entry, strict=True):
            if step["kind"] == "launch":
                step["forms"] = [numbers.setdefault(form, len(numbers)) for form in own]
    plan["forms"] = list(numbers)


def _facts(kernel: ir.Operation) -> dict[str, Any]:
    """Its work; the name of the schedule that wrote it by tiles, if one did; and where no special schedule took it,
    what runs it and why the others left it."""
    work = recorded_work(kernel)
    facts: dict[str, Any] = {} if work is None else {"work": {**work, "matrix": _uses_matrices(kernel)}}
    if "persistent" in kernel.attributes:
        facts["persistent"] = ir.IntegerAttr(kernel.attributes["persistent"]).value
    if maps := map_facts(kernel):
        facts["tensor_maps"] = maps
    if "permission" in kernel.attributes:
        facts["permission"] = ir.StringAttr(kernel.attributes["permission"]).value
    if "schedule" in kernel.attributes:
        facts |= {"schedule": ir.StringAttr(kernel.attributes["schedule"]).value, "refused": refusals(kernel)}
    if "tiles" in kernel.attributes:
        facts["tiles"] = ir.StringAttr(kernel.attributes["tiles"]).value
    return facts


def _uses_matrices(kernel: ir.Operation) -> bool:
    """Whether a scheduled kernel has matrix instructions, as ops of a dialect or as the target's own text."""
    for op in nested_operations(kernel):
        name = {"llvm.inline_asm": "asm_string", "llvm.call_intrinsic": "intrin"}.get(op.name)
        text = str(op.attributes[name]) if name else op.name
        if any(kind in text for kind in MATRIX_INSTRUCTIONS):
            return True
    return False


def _entry(entry: ir.Operation, kernels: dict[str, ir.Operation], buffers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    symbol = symbol_of(entry)
    names: list[str] = []
    ports: dict[str, dict[str, str]] = {"input": {}, "result": {}}
    shapes = {s.name: list(ir.DenseI64ArrayAttr(s.attr)) for s in ir.DictAttr(entry.attributes["inputs"])}
    wholes, grows = (ir.DictAttr(entry.attributes[n]) if n in entry.attributes else {} for n in ("wholes", "grows"))
    packings = packing_facts(entry.attributes["packings"]) if "packings" in entry.attributes else {}
    growing: dict[str, int] = {}
    summed = strings(entry.attributes["summed"]) if "summed" in entry.attributes else []
    for qualified, type_ in zip(strings(entry.attributes["arguments"]), entry.attributes["types"], strict=True):
        kind, name = qualified.split(":", 1)
        type_ = ir.TypeAttr(type_).value
        shape = list(type_.shape) if kind != "input" else shapes.get(name, list(type_.shape))
        if kind in ports:
            ports[kind][name] = name = f"{symbol}/{kind}/{name}"
        elif kind == MADE:
            name = f"{kind}/{name}"
        elif kind == "kept":
            name = f"{symbol}/{kind}/{name}"
        buffer: dict[str, Any] = {"name": name, "kind": kind, "shape": shape, "dtype": str(type_.element_type)}
        if kind == "state" and name in wholes:
            buffer["whole"] = list(ir.DenseI64ArrayAttr(wholes[name]))
        if kind == "weight" and name in packings:
            buffer["packing"] = packings[name]
        if qualified in summed:
            buffer["summed"] = True
        if buffers.get(name, buffer) != buffer:  # a state whose sizes are other in another entry is another
            buffer["name"] = name = f"{name}@{'x'.join(map(str, shape))}"
        buffers[name] = buffer
        names.append(name)
        own = qualified.partition(":")[2]
        if kind == "state" and own in grows:
            growing[name] = ir.IntegerAttr(grows[own]).value
    return {
        "name": ir.StringAttr(entry.attributes["entry"]).value,
        "sizes": dict(
            zip(strings(entry.attributes["sizes"]), ir.DenseI64ArrayAttr(entry.attributes["extents"]), strict=True)
        ),
        "inputs": ports["input"],
        "results": ports["result"],
        "steps": [_step(call, names, kernels) for call in _calls(entry)],
        "repeatable": "repeatable" in entry.attributes,
        **({"grows": growing} if growing else {}),
        **({"bounds": list(map(_bound, entry.attributes["bounds"]))} if "bounds" in entry.attributes else {}),
        **_repeats(entry),
        **({"remarks": strings(entry.attributes["remarks"])} if "remarks" in entry.attributes else {}),
    }


def _calls(entry: ir.Operation) -> list[ir.Operation]:
    return [op for op in operations(entry.regions[0].blocks[0]) if op.name == "func.call"]


def _bound(attribute: ir.Attribute) -> dict[str, Any]:
    """Which whole numbers an input may be, or a part of it."""
    fields = ir.DictAttr(attribute)
    part = {key: integers(fields[key]) for key in ("offsets", "sizes") if key in fields}
    first, last = (ir.IntegerAttr(fields[key]).value for key in ("first", "last"))
    return {"input": ir.StringAttr(fields["input"]).value, "first": first, "last": last, **part}


def _repeats(entry: ir.Operation) -> dict[str, Any]:
    """Where one launch may run an entry several times: how often, what says it, and what keeps which results."""
    if "repeats" not in entry.attributes:
        return {}
    fields, symbol = ir.DictAttr(entry.attributes["repeats"]), symbol_of(entry)
    kept = {name: f"{symbol}/kept/{name}" for name in strings(fields["kept"])}
    return {"repeats": {"most": ir.IntegerAttr(fields["most"]).value, "more": "more", "kept": kept}}


def _step(call: ir.Operation, names: list[str], functions: dict[str, ir.Operation]) -> dict[str, Any]:
    attributes = functions[callee_of(call)].attributes
    if "collective" not in attributes:
        return _launch(call, names, functions[callee_of(call)])
    access = access_of(functions[callee_of(call)])
    return {
        "kind": "collective",
        "operation": ir.StringAttr(attributes["collective"]).value,
        "devices": _devices(call),
        "dtypes": [str(value.type.element_type) for value in call.operands],
        "arguments": [_argument(v, how, names) for v, how in zip(call.operands, access, strict=True)],
    }


def _devices(call: ir.Operation) -> int:
    """How many devices the module's one grid has."""
    module = call.parent.parent
    (grid,) = (op for op in operations(module.regions[0].blocks[0]) if op.name == "shard.grid")
    return int(ir.DenseI64ArrayAttr(grid.attributes["shape"])[0])


def _launch(call: ir.Operation, names: list[str], kernel: ir.Operation) -> dict[str, Any]:
    symbol = callee_of(call)
    attributes = kernel.attributes
    if "grid" not in attributes:
        raise InternalError(f"emit-plan: no schedule has set the grid of kernel {symbol}")
    return {
        "kind": "launch",
        "kernel": symbol,
        "grid": integers(attributes["grid"]),
        "block": integers(attributes["block"]) if "block" in attributes else [1, 1, 1],
        "shared_bytes": ir.IntegerAttr(attributes["shared_bytes"]).value if "shared_bytes" in attributes else 0,
        "arguments": [_argument(v, how, names) for v, how in zip(call.operands, access_of(kernel), strict=True)],
    }


def _argument(value: ir.Value, access: str, names: list[str]) -> dict[str, Any]:
    view = defining_op(value)
    if view is None or view.name != "memref.view":
        raise InternalError("emit-plan: a kernel's argument is not a view of an entry's buffer")
    offset = ir.IntegerAttr(defining_op(view.operands[1]).attributes["value"]).value
    buffer = names[ir.BlockArgument(view.operands[0]).arg_number]
    return {"buffer": buffer, "offset": offset, "nbytes": byte_size(value.type), "access": access}
