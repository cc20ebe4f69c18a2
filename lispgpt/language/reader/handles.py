"""Forms as native code handles them: the C functions `value_…` of Lispier's compiled macros, on opaque addresses.

value_list_new() → list        value_list_push(list, form)      value_list_first(list) → form or null
value_symbol_new(text) → form  value_number_get(form) → double  value_is_list(form) → bool   …
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from lispgpt.base.source import Span
from lispgpt.language.reader.forms import Form, Keyword, List, Literal, Symbol, Vector

PREFIX = "value_"
_POINTER, _TEXT, _SIZE, _REAL, _TRUTH = (
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_size_t,
    ctypes.c_double,
    ctypes.c_bool,
)
_SYMBOLS = ("arith.addi", "arith.subi", "arith.muli", "arith.divsi", "func.return", "def", "do")
_STEP = 16
"""Bytes between two addresses; nothing lies there, but they look like those of an allocator."""


@dataclass(eq=False)
class _Node:
    """A form that can be changed; form is the one that it was made of, until it is changed."""

    kind: type[Form]
    value: Any
    form: Form | None = None
    text: ctypes.Array[ctypes.c_char] | None = field(default=None, repr=False)


class FormHandles:
    """The forms that native code has made or been given, by their addresses.

    A call with an address that is none does nothing and gives null; `error` keeps what was wrong with the first.
    """

    def __init__(self) -> None:
        self.error: str | None = None
        self._nodes: dict[int, _Node] = {}
        self._next = 1 << 20
        self._names = 0
        self._functions: dict[str, Any] | None = None

    def give(self, form: Form) -> int:
        """The address of a form."""
        return self._add(_node_of(form))

    def take(self, address: int | None, span: Span) -> Form | None:
        """The form at an address, with a span for what native code made; None where there is none."""
        node = self._nodes.get(address or 0)
        return None if node is None else _form_of(node, span)

    def functions(self) -> dict[str, Any]:
        """The ctypes callbacks by the names that native code calls; this object has to outlive the calls."""
        if self._functions is None:
            self._functions = {
                PREFIX + name: ctypes.CFUNCTYPE(result, *arguments)(self._guarded(PREFIX + name, run))
                for name, (result, arguments, run) in self._table().items()
            }
        return self._functions

    def _table(self) -> dict[str, tuple[Any, tuple[Any, ...], Callable[..., Any]]]:
        table: dict[str, tuple[Any, tuple[Any, ...], Callable[..., Any]]] = {
            "list_new": (_POINTER, (), lambda: self._make(List, [])),
            "vector_new": (_POINTER, (), lambda: self._make(Vector, [])),
            "symbol_new": (_POINTER, (_TEXT,), lambda text: self._make(Symbol, text.decode())),
            "keyword_new": (_POINTER, (_TEXT,), lambda text: self._make(Keyword, text.decode())),
            "string_new": (_POINTER, (_TEXT,), lambda text: self._make(Literal, text.decode())),
            "number_new": (_POINTER, (_REAL,), lambda number: self._make(Literal, _number(number))),
            "bool_new": (_POINTER, (_TRUTH,), lambda truth: self._make(Literal, bool(truth))),
            "nil_new": (_POINTER, (), lambda: self._make(Literal, None)),
            "list_push": (None, (_POINTER, _POINTER), self._push),
            "list_first": (_POINTER, (_POINTER,), lambda a: self._members(a, lambda items: items[:1])),
            "list_get": (_POINTER, (_POINTER, _SIZE), lambda a, i: self._members(a, lambda items: items[i : i + 1])),
            "list_rest": (_POINTER, (_POINTER,), self._rest),
            "list_len": (_SIZE, (_POINTER,), lambda a: len(n.value) if (n := self._node(a)).kind is List else 0),
            "symbol_name": (_POINTER, (_POINTER,), self._name),
            "number_get": (_REAL, (_POINTER,), lambda a: float(v) if _is_number(v := self._node(a).value) else 0.0),
            "free": (None, (_POINTER,), lambda a: self._nodes.pop(a or 0, None) and None),
            "clone": (_POINTER, (_POINTER,), lambda a: self._add(_copy(self._node(a)))),
            "gensym": (_POINTER, (), lambda: self._fresh("__G__")),
            "gensym_prefix": (_POINTER, (_TEXT,), lambda text: self._fresh(f"{text.decode()}__")),
            "symbol_colon": (_POINTER, (), lambda: self._make(Symbol, ":")),
        }
        for name in _SYMBOLS:
            made = (_POINTER, (), lambda name=name: self._make(Symbol, name))
            table[f"symbol_{name.replace('.', '_')}"] = made
        for name, kind in (("list", List), ("vector", Vector), ("symbol", Symbol), ("keyword", Keyword)):
            table[f"is_{name}"] = (_TRUTH, (_POINTER,), lambda a, kind=kind: self._node(a).kind is kind)
        for name, holds in (("string", _is_text), ("number", _is_number), ("nil", lambda value: value is None)):
            table[f"is_{name}"] = (_TRUTH, (_POINTER,), lambda a, holds=holds: self._is_literal(a, holds))
        return table

    def _guarded(self, name: str, run: Callable[..., Any]) -> Callable[..., Any]:
        """An exception cannot cross native code: the call gives null, and the error is kept."""

        def call(*arguments: Any) -> Any:
            try:
                return run(*arguments)
            except (KeyError, AttributeError, UnicodeDecodeError):
                self.error = self.error or f"{name} was called with what is not the address of a form"
                return 0

        return call

    def _add(self, node: _Node) -> int:
        self._next += _STEP
        self._nodes[self._next] = node
        return self._next

    def _make(self, kind: type[Form], value: Any) -> int:
        return self._add(_Node(kind, value))

    def _node(self, address: int | None) -> _Node:
        return self._nodes[address or 0]

    def _is_literal(self, address: int | None, holds: Callable[[Any], bool]) -> bool:
        node = self._node(address)
        return node.kind is Literal and holds(node.value)

    def _push(self, address: int, item: int) -> None:
        node, member = self._node(address), self._node(item)
        node.value.append(_copy(member))
        node.form = None

    def _members(self, address: int, choose: Callable[[list[_Node]], list[_Node]]) -> int | None:
        node = self._node(address)
        chosen = choose(node.value) if node.kind is List else []
        return self._add(_copy(chosen[0])) if chosen else None

    def _rest(self, address: int) -> int | None:
        node = self._node(address)
        return self._make(List, [_copy(item) for item in node.value[1:]]) if node.kind is List else None

    def _name(self, address: int) -> int | None:
        node = self._node(address)
        if node.kind is not Symbol:
            return None
        node.text = node.text or ctypes.create_string_buffer(node.value.encode())
        return ctypes.addressof(node.text)

    def _fresh(self, prefix: str) -> int:
        self._names += 1
        return self._make(Symbol, f"{prefix}{self._names - 1}")


def _node_of(form: Form) -> _Node:
    match form:
        case List() | Vector():
            return _Node(type(form), [_node_of(item) for item in form.items], form)
        case Symbol() | Keyword():
            return _Node(type(form), form.name, form)
        case Literal():
            return _Node(Literal, form.value, form)
    return _Node(type(form), None, form)


def _copy(node: _Node) -> _Node:
    value = [_copy(item) for item in node.value] if isinstance(node.value, list) else node.value
    return _Node(node.kind, value, node.form)


def _form_of(node: _Node, span: Span) -> Form:
    if node.form is not None:
        return node.form
    if node.kind in (List, Vector):
        return node.kind(span, tuple(_form_of(item, span) for item in _nodes(node.value)))  # type: ignore[call-arg]
    return node.kind(span, node.value)  # type: ignore[call-arg]


def _nodes(value: Any) -> Iterable[_Node]:
    nodes: list[_Node] = value
    return nodes


def _number(number: float) -> int | float:
    """Native code has reals only; a whole one is an integer to the language."""
    return int(number) if number.is_integer() else number


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
