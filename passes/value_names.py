"""Names of values that stay the same from one printing of a module to the next.

MLIR numbers values anew each time that it prints: one op less at the top of a function, and all below it have other
names.  `Names` gives a value the name that it had in the text before where a line stands for the same op as one there,
and a fresh one where it does not:

    %3 = arith.addi %1, %c8 : index                          %3 = arith.addi %1, %c8 : index
    %4 = arith.addi %1, %c8 : index                 =>       %5 = memref.load %x[%3] : memref<64xf32>
    %5 = memref.load %x[%4] : memref<64xf32>        cse      memref.store %5, %y[%3] : memref<64xf32>
    memref.store %5, %y[%3] : memref<64xf32>

It reads nothing but the two texts: a pass that is watched does what it does unwatched, and a text from a file serves as
well as one that was printed a moment ago.  Arguments of an entry are called by what they are (`%wte`, `%tokens`), those
of a kernel by what all of its calls pass, and aliases (`#map3`) keep their numbers, too.  To MLIR the text means what
it meant before.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

STRING = r'"(?:[^"\\]|\\.)*"'
TOKEN = re.compile(rf"({STRING}|%[\w$.-]+|\^[\w$.-]+)", re.ASCII)
"""A text in quotes, in which nothing is a name; a value; a block."""
RESULTS = re.compile(r" *(?:%[\w$.-]+(?::\d+)?(?:, )?)+ = ", re.ASCII)
FUNCTION = re.compile(rf"^( *)[\w.]*\bfunc (?:[a-z_]+ )*@({STRING}|[\w$.-]+)\(")
ALIAS_LINE = re.compile(r"^([#!][A-Za-z_]\w*) = (.*)$", re.DOTALL)
ALIAS = re.compile(rf"{STRING}|[#!][A-Za-z_]\w*(?![\w.<])")
ARGUMENTS = re.compile(rf"\barguments = \[({STRING}(?:, {STRING})*)\]")
CALL = re.compile(rf"(?:= )?(?:func\.)?call @({STRING}|[\w$.-]+)\(%")
VIEW = re.compile(
    r" = (?:tensor\.(?:extract_slice|expand_shape|collapse_shape|cast)|"
    r"memref\.(?:subview|view|expand_shape|collapse_shape|cast|reinterpret_cast)) %"
)
NUMBERED = re.compile(r"([%^](?:arg|bb)?)(\d+)|(.+?)_(\d+)", re.DOTALL)
LONG = 200
"""Characters of a constant that is set aside."""
NUMBERS = re.compile(rf"{STRING}|^[#!]\w+ = .*$|\bdense<[^<>]{{{LONG},}}> : (?:tensor|vector)<[\w.]+>", re.MULTILINE)
"""A text in quotes or an alias, which stay, or many numbers."""
BUFFER = re.compile(rf"^( *memref\.global .*: memref<([\w.]+)(?:, [^>]*)?> = )(dense<[^<>]{{{LONG},}}>)", re.MULTILINE)
GLOBAL = re.compile(rf"^( *llvm\.mlir\.global .*?@(?:{STRING}|[\w$.-]+)\()({STRING})(?=\))", re.MULTILINE)
BEHIND, AHEAD = 8, 48
"""How far from the last line that was found in the text before an op is looked for that has changed."""


@dataclass(slots=True)
class Line:
    """A line in pieces: texts[0] tokens[0] texts[1] …

    defines: how many of the first tokens are values, or a block and its arguments, that it defines.  mask: the line
    without its names, and however far in it stands.
    """

    texts: list[str]
    tokens: list[str]
    defines: int
    mask: str

    @classmethod
    def of(cls, text: str) -> Line:
        parts = TOKEN.split(text)
        texts, tokens = parts[::2], parts[1::2]
        if '"' in text:
            texts, tokens = _without_strings(texts, tokens)
        return cls(texts, tokens, _defined(text, texts), "%".join(texts).lstrip())

    def named(self, names: list[str]) -> Line:
        return Line(self.texts, names, self.defines, self.mask)

    def __str__(self) -> str:
        pieces = self.texts + self.tokens
        pieces[::2], pieces[1::2] = self.texts, self.tokens
        return "".join(pieces)


def _without_strings(texts: list[str], tokens: list[str]) -> tuple[list[str], list[str]]:
    joined, names = [texts[0]], []
    for token, text in zip(tokens, texts[1:], strict=True):
        if token[0] == '"':
            joined[-1] += token + text
        else:
            names.append(token)
            joined.append(text)
    return joined, names


def _defined(line: str, texts: Sequence[str]) -> int:
    """How many of a line's first tokens it defines, as far as the syntax that all ops share says."""
    if match := RESULTS.match(line):
        return match[0].count("%")
    if not line.lstrip(" ").startswith("^"):
        return 0
    return 1 if not texts[1].startswith("(") else 1 + sum(text.startswith(": ") for text in texts[2:])


