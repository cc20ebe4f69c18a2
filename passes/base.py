"""What a pass is: a frozen dataclass whose fields are its options, one per file, found by its name in whichever folder.

`passes/model/outline_kernels.py` holds `class OutlineKernels(Pass)`, whose name is "outline-kernels".  A pass gets a
verified `builtin.module` and the Target, changes the module in place, and leaves it verifiable.  It may assume that a
context and an unknown location are active, what its `starts_from` names, and a target of the class that `run` declares.
It raises `UserError` for what the user's program cannot mean, and `InternalError` for what an earlier pass should have
ensured.  Print and parse follow MLIR: `name{field=value other=3}`.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from lispgpt.base.bugs import cause
from lispgpt.base.errors import UserError
from lispgpt.ir.mlir import ir
from lispgpt.passes.states import State

FOLDER = Path(__file__).parent

MOST = 1 << 16
"""Of whole numbers among options, but for those that are usually large."""


@dataclass(frozen=True)
class Pass:
    """A pass written in Python; a subclass with options is marked as a dataclass, too."""

    name: ClassVar[str]
    starts_from: ClassVar[tuple[State, ...]] = ()
    """What has to hold of a module before the pass can run; the runner tells users who order passes otherwise."""

    parts_kernels: ClassVar[bool] = False
    """Whether kernels have nothing to do with each other after it, so that processes can share them."""

    only_faster: ClassVar[bool] = False
    """Whether what it makes is only faster than what the passes behind it make of the same: a quick compilation has
    none of them."""

    def __init_subclass__(cls) -> None:
        cls.name = re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()

    def run(self, module: ir.Module, target: Any) -> None:
        raise NotImplementedError

    def __str__(self) -> str:
        options = [f"{f.name.replace('_', '-')}={_print_option(getattr(self, f.name))}" for f in fields(self)]
        return self.name + ("{" + " ".join(options) + "}" if options else "")


def or_zero(usual: int) -> Any:
    """An option that is usually more than 0, and of which 0 has a meaning of its own."""
    return field(default=usual, metadata={"least": 0})


_OWN: dict[str, type[Pass]] = {}
"""The passes of users' own files, by their names."""


def load_passes(path: Path) -> None:
    """Have the passes that a user's own Python file defines found by their names; UserError where it has none."""
    spec = importlib.util.spec_from_file_location(f"own_passes_{len(_OWN)}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UserError(f"{path} is no Python file that is there")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"{path} cannot be read: {cause(error)}") from error
    found = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Pass)]
    own = {each.name: each for each in found if each.__module__ == spec.name}
    if not own:
        raise UserError(f"{path} has no class of Pass")
    _OWN.update(own)


def is_own(name: str) -> bool:
    """Whether a pass is of a user's own file."""
    return name in _OWN


def why_unknown(name: str) -> str:
    """`; …`: what may be wrong with the name of a pass that nobody has."""
    module_name = _modules().get(name.replace("-", "_"))
    if module_name is not None:
        found = vars(importlib.import_module(module_name)).values()
        others = [f"{each.__name__} makes {each.name!r}" for each in found if _is_defined(each, module_name)]
        place = module_name.removeprefix("lispgpt.").replace(".", "/") + ".py"
        return f"; {place} is called so, and has no pass of that name ({', '.join(others) or 'no class of Pass'})"
    near = get_close_matches(name, [each.replace("_", "-") for each in _modules()], n=3, cutoff=0.6)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    return hint or "; `lispgpt doc --about pass` finds what there is, `lispgpt opt --passes FILE.py` takes yours"


def _is_defined(value: Any, module_name: str) -> bool:
    return isinstance(value, type) and issubclass(value, Pass) and value.__module__ == module_name


def find_pass(name: str) -> type[Pass] | None:
    """The Python pass of that name, in this folder or one in it, or None where this package has none."""
    if name in _OWN:
        return _OWN[name]
    module_name = _modules().get(name.replace("-", "_"))
    if module_name is None:
        return None
    for value in vars(importlib.import_module(module_name)).values():
        if isinstance(value, type) and issubclass(value, Pass) and getattr(value, "name", None) == name:
            return value
    return None


@cache
def _modules() -> dict[str, str]:
    """The dotted name of each module in this package by its last part."""
    paths = sorted((path.relative_to(FOLDER).with_suffix("") for path in FOLDER.rglob("*.py")), reverse=True)
    return {path.name: ".".join(("lispgpt.passes", *path.parts)) for path in paths}


def make_pass(cls: type[Pass], options: dict[str, Any]) -> Pass:
    """An instance from options by their printed names; an unknown or mistyped one is a UserError."""
    known = {f.name.replace("_", "-"): f for f in fields(cls)}
    values = {}
    for key, value in options.items():
        if key not in known:
            choices = ", ".join(sorted(known)) or "none"
            raise UserError(f"pass {cls.name} has no option {key!r} (its options: {choices})")
        kind = known[key].type
        name, usual = getattr(kind, "__name__", str(kind)), known[key].default
        least = known[key].metadata.get("least", 1)
        values[known[key].name] = _parse_option(cls.name, key, name, value, usual, least)
    return cls(**values)


def _print_option(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse_option(pass_name: str, key: str, kind: str, value: Any, usual: Any, least: int) -> Any:
    """usual: the option's value where none is given, which says what would be out of all proportion.  least: of whole
    numbers, where the usual one is no less."""
    text = _print_option(value)
    try:
        if kind == "bool":
            return {"true": True, "false": False, "1": True, "0": False}[text]
        found = {"int": int, "float": float, "str": str}[kind](text)
    except (KeyError, ValueError):
        raise UserError(f"pass {pass_name}: option {key} wants {kind}, not {text!r:.60}") from None
    if isinstance(found, int) and isinstance(usual, int):
        least, most = min(least, usual), max(MOST, 64 * usual)
        if not least <= found <= most:
            raise UserError(f"pass {pass_name}: option {key} is {text:.60}, and should be from {least} to {most:,}")
    return found
