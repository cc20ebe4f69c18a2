"""Making one op: its attributes in the kind it wants, its result types, and no op that MLIR would abort on."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.ir.mlir import ir
from lispgpt.ir.op_facts import facts, infers_results
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.ops import kinds, segments
from lispgpt.language.reader import places
from lispgpt.language.reader.forms import Form

_WANTS_RESULTS = re.compile(r"requires (one|\d+) result|expected \d+ (or more )?results")


@dataclass(frozen=True)
class Draft:
    """An op as it is written; results is None where they are to be inferred."""

    name: str
    form: Form
    operands: list[ir.Value] = field(default_factory=list)
    results: list[ir.Type] | None = None
    attributes: dict[str, ir.Attribute] = field(default_factory=dict)
    region_count: int = 0
    successors: list[ir.Block] = field(default_factory=list)


@dataclass
class Known:
    """What was found out about ops by asking MLIR."""

    resultless: dict[tuple[str, int, int], bool] = field(default_factory=dict)
    kinds: dict[tuple[str, str, type], int] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    taken: set[tuple[Any, ...]] = field(default_factory=set)


class OpCreator:
    """Makes ops at the evaluator's insertion point."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self._known = evaluator.states.of(Known)

    def create(self, draft: Draft) -> Any:
        """An op as the user wrote it; what MLIR would abort on is found here first."""
        evaluator, name, form = self.evaluator, draft.name, draft.form
        if draft.successors:
            alone = self._build(Draft(name, form, results=[]), insert=False)
            if not alone.has_trait(ir.IsTerminatorTrait):
                evaluator.site.fail(f"`{name}` does not go on to another block, and ^labels are given", form)
        draft = replace(draft, attributes=self._fitting(draft) | self._sizes(draft))
        if draft.results is None:
            draft = replace(draft, results=self._results(draft))
        operation = self._build(draft)
        for key, value in draft.attributes.items():
            if key not in operation.attributes or operation.attributes[key] != value:
                evaluator.site.fail(f"`{name}` does not take {value} as its attribute `:{key}`", form)
        return operation

    def _build(self, draft: Draft, infer: bool = False, insert: bool = True) -> Any:
        evaluator, form = self.evaluator, draft.form
        try:
            return ir.Operation.create(
                draft.name,
                results=None if infer else draft.results or [],
                operands=draft.operands,
                attributes=draft.attributes,
                successors=draft.successors,
                regions=draft.region_count,
                loc=evaluator.site.location(form),
                ip=evaluator.builder.insertion if insert else False,
                infer_type=infer,
            )
        except ir.MLIRError as error:
            raise evaluator.site.diagnosed(error, form) from None
        except IndexError:
            block = evaluator.builder.insertion.block
            last = block.operations[len(block.operations) - 1].operation.name
            evaluator.site.fail(f"`{draft.name}` comes after `{last}`, which ends its block", form)
        except (ValueError, TypeError) as error:
            evaluator.site.fail(f"`{draft.name}` cannot be built: {error}", form)

    def _sizes(self, draft: Draft) -> dict[str, ir.Attribute]:
        """operandSegmentSizes of ops that nothing more is known of than how many groups they have: one operand to each
        from the left, and the rest to the last."""
        if "operandSegmentSizes" in draft.attributes or not draft.operands:
            return {}
        if draft.name not in self._known.groups:
            alone = self._build(Draft(draft.name, draft.form, results=[]), insert=False)
            named = "operandSegmentSizes" in alone.attributes
            sizes = alone.attributes["operandSegmentSizes"] if named else None
            self._known.groups[draft.name] = len(sizes) if isinstance(sizes, ir.DenseI32ArrayAttr) else 0
        groups, count = self._known.groups[draft.name], len(draft.operands)
        if not groups:
            return {}
        filled = [1 if i < count else 0 for i in range(groups)]
        filled[-1] += max(count - groups, 0)
        return {"operandSegmentSizes": ir.DenseI32ArrayAttr.get(filled)}

    def _fitting(self, draft: Draft) -> dict[str, ir.Attribute]:
        """The attributes, those that the op wants in another kind than they were written in that kind."""
        attrs = dict(draft.attributes)
        for key, value in draft.attributes.items():
            candidates = [value, *kinds.alternatives(self.evaluator, key, value)]
            if len(candidates) == 1:
                continue
            known = (draft.name, key, type(value))
            choice = self._known.kinds.get(known, -1)
            if not 0 <= choice < len(candidates):
                others = {k: v for k, v in attrs.items() if k != key}
                fits = (not self._complains(draft, others, key, candidate) for candidate in candidates)
                choice = next((index for index, fit in enumerate(fits) if fit), 0)
                if not isinstance(value, ir.StringAttr):
                    self._known.kinds[known] = choice
            chosen = candidates[choice]
            if chosen is None:
                del attrs[key]
            else:
                attrs[key] = chosen
        return attrs

    def _complains(self, draft: Draft, others: dict[str, Any], key: str, value: ir.Attribute | None) -> bool:
        """Whether MLIR does not take the op with this attribute of this kind."""
        tried = replace(draft, attributes=others | ({key: value} if value is not None else {}))
        try:
            operation = self._build(tried)
        except UserError as error:
            return key in error.message
        dropped = value is not None and (key not in operation.attributes or operation.attributes[key] != value)
        operation.erase()
        if dropped:
            return True
        return f"attribute '{key}'" in self._try(self._with_stand_in(tried))

    def _results(self, draft: Draft) -> list[ir.Type]:
        """The result types where the form gives none: none at all where MLIR takes the op so, else inferred, and only
        after its verifier has nothing to say against the operands, since inference takes them on trust."""
        name, operands, evaluator = draft.name, draft.operands, self.evaluator
        known = segments.known_results(evaluator, name, operands, draft.attributes)
        if known is not None:
            return known
        if facts(name).destination:
            sizes = draft.attributes.get("operandSegmentSizes")
            outs = sizes[1] if isinstance(sizes, ir.DenseI32ArrayAttr) and len(sizes) > 1 else 1
            types = [o.type for o in operands[len(operands) - outs :]]
            if types:
                return [t for t in types if isinstance(t, ir.RankedTensorType)]
        if self._is_resultless(draft):
            return []
        taken = (name, draft.region_count, *(operand.type for operand in operands), *draft.attributes)
        if taken not in self._known.taken:
            self._check_operands(draft)
            self._known.taken.add(taken)
        return self._inferred(draft)

    def _is_resultless(self, draft: Draft) -> bool:
        """Whether MLIR takes the op without results: one that infers its results has some, of others it is asked."""
        shape = (draft.name, len(draft.operands), draft.region_count)
        known = self._known.resultless
        if shape not in known:
            without = replace(draft, results=[])
            known[shape] = not infers_results(draft.name) and not _WANTS_RESULTS.search(self._try(without))
        return known[shape]

    def _with_stand_in(self, draft: Draft) -> Draft:
        """The op with a result of some type where it has one: what else is wrong with it comes to light."""
        if draft.results is not None:
            return draft
        stand_in = draft.operands[0].type if draft.operands else self.evaluator.builder.index
        return replace(draft, results=[] if self._is_resultless(draft) else [stand_in])

    def _check_operands(self, draft: Draft) -> None:
        """Fail where the verifier has something to say against the operands, whatever the results are."""
        problem = self._try(self._with_stand_in(draft))
        if re.search(r"operand|requires attribute|attribute '|region|successor", problem):
            types = ", ".join(str(operand.type) for operand in draft.operands)
            about_types = "operand" in problem and types and "found" not in problem
            given = f"; its operands are {types}" if about_types else ""
            self.evaluator.site.fail(f"`{draft.name}`: {places.in_words(problem)}{given}", draft.form)

    def _inferred(self, draft: Draft) -> list[ir.Type]:
        if not infers_results(draft.name):
            message = f"`{draft.name}` needs :result, its result type: ({draft.name} {{:result T}} …)"
            self.evaluator.site.fail(message, draft.form)
        operation = self._build(draft, infer=True)
        types = [result.type for result in operation.results]
        operation.erase()
        return types

    def _try(self, draft: Draft) -> str:
        """What the verifier says of an op made just to ask; empty where it has nothing to say."""
        operation = self._build(draft)
        try:
            operation.verify()
        except ir.MLIRError as error:
            return error.error_diagnostics[0].message if error.error_diagnostics else str(error)
        finally:
            operation.erase()
        return ""