@dataclass
class _Function:
    """A function of a text: as MLIR printed it ("" where that is not known), and with its names."""

    raw: str
    lines: list[Line]
    text: str

    @cached_property
    def keys(self) -> list[tuple[str, tuple[str | None, ...]]]:
        """Of each line what tells its op from others: the line without its names, and the names of what it reads."""
        known: set[str] = set()
        found = []
        for line in self.lines:
            read = line.tokens[line.defines :]
            found.append((line.mask, tuple([name if name in known else None for name in read])))
            known.update(line.tokens)
        return found


class Names:
    """Names for one text after the other; each is named by the one before it.

    before: a text to begin from, such as the dump that a pass is run on.
    """

    def __init__(self, before: str = "") -> None:
        self._functions: dict[str, list[_Function]] = {}
        self._aliases: dict[tuple[str, str], str] = {}
        if before:
            self._remember(before)

    def _remember(self, text: str) -> None:
        head, self._aliases = _aliases(text), {}
        for alias, content in head:
            self._aliases[_stem(alias), content] = alias
        lines = text.split("\n")
        for symbol, first, last in functions_in(lines):
            found = _Function("", list(map(Line.of, lines[first:last])), "")
            self._functions.setdefault(symbol, []).append(found)

    def name(self, text: str) -> str:
        """The text of a module, with names after those of the text before and long constants ahead of all else."""
        text = self._name_aliases(_set_aside(text))
        lines = text.split("\n")
        places = list(functions_in(lines))
        entries = [place for place in places if ARGUMENTS.search(lines[place[1]])]
        before, self._functions = self._functions, {}
        named: list[tuple[int, int, _Function]] = []
        passed: dict[str, list[str | None]] | None = None
        for symbol, first, last in [*entries, *(place for place in places if place not in entries)]:
            earlier, own = before.get(symbol, []), self._functions.setdefault(symbol, [])
            old = earlier[len(own)] if len(own) < len(earlier) else None
            given = _entry_names(lines[first])
            if old is None and not given:
                passed = _passed(function for _, _, function in named) if passed is None else passed
                given = passed.get(symbol, [])
            own.append(_named(old, given, lines[first:last]))
            named.append((first, last, own[-1]))
        return "\n".join(_replaced(lines, sorted(named, key=lambda each: each[0])))

    def _name_aliases(self, text: str) -> str:
        """The text with aliases as in the one before, where their contents are the same."""
        found = _aliases(text)
        fresh = _Aliases(self._aliases.values())
        names: dict[str, str] = {}
        new: dict[tuple[str, str], str] = {}
        try:
            for alias, content in found:
                content = ALIAS.sub(lambda match: match[0] if match[0][0] == '"' else names[match[0]], content)
                name = self._aliases.get((_stem(alias), content)) or fresh.after(alias)
                names[alias] = new[_stem(alias), content] = name
        except KeyError:  # one that is defined further down
            names = {}
            new = {(_stem(alias), content): alias for alias, content in found}
        self._aliases = new
        if all(alias == name for alias, name in names.items()):
            return text
        return ALIAS.sub(lambda match: names.get(match[0], match[0]), text)


def _set_aside(text: str) -> str:
    """The text with long constants as aliases, which stand at its top: `#numbers`, `#text`."""
    known: dict[str, str] = {}

    def alias(stem: str, content: str) -> str:
        return known.setdefault(content, f"#{stem}{len(known) or ''}")

    body = text
    if "dense<" in text:
        body = BUFFER.sub(lambda match: match[1] + alias("numbers", f"{match[3]} : tensor<{match[2]}>"), body)
        body = NUMBERS.sub(lambda match: alias("numbers", match[0]) if match[0].startswith("dense") else match[0], body)
    if "llvm.mlir.global" in body:
        body = GLOBAL.sub(lambda m: m[0] if len(m[2]) < LONG else m[1] + alias("text", m[2]), body)
    return "".join(f"{name} = {content}\n" for content, name in known.items()) + body


