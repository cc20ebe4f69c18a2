"""Making one op: its attributes in the kind it wants, its result types, and no op that MLIR would abort on."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lispgpt.errors import UserError
from lispgpt.ir.mlir import create_op, ir
from lispgpt.language.core.values import describe
from lispgpt.language.ops import attributes, kinds, segments
from lispgpt.language.reader import places
from lispgpt.language.reader.forms import Form, show

if TYPE_CHECKING:
    from lispgpt.language.core.evaluator import Evaluator

_WANTS_RESULTS = re.compile(r"requires (one|\d+) result|expected \d+ (or more )?results")
_PLAIN_LINALG = ("linalg.yield", "linalg.index")


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


class OpCreator:
    """Makes ops at the evaluator's insertion point."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self._resultless: dict[tuple[str, int, int], bool] = {}
        self._kinds: dict[tuple[str, str, type], int] = {}
        self._groups: dict[str, int] = {}
        self._taken: set[tuple[Any, ...]] = set()

    def constant(self, number: Any, kind: ir.Type, form: Form) -> ir.Value:
        """An arith.constant."""
        value = attributes.number_attribute(self.evaluator, number, kind, form)
        return self.emit("arith.constant", [], [kind], {"value": value}, form)

    def promoted(self, value: Any, form: Form) -> ir.Value:
        """An argument of a variadic C function: what C itself would make of a small number."""
        evaluator = self.evaluator
        value = evaluator.ssa(value, form)
        if isinstance(value, (bool, int, float)):
            return self.constant(value, evaluator.f64 if isinstance(value, float) else evaluator.i64, form)
        if not isinstance(value, ir.Value):
            evaluator.fail(f"`{show(form)}` is {describe(value)}, and an argument is wanted", form)
        kind = value.type
        if isinstance(kind, ir.FloatType) and kind.width < 64:
            return self.emit("arith.extf", [value], [evaluator.f64], {}, form)
        if isinstance(kind, ir.IndexType):
            return self.emit("arith.index_cast", [value], [evaluator.i64], {}, form)
        if isinstance(kind, ir.IntegerType) and kind.width < 32:
            op = "arith.extui" if kind.width == 1 else "arith.extsi"
            return self.emit(op, [value], [evaluator.i32], {}, form)
        return value

    def emit(
        self,
        name: str,
        operands: list[ir.Value],
        results: list[ir.Type],
        attrs: dict[str, Any],
        form: Form,
        region_count: int = 0,
    ) -> Any:
        """An op that the evaluator itself builds, well formed by construction; its only result, or the op."""
        evaluator = self.evaluator
        place = evaluator.location(form)
        try:
            operation = create_op(name, operands, results, attrs, region_count, loc=place, ip=evaluator.insertion)
        except IndexError:
            evaluator.fail(f"`{show(form)}` comes after the op that ends its block", form)
        return operation.results[0] if results and not region_count else operation

    def create(self, draft: Draft) -> Any:
        """An op as the user wrote it; what MLIR would abort on is found here first."""
        evaluator, name, form = self.evaluator, draft.name, draft.form
        if draft.successors:
            alone = self._build(Draft(name, form, results=[]), insert=False)
            if not alone.has_trait(ir.IsTerminatorTrait):
                evaluator.fail(f"`{name}` does not go on to another block, and ^labels are given", form)
        draft = replace(draft, attributes=self._fitting(draft) | self._sizes(draft))
        if draft.results is None:
            draft = replace(draft, results=self._results(draft))
        operation = self._build(draft)
        for key, value in draft.attributes.items():
            if key not in operation.attributes or operation.attributes[key] != value:
                evaluator.fail(f"`{name}` does not take {value} as its attribute `:{key}`", form)
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
                loc=evaluator.location(form),
                ip=evaluator.insertion if insert else False,
                infer_type=infer,
            )
        except ir.MLIRError as error:
            raise evaluator.diagnosed(error, form) from None
        except IndexError:
            block = evaluator.insertion.block
            last = block.operations[len(block.operations) - 1].operation.name
            evaluator.fail(f"`{draft.name}` comes after `{last}`, which ends its block", form)
        except (ValueError, TypeError) as error:
            evaluator.fail(f"`{draft.name}` cannot be built: {error}", form)

    def _sizes(self, draft: Draft) -> dict[str, ir.Attribute]:
        """operandSegmentSizes of ops that nothing more is known of than how many groups they have: one operand to each
        from the left, and the rest to the last."""
        if "operandSegmentSizes" in draft.attributes or not draft.operands:
            return {}
        if draft.name not in self._groups:
            alone = self._build(Draft(draft.name, draft.form, results=[]), insert=False)
            named = "operandSegmentSizes" in alone.attributes
            sizes = alone.attributes["operandSegmentSizes"] if named else None
            self._groups[draft.name] = len(sizes) if isinstance(sizes, ir.DenseI32ArrayAttr) else 0
        groups, count = self._groups[draft.name], len(draft.operands)
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
            choice = self._kinds.get(known, -1)
            if not 0 <= choice < len(candidates):
                others = {k: v for k, v in attrs.items() if k != key}
                fits = (not self._complains(draft, others, key, candidate) for candidate in candidates)
                choice = next((index for index, fit in enumerate(fits) if fit), 0)
                if not isinstance(value, ir.StringAttr):
                    self._kinds[known] = choice
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
        problem = self._try(tried)
        if _WANTS_RESULTS.search(problem):
            stand_in = draft.operands[0].type if draft.operands else self.evaluator.index
            problem = self._try(replace(tried, results=[stand_in]))
        return f"attribute '{key}'" in problem

    def _results(self, draft: Draft) -> list[ir.Type]:
        """The result types where the form gives none: none at all where MLIR takes the op so, else inferred, and only
        after its verifier has nothing to say against the operands, since inference takes them on trust."""
        name, operands, evaluator = draft.name, draft.operands, self.evaluator
        known = segments.known_results(evaluator, name, operands, draft.attributes)
        if known is not None:
            return known
        if name.startswith("linalg.") and name not in _PLAIN_LINALG:
            sizes = draft.attributes.get("operandSegmentSizes")
            outs = sizes[1] if isinstance(sizes, ir.DenseI32ArrayAttr) and len(sizes) > 1 else 1
            types = [o.type for o in operands[len(operands) - outs :]]
            if types:
                return [t for t in types if isinstance(t, ir.RankedTensorType)]
        shape = (name, len(operands), draft.region_count)
        if shape not in self._resultless:
            problem = self._try(replace(draft, results=[]))
            self._resultless[shape] = not _WANTS_RESULTS.search(problem)
        if self._resultless[shape]:
            return []
        taken = (shape, *(operand.type for operand in operands), *draft.attributes)
        if taken not in self._taken:
            self._check_operands(draft)
            self._taken.add(taken)
        return self._inferred(draft)

    def _check_operands(self, draft: Draft) -> None:
        """Fail where the verifier has something to say against the operands, whatever the results are."""
        stand_in = draft.operands[0].type if draft.operands else self.evaluator.i64
        problem = self._try(replace(draft, results=[stand_in]))
        if re.search(r"operand|requires attribute|attribute '|region|successor", problem):
            types = ", ".join(str(operand.type) for operand in draft.operands)
            about_types = "operand" in problem and types and "found" not in problem
            given = f"; its operands are {types}" if about_types else ""
            self.evaluator.fail(f"`{draft.name}`: {places.in_words(problem)}{given}", draft.form)

    def _inferred(self, draft: Draft) -> list[ir.Type]:
        try:
            operation = self._build(draft, infer=True)
        except UserError as error:
            if "does not support type inference" in error.message:
                message = f"`{draft.name}` needs :result, its result type: ({draft.name} {{:result T}} …)"
                self.evaluator.fail(message, draft.form)
            raise
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
