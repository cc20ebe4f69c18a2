"""Programs near the examples: their text with sizes, types, functions, names and layers changed, at random.

Most of what comes of it means something else than its author wanted, and much means nothing: a program is to be right,
or refused in one message.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
BASES = (
    "alibi", "classifier", "classifier_train", "experts", "gemma2", "gpt2", "gpt_neox", "llama_tiny", "mistral",
    "mixtral", "my_layers", "olmo2", "opt", "phi", "phi3", "qwen2_moe", "qwen3", "recurrence", "sliding_window",
    "stablelm",
)  # fmt: skip
SMALL = {
    "vocab": (67, 96, 130), "context": (24, 40, 64), "layers": (1, 2, 3), "heads": (2, 4), "kv-heads": (1, 2),
    "width": (32, 48, 64), "hidden": (33, 64, 96), "head-width": (8, 16, 24), "window": (3, 8, 17),
    "experts": (3, 4, 5), "top": (1, 2, 3), "pixels": (28, 49, 64), "classes": (3, 10), "expert-hidden": (16, 40),
    "shared-hidden": (24, 32), "turned": (0.25, 0.5),
}  # fmt: skip
"""Sizes by config's names: what examples have takes minutes."""

ALIKE = (
    ("gelu", "silu", "relu", "tanh", "sigmoid", "exp", "abs", "square", "-"),
    ("+", "-", "*", "max", "min", "/"),
    ("sum", "mean", "maximum"),
    ("<", "<=", ">", ">=", "=", "!="),
    ("bf16", "f32", "f16"),
)
"""Words that may stand in each other's place."""

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[()\[\]{}]|[^\s()\[\]{}"]+')
CLOSING = {"(": ")", "[": "]", "{": "}"}
Form = Any
"""A word, or a list whose first element is its opening bracket."""


def program(seed: int) -> str:
    """The text of a mutated example; the same for a seed each time."""
    rng = random.Random(seed)
    base = rng.choice(BASES)
    forms = _parsed((EXAMPLES / f"{base}.lisp").read_text())
    forms = [form for form in forms if form[1:2] not in (["huggingface"], ["gguf"], ["generate"])]
    _shrink(forms, rng)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        _mutate(forms, rng)
    return f"; {base}, seed {seed}\n" + "\n".join(map(_text, forms)) + "\n"


def _parsed(text: str) -> list[Form]:
    """A file's forms, without comments."""
    stack: list[list[Form]] = [[]]
    for token in TOKEN.findall("\n".join(_uncommented(line) for line in text.splitlines())):
        if token in CLOSING:
            stack.append([token])
        elif token in CLOSING.values():
            form = stack.pop()
            stack[-1].append(form)
        else:
            stack[-1].append(token)
    return stack[0]


def _uncommented(line: str) -> str:
    quoted = False
    for place, letter in enumerate(line):
        quoted ^= letter == '"'
        if letter == ";" and not quoted:
            return line[:place]
    return line


def _text(form: Form) -> str:
    if isinstance(form, str):
        return form
    return form[0] + " ".join(map(_text, form[1:])) + CLOSING[form[0]]


def _shrink(forms: list[Form], rng: random.Random) -> None:
    """Choose small sizes for what config names, where it gives plain numbers."""
    for form in forms:
        if form[:2] == ["(", "config"]:
            for place in range(2, len(form) - 1, 2):
                name, value = form[place], form[place + 1]
                if name in SMALL and isinstance(value, str) and re.fullmatch(r"[\d.]+", value):
                    form[place + 1] = str(rng.choice(SMALL[name]))


def _places(form: Form) -> list[tuple[list[Form], int]]:
    """Where a form's parts are, at any depth, but for its brackets."""
    found = []
    for number, part in enumerate(form):
        if isinstance(part, list):
            found += [(form, number), *((owner, n) for owner, n in _places(part))]
        elif number > 0:
            found.append((form, number))
    return found


def _mutate(forms: list[Form], rng: random.Random) -> None:
    """One change, where the first kind that is drawn fits: of declarations of types, of functions of anything."""
    declared = [form for form in forms if form[:2] in (["(", "weights"], ["(", "state"])]
    bodies = [form[-1:] for form in forms if form[:2] in (["(", "defn"], ["(", "entry"])]
    types = [place for form in declared for place in _places(form)]
    places = [place for form in bodies for place in [(form, 0), *_places(form[0])] if _is_value(*place)]
    for _ in range(200):
        owner, number = rng.choice(places)
        if rng.random() < 0.1 and types and _other_word(*rng.choice(types), places, rng):
            return
        if rng.choice(KINDS)(owner, number, places, rng):
            return


def _is_value(owner: list[Form], number: int) -> bool:
    """Whether a part is one that is computed, or the word of a function; not a name that is bound."""
    part = owner[number]
    return part not in ("let", "fn", "if", "tensor") and not (isinstance(part, list) and part[0] in "[{")


def _other_word(owner: list[Form], number: int, places: Any, rng: random.Random) -> bool:
    """Another function, comparison or type in a word's place."""
    family = next((words for words in ALIKE if owner[number] in words), None)
    if family is None:
        return False
    owner[number] = rng.choice([word for word in family if word != owner[number]])
    return True


def _other_number(owner: list[Form], number: int, places: Any, rng: random.Random) -> bool:
    if not isinstance(owner[number], str) or not re.fullmatch(r"-?\d+(\.\d+)?", owner[number]):
        return False
    whole = "." not in owner[number]
    owner[number] = str(rng.choice((0, 1, 2, 3, 5, 8))) if whole else str(rng.choice((0.5, 1.0, -1.5, 3.0)))
    return True


def _other_name(owner: list[Form], number: int, places: Any, rng: random.Random) -> bool:
    """A name that stands somewhere else in the program in a name's place."""
    if number < 2 or not isinstance(owner[number], str) or not owner[number][0].isalpha():
        return False
    words = [o[n] for o, n in places if n >= 2 and isinstance(o[n], str) and o[n][0].isalpha()]
    owner[number] = rng.choice(words)
    return True


def _swapped(owner: list[Form], number: int, places: Any, rng: random.Random) -> bool:
    """Two neighbours, such as a call's arguments or a list's sizes, or two bindings' values, changed about."""
    step = 2 if owner[0] == "[" and number % 2 == 0 and rng.random() < 0.7 else 1
    if number < (2 if owner[0] == "(" else 1) or number + step >= len(owner) or owner[1] in ("let", "fn"):
        return False
    owner[number], owner[number + step] = owner[number + step], owner[number]
    return True


def _left_out(owner: list[Form], number: int, places: Any, rng: random.Random) -> bool:
    """A call's argument in place of the call."""
    call = owner[number]
    if not isinstance(call, list) or call[0] != "(" or len(call) < 3 or call[1] in ("let", "fn", "defn"):
        return False
    owner[number] = rng.choice(call[2:])
    return True


def _doubled(owner: list[Form], number: int, places: Any, rng: random.Random) -> bool:
    """A function of one argument, or a layer, of what it gives."""
    call = owner[number]
    if not isinstance(call, list) or call[0] != "(" or len(call) < 3 or call[1] in ("let", "fn", "defn"):
        return False
    owner[number] = [*call[:2], call, *call[3:]]
    return True


def _around(owner: list[Form], number: int, places: Any, rng: random.Random) -> bool:
    """An elementwise function, a sum with itself or a slice around a part."""
    part = owner[number]
    if not isinstance(part, list) or part[0] != "(" or number < 2:
        return False
    word = rng.choice(("silu", "tanh", "softmax", "+", "*", "relu", "cast"))
    more = {"+": [part], "*": [part], "cast": [rng.choice(("bf16", "f32"))]}.get(word, [])
    owner[number] = ["(", word, part, *more]
    return True


KINDS = (_other_word, _other_number, _other_name, _swapped, _left_out, _doubled, _around, _other_word, _swapped)