def _stem(alias: str) -> str:
    return alias.rstrip("0123456789")


class _Aliases:
    """Aliases that are taken, and fresh ones."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken: set[str] = set()
        self._last: dict[str, int] = {}
        for alias in taken:
            self._take(alias)

    def after(self, alias: str) -> str:
        """The alias itself where it is free, else one with a number that no other has."""
        stem = _stem(alias)
        name = f"{stem}{self._last[stem] + 1}" if alias in self._taken else alias
        self._take(name)
        return name

    def _take(self, alias: str) -> None:
        stem = _stem(alias)
        self._taken.add(alias)
        self._last[stem] = max(self._last.get(stem, 0), int(alias[len(stem) :] or 0))


def _aliases(text: str) -> list[tuple[str, str]]:
    """The aliases that a text defines, and their contents."""
    found = re.findall(r"^[#!][A-Za-z_]\w* = .*$", text, re.MULTILINE)
    return [(match[1], match[2]) for line in found if (match := ALIAS_LINE.match(line))]


def functions_in(lines: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """(symbol, first line, the line behind the last) of each function that has a body."""
    symbol, first, end = "", 0, ""
    for number, line in enumerate(lines):
        if end:
            if line.startswith(end):
                yield symbol, first, number + 1
                end = ""
        elif "func" in line and line.endswith("{") and (match := FUNCTION.match(line)):
            symbol, first, end = match[2], number, match[1] + "}"


def _named(old: _Function | None, given: Sequence[str | None], lines: Sequence[str]) -> _Function:
    """A function's lines with names, after those of the function that it was before, if it was."""
    raw = "\n".join(lines)
    if old is not None and old.raw == raw:
        return old
    named = _Naming(old, given).lines(lines)
    return _Function(raw, named, "\n".join(map(str, named)))


def _replaced(lines: list[str], functions: Iterable[tuple[int, int, _Function]]) -> Iterator[str]:
    at = 0
    for first, last, function in functions:
        yield from lines[at:first]
        yield function.text
        at = last
    yield from lines[at:]


def _entry_names(header: str) -> list[str | None]:
    """What an entry's arguments are called: "weight:ln1-w" is %ln1-w; nothing of other functions."""
    match = ARGUMENTS.search(header)
    return [] if match is None else [_value_name(text[1:-1].partition(":")[2]) for text in re.findall(STRING, match[1])]


def _value_name(text: str) -> str | None:
    name = re.sub(r"[^\w$.-]", "_", text, flags=re.ASCII)
    return f"%{'_' if name[:1].isdigit() else ''}{name}" if name else None


def _passed(functions: Iterable[_Function]) -> dict[str, list[str | None]]:
    """By kernel, its arguments' names: where all calls of it pass (a part of) the same argument, that one's."""
    found: dict[str, list[str | None]] = {}
    for function in functions:
        own = {name: name for name in function.lines[0].tokens}
        for line in function.lines[1:]:
            if line.defines == 1 and VIEW.search(line.texts[1] + "%"):
                if line.tokens[1] in own:
                    own[line.tokens[0]] = own[line.tokens[1]]
            elif match := CALL.search(line.mask):
                passes = [own.get(name) for name in line.tokens[line.defines :]]
                before = found.setdefault(match[1], passes)
                found[match[1]] = [a if a == b else None for a, b in zip(before, passes, strict=False)]
    return found


