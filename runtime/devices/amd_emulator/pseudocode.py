"""AMD's pseudocode as Python's syntax tree: the two have the same expressions but for a few marks.

if S0.f32 > 1.0F then D0.f32 = S1.i32 < 0 ? -S0.f32 : 32'F(S1.i32) endif         becomes
if S0.f32 > typed(1.0, 'F'): D0.f32 = (-S0.f32 if S1.i32 < 0 else cast(32, 'F', S1.i32))
"""

from __future__ import annotations

import ast
import re

from lispgpt.runtime.devices.amd_emulator.faults import NotModelled

BLOCK_WORDS = re.compile(r"(\bthen\b|\belse\b|\bdo\b|\bendif\b|\bendfor\b|;|(?=\belsif\b))")
HEADER = re.compile(r"(if|elsif|for (?:\w+) in) ((?:[^:]*?)(?= : |$))(?: : (.*))?")
BRACKETS, ASSIGNMENT = re.compile(r"[(\[{][^()\[\]{}]*[)\]}]"), re.compile(r"(.*(?<![=!<>])=(?!=))?(.*)")
MARKS = [
    (re.compile(pattern), python)
    for pattern, python in (
        (r"declare (\w+) : (\d+)'(\w)$", r"\1 = declared(\2, '\3', 0)"),
        (r"lambda\(([\w, ]*)\)", r"lambda \1: "),
        (r"(\d+)'([UIFB])\(", r"cast(\1, '\2', "),
        (r"(\d+)'(\d+\.\d+)", r"cast(\1, 'F', \2)"),
        (r"(\d+)'(0x[\da-fA-F]++|\d++)(U?)", r"cast(\1, '\3', \2)"),
        (r"\b(0x[\da-fA-F]++|\d++(?:\.\d++)?)(ULL|LL|U|F|L)\b", r"typed(\1, '\2')"),
        ("&&", " and "), (r"\|\|", " or "), ("!(?!=)", " not "), ("<>", "!="),
        (r"\b(in|pass)\b", r"\1_"),
    )
]  # fmt: skip


def parse(text: str) -> list[ast.stmt]:
    """An operation's statements; NotModelled where they are no program."""
    lines: list[str] = []
    depth = 0
    for part in BLOCK_WORDS.split(" ".join(re.sub(r"//[^\n]*", "", text).split())):
        words, header = part.strip(), HEADER.fullmatch(part.strip())
        if words in ("endif", "endfor"):
            depth -= 1
        elif words == "else":
            lines += ["  " * (depth - 1) + "else:", "  " * depth + "pass"]
        elif header:
            depth += header[1] != "elsif"
            text = (
                _expression(header[2]) if header[3] is None else f"({_expression(header[2])}, {_expression(header[3])})"
            )
            lines += [
                "  " * (depth - 1) + f"{header[1].replace('els', 'el').replace('pass', 'pass_')} {text}:",
                "  " * depth + "pass",
            ]
        elif words not in ("", ";", "then", "do"):
            lines.append("  " * depth + _expression(words))
    try:
        return ast.parse("\n".join(lines)).body
    except SyntaxError as error:
        raise NotModelled(f"pseudocode with {(error.text or '').strip()!r}") from error


def _expression(text: str) -> str:
    """A statement or an expression; brackets are set aside, innermost first, while choices change their order."""
    for pattern, python in MARKS:
        text = pattern.sub(python, text)
    held: list[str] = []

    def hold(match: re.Match[str]) -> str:
        inner = match[0].translate({ord("{"): "[", ord("}"): "]"})
        held.append(inner[0] + _choices(inner[1:-1]) + inner[-1])
        return f"\0{len(held) - 1}\0"

    while BRACKETS.search(text):
        text = BRACKETS.sub(hold, text)
    text = _choices(text)
    while "\0" in text:
        text = re.sub(r"\0(\d+)\0", lambda match: held[int(match[1])], text)
    return text


def _choices(text: str) -> str:
    """c ? a : b in a text without brackets as (a if c else b)."""
    match = ASSIGNMENT.fullmatch(text)
    assert match is not None
    return (match[1] or "") + ",".join(map(_choice, match[2].split(",")))


def _choice(text: str) -> str:
    condition, mark, rest = text.partition("?")
    if not mark:
        return text
    yes, _, no = rest.partition(":")
    return f"({_choice(yes)} if {condition} else {_choice(no)})"
