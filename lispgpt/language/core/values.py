"""What evaluating a form can give, beyond Python's numbers, strings, booleans, None and tuples and MLIR's own
types, attributes and values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core.environment import Environment
from lispgpt.language.reader.forms import Form, Keyword, List, Literal, Map, Sequence, Symbol, Vector, show


@dataclass(frozen=True, eq=False)
class Special:
    """A core form: gets its arguments unevaluated, as `run(evaluator, form, environment)`."""

    name: str
    run: Callable[..., Any]
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, eq=False)
class Builtin:
    """A function of the evaluator: `run(evaluator, form, *arguments)`; form is the call, for messages."""

    name: str
    run: Callable[..., Any]
    least: int
    most: int | None


@dataclass(frozen=True, eq=False)
class Parameters:
    """The names of a function or macro; a name may be a vector that takes the argument apart."""

    names: tuple[Form, ...]
    rest: Symbol | None


@dataclass(frozen=True, eq=False)
class Closure:
    """A compile-time function: its body is evaluated anew, inlined, at each call."""

    name: str
    parameters: Parameters
    body: tuple[Form, ...]
    environment: Environment
    form: Form


@dataclass(frozen=True, eq=False)
class Macro:
    """Like a function, on forms, giving the form to evaluate instead."""

    name: str
    parameters: Parameters
    body: tuple[Form, ...]
    environment: Environment
    form: Form


@dataclass(frozen=True, eq=False)
class Alias:
    """A namespace that `(require ["f.lisp" :as m])` names."""

    environment: Environment


class OpResults(tuple[ir.Value, ...]):
    """The results of an op that has none or several; where one value is wanted it is the first."""

    op_name: str

    def __new__(cls, op_name: str, results: Any) -> OpResults:
        made = super().__new__(cls, results)
        made.op_name = op_name
        return made


@dataclass
class LoopIndex:
    """The position along one dimension of a tensor comprehension; a `linalg.index` once its value is wanted."""

    dimension: int
    comprehension: Any
    value: ir.Value | None = None


@dataclass(eq=False)
class Weight:
    """A weight of the model.

    layers: those that have a part of a stack, where not all have.  initial: the distribution that untrained values come
    from, and its parameter; None where the program says none.
    value: what the entry that is being built has made of it so far; None outside one.  updated: whether that is
    something else than what it was.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    stacked: bool
    form: Form
    initial: tuple[str, float] | None = None
    layers: tuple[int, ...] | None = None
    value: ir.Value | None = None
    updated: bool = False


@dataclass(frozen=True, eq=False)
class Bytes:
    """A tensor of i8 whose elements are numbers from 0 to 255: what an entry gives as u8."""

    value: ir.Value


@dataclass(frozen=True, eq=False)
class WeightReference:
    """A weight itself rather than its tensor, as `(all-weights)` lists it: outside an entry too."""

    weight: Weight


@dataclass(eq=False)
class Variable:
    """An input of the entry that is being built, as a Weight is."""

    name: str
    value: ir.Value | None = None
    updated: bool = False


@dataclass(frozen=True)
class BlockType:
    """A type of weights whose elements come in blocks, by its name, such as "q8_0"."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Record:
    """What a map of keywords gives: values by name."""

    values: dict[str, Any]


@dataclass(eq=False)
class State:
    """A buffer that lives across calls.  shape: its sizes, free dimensions by name; value is what the entry being built
    has made of it so far.  shared: whether it is the same for all sequences, as a weight is."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    form: Form
    shared: bool = False
    layers: tuple[int, ...] | None = None
    value: ir.Value | None = None
    updated: bool = False


@dataclass(frozen=True, eq=False)
class StateReference:
    """A part of a state, `(kv layer)`: its leading dimension fixed at compile time."""

    state: State
    index: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Function:
    """A function that calls by name reach; foreign ones are llvm.func, with an LLVM function type."""

    name: str
    type: ir.Type
    foreign: bool = False


@dataclass(frozen=True, eq=False)
class LaterFunction:
    """A name that is a function's before its definition has been evaluated: calls look it up among the functions."""

    name: str


@dataclass(frozen=True, eq=False)
class Struct:
    """A struct of `defstruct`: its name and LLVM type."""

    name: str
    type: ir.Type


def items_of(value: Any) -> tuple[Any, ...] | None:
    """The members of a compile-time list, which may be a value or a form; None for anything else."""
    if isinstance(value, Record):
        return tuple(value.values.values())
    if isinstance(value, Sequence):
        return value.items
    return value if isinstance(value, tuple) else None


def describe(value: Any) -> str:
    """What a value is, in a message's words."""
    match value:
        case None:
            return "nil"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return f'the string "{value}"' if len(value) < 40 else "a string"
        case Keyword():
            return f"the keyword :{value.name}"
        case Symbol():
            return f"the name {value.name}"
        case OpResults():
            return (
                f"`{value.op_name}`, which has no result"
                if not value
                else f"the {len(value)} results of `{value.op_name}`"
            )
        case tuple() | List() | Vector():
            return "a list"
        case Map() | Record():
            return "a map"
        case Literal():
            return describe(value.value)
        case ir.Value():
            return f"a value of type {value.type}"
        case ir.Type():
            return f"the type {value}"
        case ir.Attribute():
            return f"the attribute {value}"
        case Special() | Builtin() | Closure() | Function() | LaterFunction():
            return f"the function {value.name}"
        case Macro():
            return f"the macro {value.name}"
        case Weight():
            return f"the weight {value.name}" + (
                ", which needs a layer: " + f"({value.name} l)" if value.stacked else ""
            )
        case WeightReference():
            return f"the weight {value.weight.name}, whose tensor `whole` gives in an entry"
        case State() | StateReference():
            name = value.name if isinstance(value, State) else value.state.name
            return f"the state {name}, which `read-state` reads"
        case LoopIndex():
            return "a loop index"
        case _:
            return f"a {type(value).__name__.lower()}"


def not_whole(value: Any, form: Form) -> str:
    """What the value of a form is that should be a whole number, in a message's words."""
    divided = isinstance(value, float) and "(/ " in show(form)
    return describe(value) + ("; (quot a b) and (ceil-div a b) divide to whole numbers" if divided else "")
