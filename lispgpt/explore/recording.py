"""A compilation watched: what each pass leaves, the artifact, its machine code, and where it failed if it did."""

from __future__ import annotations

from dataclasses import dataclass, field

from lispgpt.base.errors import InternalError, UserError
from lispgpt.base.source import Span
from lispgpt.compiler.driver import check_has_entries, compile_program, evaluate_request, is_program, load_pipeline
from lispgpt.compiler.kernel_report import KernelFacts, kernel_facts
from lispgpt.compiler.request import Observer, Request
from lispgpt.explore.expansions import watching
from lispgpt.explore.history import History
from lispgpt.explore.machine_code import Instruction, instructions_of
from lispgpt.explore.places import Places
from lispgpt.explore.printed import Printed
from lispgpt.ir.mlir import ir, new_context
from lispgpt.passes.pipeline import PassCall, Pipeline
from lispgpt.passes.targets import Target, find_target
from lispgpt.runtime.plan.artifact import Artifact


@dataclass
class Recording:
    """What there is to see of a compilation.

    expansions: what macro calls become, by where they stand.  pipeline: the passes that were to run.  seconds: that
    each of those took which ran, in order.  history: what they made of each function.  machine: by function, its
    instructions; remark: why there are none.  facts: by kernel, what the back end made of it.  failure: what a pass
    failed with, behind those of `seconds`.
    """

    request: Request
    target: Target
    pipeline: Pipeline
    places: Places = field(default_factory=Places)
    history: History = field(default_factory=History)
    seconds: list[float] = field(default_factory=list)
    machine: dict[str, tuple[Instruction, ...]] = field(default_factory=dict)
    remark: str = ""
    facts: dict[str, KernelFacts] = field(default_factory=dict)
    artifact: Artifact | None = None
    expansions: dict[Span, str] = field(default_factory=dict)
    failure: UserError | InternalError | None = None
    _text: str = ""

    def __post_init__(self) -> None:
        self._printed = Printed(self.places)

    def watch(self, module: ir.Module, call: PassCall | None, seconds: float) -> None:
        """What the runner of passes tells: see `lispgpt.base.observer.Observer`."""
        if call is not None:
            self.seconds.append(seconds)
        text = module.operation.get_asm(assume_verified=True, enable_debug_info=True)
        if text != self._text:
            self._text = text
            self.history.add(len(self.seconds), self._printed.functions(text))
        if len(self.seconds) == len(self.pipeline.calls):
            self._disassemble(module)

    def _disassemble(self, module: ir.Module) -> None:
        try:
            text = self.target.lined_assembly(module)
        except UserError as error:
            self.remark = error.message
            return
        found = instructions_of(text, self.places)
        self.machine = {name: lines for name, lines in found.items() if name in self.history.steps}
        self.facts = kernel_facts(text)


def record(request: Request) -> Recording:
    """Compile a model's program and keep what there is to see; UserError where it is no model, or does not evaluate."""
    expansions: dict[Span, str] = {}
    with new_context():
        program = evaluate_request(request, kind=watching(expansions))
        if is_program(program):
            raise UserError(
                f"{request.program} is a program with a `main`, and the page is of models' kernels and plans"
            )
        check_has_entries(program, request)
        target = find_target(request.target)
        found = Recording(request, target, load_pipeline(request, target), expansions=expansions)
        try:
            found.artifact = compile_program(program, request, Observer(watch=found.watch))
        except (UserError, InternalError) as error:
            if len(found.seconds) == len(found.pipeline.calls):
                raise
            found.failure = error
        return found
