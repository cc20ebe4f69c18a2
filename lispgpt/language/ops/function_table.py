"""The functions of a module that calls by name reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core.environment import Environment
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.values import Function, Special
from lispgpt.language.reader.forms import List, Symbol


@dataclass
class Functions:
    """defined: by name.  later: what gives the functions that are known before their definitions are reached."""

    defined: dict[str, Function] = field(default_factory=dict)
    later: dict[str, Callable[[], Function]] = field(default_factory=dict)

    def get(self, name: str) -> Function | None:
        """The function of a name, also where its definition comes later in the file."""
        found = self.defined.get(name)
        if found is None and name in self.later:
            found = self.later[name]()
        return found

    def names(self) -> list[str]:
        """Every name that get knows."""
        return [*self.defined, *self.later]


def register(evaluator: Evaluator, made: Function, symbol: Symbol, environment: Environment) -> None:
    """Make a function callable by its name, whatever that meant before."""
    evaluator.states.of(Functions).defined[made.name] = made
    environment.define(symbol, made)


def register_op(evaluator: Evaluator, operation: Any, form: List, environment: Environment) -> None:
    """Make a func.func or llvm.func that was written as an op callable by its name.

    Its name is a symbol of MLIR's, which takes no core form away from the program.
    """
    if "sym_name" not in operation.attributes or "function_type" not in operation.attributes:
        return
    name = ir.StringAttr(operation.attributes["sym_name"]).value
    kind = ir.TypeAttr(operation.attributes["function_type"]).value
    made = Function(name, kind, operation.name == "llvm.func")
    symbol, scope = Symbol(form.span, name), _file_scope(environment)
    if isinstance(scope.lookup(symbol), Special):
        evaluator.states.of(Functions).defined[name] = made
    else:
        register(evaluator, made, symbol, scope)


def _file_scope(environment: Environment) -> Environment:
    while environment.outer is not None and environment.outer.outer is not None:
        environment = environment.outer
    return environment