class _Naming:
    """Names for one function's lines, after those of the function that it was before, if it was."""

    def __init__(self, old: _Function | None, given: Sequence[str | None]) -> None:
        self.old = old or _Function("", [], "")
        self.given = given
        self.reserved = {name for line in self.old.lines for name in line.tokens}
        self.taken: set[str] = set()
        self.next: dict[str, int] = {}
        self.bound: dict[str, str] = {}
        self.scopes: list[list[str]] = [[]]
        self.ahead: set[str] = set()
        self.defined: set[str] = set()

    def lines(self, raw: Sequence[str]) -> list[Line]:
        lines = list(map(Line.of, raw))
        self.defined = {name for line in lines for name in line.tokens[: line.defines]}
        match = _Match(self.old, {line.mask for line in lines})
        return [self._named(line, match, number == 0) for number, line in enumerate(lines)]

    def _named(self, line: Line, match: _Match, header: bool) -> Line:
        text = line.texts[0].lstrip()
        opens, closes = line.texts[-1].endswith("{"), text.startswith("}")
        if closes and len(self.scopes) > 1:
            for name in self.scopes.pop():
                self.bound.pop(name, None)
        if opens:
            self.scopes.append([])
        read = tuple([self.bound.get(name) for name in line.tokens[line.defines :]])
        before = self.old.lines[0] if header and self.old.lines else match.find(line, read)
        given = self.given if header else ()
        names = []
        for i, raw in enumerate(line.tokens):
            if i >= line.defines and raw in self.bound:
                names.append(self.bound[raw])
                continue
            wish = given[i] if i < len(given) else None
            wish = wish or (before.tokens[i] if before is not None and i < len(before.tokens) else None)
            names.append(self._bind(raw, wish, i < line.defines, opens))
        return line.named(names)

    def _bind(self, raw: str, wish: str | None, defines: bool, opens: bool) -> str:
        """A name for a value that is defined here, or that nothing before this has said a word of."""
        if defines and raw in self.ahead:
            return self.bound[raw]
        name = wish if wish is not None and wish[0] == raw[0] and wish not in self.taken else self._fresh(wish or raw)
        self.taken.add(name)
        self.bound[raw] = name
        if not defines and raw in self.defined:
            self.ahead.add(raw)  # a block further down defines it, so that its name holds wherever it is met
        else:
            self.scopes[-2 if defines and opens else -1].append(raw)
        return name

    def _fresh(self, raw: str) -> str:
        if raw not in self.reserved and raw not in self.taken:
            return raw
        match = NUMBERED.fullmatch(raw)
        stem = raw if match is None else match[1] or match[3]
        form = stem if match is not None and match[1] else f"{stem}_"
        if form not in self.next:
            known = (name[len(form) :] for name in self.reserved if name.startswith(form))
            self.next[form] = max((int(number) + 1 for number in known if number.isdecimal()), default=0)
        while True:
            name = f"{form}{self.next[form]}"
            self.next[form] += 1
            if name not in self.taken and name not in self.reserved:
                return name


class _Match:
    """Finds lines of a function in what it was before."""

    def __init__(self, old: _Function, masks: set[str]) -> None:
        self.lines, self.keys = old.lines, old.keys
        self.used = [False] * len(self.lines)
        self.at = 1
        self.same: dict[object, list[int]] = {}
        self.alike: dict[str, list[int]] = {}
        self.gone: dict[object, list[int]] = {}
        for number, (mask, read) in enumerate(self.keys):
            self.same.setdefault((mask, read), []).append(number)
            self.alike.setdefault(mask, []).append(number)
            if mask not in masks and self.lines[number].defines:
                self.gone.setdefault((self.lines[number].defines, read), []).append(number)

    def find(self, line: Line, read: tuple[str | None, ...]) -> Line | None:
        """The line that stood for the same op; None where there is none."""
        number = self._first(self.same.get((line.mask, read)))
        if number is None:
            number = self._changed(line, read)
        if number is None and line.defines and line.mask not in self.alike:
            number = self._first(self.gone.get((line.defines, read)), near=True)
        if number is None:
            return None
        self.used[number] = True
        self.at = number + 1
        return self.lines[number]

    def _first(self, numbers: list[int] | None, near: bool = False) -> int | None:
        """The first of these lines that nothing has been found in, from the last that was found on if there is one."""
        if not numbers:
            return None
        if near:
            return next(self._nearby(numbers), None)
        number = self._next(numbers, bisect_left(numbers, self.at))
        if number is not None:
            return number
        while numbers and self.used[numbers[0]]:
            del numbers[0]
        return numbers[0] if numbers else None

    def _next(self, numbers: list[int], index: int) -> int | None:
        return next((numbers[i] for i in range(index, len(numbers)) if not self.used[numbers[i]]), None)

    def _nearby(self, numbers: list[int]) -> Iterator[int]:
        """Those of these lines in which nothing has been found, near the last that was found."""
        end = self.at + AHEAD
        for i in range(bisect_left(numbers, self.at - BEHIND), len(numbers)):
            if numbers[i] >= end:
                return
            if not self.used[numbers[i]]:
                yield numbers[i]

    def _changed(self, line: Line, read: tuple[str | None, ...]) -> int | None:
        """A line nearby that reads something else: the one that reads most of the same."""
        best, most = None, 0 if any(read) else -1
        for n in self._nearby(self.alike.get(line.mask, [])):
            same = sum(a == b for a, b in zip(read, self.keys[n][1], strict=True) if a is not None)
            if same > most or (best is None and n == self.at):
                best, most = n, same
        return best
