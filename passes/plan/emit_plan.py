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
from lispgpt.ir.access import check_access
from lispgpt.ir.loops import functions_without_body
from lispgpt.ir.mlir import ir
from lispgpt.ir.places import name_of
from lispgpt.ir.structure import (
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
from lispgpt.passes.distribute.mask_rows import SIZE
from lispgpt.passes.kernels.offers import IDENTITY, OFFERS, TUNED, Offer, offers_of
from lispgpt.passes.kernels.refusal import refusals
from lispgpt.passes.model.drop_empty import ORDER, UNMADE
from lispgpt.passes.model.kernel_work import recorded_work
from lispgpt.passes.model.make_weights import MAKES
from lispgpt.passes.model.weight_recipes import MADE
from lispgpt.passes.plan.entry_steps import Called
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
        others = functions_without_body(module)
        called = Called(kernels | others, {}, {})
        buffers: dict[str, dict[str, Any]] = {}
        entries, making, forms = [], None, list[list[tuple[str, ...]]]()
        for kernel in kernels.values():
            check_access(kernel)
        for entry in entry_functions(module):
            if "rounds" in entry.attributes:
                called.rounds[symbol_of(entry)] = called.body(entry)
                entry.erase()
                continue
            steps = _entry(entry, called, buffers)
            if MAKES in entry.attributes:
                making = steps
            else:
                entries.append(steps)
            forms.insert(len(entries) - (making is None), called.forms(entry))
            entry.erase()
        for group in [*others.values(), *(op for op in operations(module.body) if op.name == "shard.grid")]:
            group.erase()
        facts = {name: {**_facts(k), "elements": called.elements.get(name, [])} for name, k in kernels.items()}
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
        _number_forms(entry["steps"], of_entry, numbers)
    plan["forms"] = list(numbers)


def _number_forms(steps: list[dict[str, Any]], forms: list[Any], numbers: dict[str, int]) -> None:
    for step, own in zip(steps, forms, strict=True):
        if step["kind"] == "launch":
            step["forms"] = [numbers.setdefault(form, len(numbers)) for form in own]
        elif step["kind"] == "loop":
            _number_forms(step["steps"], own, numbers)


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
    if OFFERS in kernel.attributes:
        facts["offers"] = list(map(_offer, offers_of(kernel)))
    if IDENTITY in kernel.attributes:
        facts[IDENTITY] = ir.StringAttr(kernel.attributes[IDENTITY]).value
    if TUNED in kernel.attributes:
        facts[TUNED] = True
    if "chosen" in kernel.attributes:
        facts["chosen"] = ir.StringAttr(kernel.attributes["chosen"]).value
    if "tiles" in kernel.attributes:
        facts["tiles"] = ir.StringAttr(kernel.attributes["tiles"]).value
    return facts


def _offer(offer: Offer) -> dict[str, Any]:
    """{schedule, us} of one that would take it, with the time that it should need, if that is known; {schedule,
    refused} of another; with `own` where it is the user's."""
    found: dict[str, Any] = {"schedule": offer.schedule} | ({"own": True} if offer.own else {})
    if offer.refused:
        return {**found, "refused": offer.refused}
    return found if offer.seconds is None else {**found, "us": round(1e9 * offer.seconds) / 1000}


def _uses_matrices(kernel: ir.Operation) -> bool:
    """Whether a scheduled kernel has matrix instructions, as ops of a dialect or as the target's own text."""
    for op in nested_operations(kernel):
        name = {"llvm.inline_asm": "asm_string", "llvm.call_intrinsic": "intrin"}.get(op.name)
        text = str(op.attributes[name]) if name else op.name
        if any(kind in text for kind in MATRIX_INSTRUCTIONS):
            return True
    return False


def _entry(entry: ir.Operation, called: Called, buffers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    symbol = symbol_of(entry)
    names: list[str] = []
    ports: dict[str, dict[str, str]] = {"input": {}, "result": {}, "report": {}}
    shapes = {s.name: list(ir.DenseI64ArrayAttr(s.attr)) for s in ir.DictAttr(entry.attributes["inputs"])}
    wholes, grows = (ir.DictAttr(entry.attributes[n]) if n in entry.attributes else {} for n in ("wholes", "grows"))
    packings = packing_facts(entry.attributes["packings"]) if "packings" in entry.attributes else {}
    unsigned = strings(entry.attributes["unsigned"]) if "unsigned" in entry.attributes else []
    growing: dict[str, int] = {}
    size = ""
    summed = strings(entry.attributes["summed"]) if "summed" in entry.attributes else []
    given = list(zip(strings(entry.attributes["arguments"]), entry.attributes["types"], strict=True))
    unmade = [(u.name, u.attr) for u in ir.DictAttr(entry.attributes[UNMADE])] if UNMADE in entry.attributes else []
    for qualified, type_ in [*given, *unmade]:
        kind, name = qualified.split(":", 1)
        type_ = ir.TypeAttr(type_).value
        shape = list(type_.shape) if kind != "input" else shapes.get(name, list(type_.shape))
        if kind == SIZE:
            size = name = f"{symbol}/{kind}/{name}"
            kind = "input"
        elif kind in ports:
            ports[kind][name] = name = f"{symbol}/{kind}/{name}"
            kind = "result" if kind == "report" else kind
        elif kind == MADE:
            name = f"{kind}/{name}"
        elif kind == "kept":
            name = f"{symbol}/{kind}/{name}"
        buffer: dict[str, Any] = {"name": name, "kind": kind, "shape": shape, "dtype": str(type_.element_type)}
        if qualified in unsigned:
            buffer["dtype"] = "u8"
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
        "results": _in_order(entry, ports["result"]),
        "steps": called.steps(entry, names[: len(given)]),
        "repeatable": "repeatable" in entry.attributes,
        **({"grows": growing} if growing else {}),
        **({"bounds": list(map(_bound, entry.attributes["bounds"]))} if "bounds" in entry.attributes else {}),
        **_reports(entry, ports["report"]),
        **_up_to(entry, size),
        **_repeats(entry),
        **({"remarks": strings(entry.attributes["remarks"])} if "remarks" in entry.attributes else {}),
    }


def _in_order(entry: ir.Operation, results: dict[str, str]) -> dict[str, str]:
    """The places of an entry's results as the program has them, also those that nothing makes."""
    if ORDER not in entry.attributes:
        return results
    names = [qualified.partition(":")[2] for qualified in strings(entry.attributes[ORDER])]
    return {name: results[name] for name in names if name in results}


def _up_to(entry: ir.Operation, size: str) -> dict[str, Any]:
    """Which dimension may be smaller in a run, and which rows of inputs and results are there then.  size: the buffer
    that says a run's."""
    if "up_to" not in entry.attributes:
        return {}
    if not size:
        raise UserError(f"an entry for any {entry.attributes['up_to']} up to one wants mask-rows in the pipeline")
    rows = {c.name: [integers(each) for each in c.attr] for c in ir.DictAttr(entry.attributes["counted"])}
    parts: dict[str, Any] = {kind: {} for kind in ("inputs", "results")}
    for qualified, dims in rows.items():
        kind, name = qualified.split(":", 1)
        if kind != "report":
            parts[f"{kind}s"][name] = dims
    name = ir.StringAttr(entry.attributes["up_to"]).value
    return {"up_to": {"dimension": name, "size": size, **parts}}


def _bound(attribute: ir.Attribute) -> dict[str, Any]:
    """Which whole numbers an input may be, or a part of it."""
    fields = ir.DictAttr(attribute)
    part = {key: integers(fields[key]) for key in ("offsets", "sizes") if key in fields}
    first, last = (ir.IntegerAttr(fields[key]).value for key in ("first", "last"))
    return {"input": ir.StringAttr(fields["input"]).value, "first": first, "last": last, **part}


def _reports(entry: ir.Operation, places: dict[str, str]) -> dict[str, Any]:
    """What the entry's runs say.  places: of what its reports have, the buffers."""
    if "reports" not in entry.attributes:
        return {}
    found = []
    for each in entry.attributes["reports"]:
        fields = ir.DictAttr(each)
        words = {key: ir.StringAttr(fields[key]).value for key in ("kind", "form", "text")}
        values = [places[name.partition(":")[2]] for name in strings(fields["values"])]
        found.append({**words, "values": values, "loops": ir.IntegerAttr(fields["loops"]).value})
    return {"reports": found}


def _repeats(entry: ir.Operation) -> dict[str, Any]:
    """Where one launch may run an entry several times: how often, what says it, and what keeps which results."""
    if "repeats" not in entry.attributes:
        return {}
    fields, symbol = ir.DictAttr(entry.attributes["repeats"]), symbol_of(entry)
    kept = {name: f"{symbol}/kept/{name}" for name in strings(fields["kept"])}
    return {"repeats": {"most": ir.IntegerAttr(fields["most"]).value, "more": "more", "kept": kept}}
