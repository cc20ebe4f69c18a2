"""`hugging-face`: what a program calls the settings and tensors of Hugging Face's folders of its model.

    (hugging-face ["llama"] {:prefix "model."}
      (config vocab "vocab_size"  kv-heads (optional "num_key_value_heads")
              window (optional "sliding_window" {:null 0}))             ; 0 where it says null
      (weights wte "embed_tokens.weight"
               (per "layers.*."
                 qkv-w ["self_attn.q_proj.weight" …])
               (some "layers.*." router-w "mlp.gate.weight")))       ; which layers may lack

`gguf` beside it names the architectures of GGUF files of the model, and what is not as in folders there.

    (gguf ["llama"] {:rows {"q_proj" (["num_attention_heads" 2 nil] [0 2 1])}  :added {"norm" 1.0}})

The forms are data: they are read without evaluating the program, since a folder's config.json decides what the program
is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.folder_map import FolderMap, Gguf, Pattern, Rows, Setting
from lispgpt.base.reading import read_text
from lispgpt.base.source import Source
from lispgpt.language.core.environment import Environment
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import special
from lispgpt.language.model.table import Model
from lispgpt.language.reader.forms import Form, Keyword, List, Literal, Map, Symbol, Vector, head_name, show
from lispgpt.language.reader.reader import read

OPTIONS = ("prefix", "ignored", "requires", "rotary", "usual", "activation")
GGUF_OPTIONS = ("rows", "added", "requires", "kinds", "settings")
USUAL = {
    "vocab": Setting(("vocab_size",)),
    "context": Setting(("max_position_embeddings",)),
    "layers": Setting(("num_hidden_layers",)),
    "width": Setting(("hidden_size",)),
    "hidden": Setting(("intermediate_size",)),
    "heads": Setting(("num_attention_heads",)),
    "kv-heads": Setting(("num_key_value_heads", "num_attention_heads")),
    "head-width": Setting(("head_dim",), True),
    "epsilon": Setting(("rms_norm_eps",), True),
    "tied-head": Setting(("tie_word_embeddings",), True),
}
"""What Llama and those that came after it call the settings that all of them have: `{:usual true}`."""
ROTARY = {
    "rope-type": ("rope_type", "type"),
    "rope-theta": ("rope_theta",),
    "rope-factor": ("factor",),
    "rope-low": ("low_freq_factor",),
    "rope-high": ("high_freq_factor",),
    "rope-original": ("original_max_position_embeddings",),
    "rope-fast": ("beta_fast",),
    "rope-slow": ("beta_slow",),
    "rope-whole": ("truncate",),
    "rope-attention": ("attention_factor",),
    "rope-mscale": ("mscale",),
    "rope-mscale-all": ("mscale_all_dim",),
    "rope-short": ("short_factor",),
    "rope-long": ("long_factor",),
    "rope-most": ("max_position_embeddings",),
}
"""What the library's rotary positions are set by, and what config.json calls that."""
ACTIVATIONS = (
    *("silu", "swish", "gelu", "gelu_python", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "quick_gelu"),
    *("relu", "relu2", "tanh", "sigmoid"),
)
"""What the library has (`activation-named`)."""
FREQUENCIES = "rotary_emb.inv_freq"
"""A tensor that older folders have for each layer, of what these come to."""
LENGTHS = ("rope-original", "rope-most")
"""Of these, what is said of the model counts before what is said of its positions."""
PLACES = ("rope_parameters.", "rope_parameters.full_attention.", "rope_scaling.", "")


@special("hugging-face", 3, 4)
def _hugging_face(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    model = evaluator.states.of(Model)
    if model.folder is not None:
        evaluator.site.fail("a program has one `hugging-face`", form)
    model.folder = parse(form)
    if model.gguf is not None:
        model.folder = replace(model.folder, gguf=model.gguf)
    for name in model.folder.config:
        if name not in model.config:
            evaluator.site.fail(f"`hugging-face` sets {name}, which is not in the program's config", form)
    return None


@special("gguf", 1, 2)
def _gguf(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    model = evaluator.states.of(Model)
    model.gguf = parse_gguf(form)
    if model.folder is not None:
        model.folder = replace(model.folder, gguf=model.gguf)
    return None


def find_map(program: Path) -> FolderMap | None:
    """The map in a program's file or in one that it requires; None where there is none."""
    forms = {head_name(form): form for form in reversed(list(_forms(program, set())))}
    if "hugging-face" not in forms:
        return None
    found = parse(forms["hugging-face"])  # type: ignore[arg-type]
    return replace(found, gguf=parse_gguf(forms["gguf"])) if "gguf" in forms else found  # type: ignore[arg-type]


def parse_gguf(form: List) -> Gguf:
    """What the form says; UserError at the place where it is wrong."""
    types, *rest = form.items[1:]
    options = dict(_entries(rest[0])) if rest else {}
    for key in options:
        if key not in GGUF_OPTIONS:
            raise UserError(f"`:{key}` is none of the options :{', :'.join(GGUF_OPTIONS)}", rest[0].span)
    values = {key: dict(_entries(value)) for key, value in options.items()}
    return Gguf(
        _texts(types),
        {name: _rows(value) for name, value in values.get("rows", {}).items()},
        {name: _number(value) for name, value in values.get("added", {}).items()},
        {name: tuple(map(_scalar, _several(value))) for name, value in values.get("requires", {}).items()},
        {name: _text(value) for name, value in values.get("kinds", {}).items()},
        {name: _scalar(value) for name, value in values.get("settings", {}).items()},
    )


def _entries(form: Form) -> list[tuple[str, Form]]:
    """A map's keys, keywords or texts, and values."""
    if not isinstance(form, Map):
        raise UserError(f"`{show(form)}` stands where a map is wanted", form.span)
    pairs = zip(form.items[::2], form.items[1::2], strict=False)
    return [(key.name if isinstance(key, Keyword) else _text(key), value) for key, value in pairs]


def _rows(form: Form) -> Rows:
    """`([sizes] [order])`"""
    parts = [_scalar(item) for item in form.items] if isinstance(form, List) else []
    if len(parts) == 2 and all(isinstance(part, list) for part in parts):
        sizes, order = parts
        numbered = all(type(number) is int for number in order) and sorted(order) == list(range(len(sizes)))
        if numbered and sizes.count(None) < 2 and all(size is None or type(size) in (int, str) for size in sizes):
            return Rows(tuple(sizes), tuple(order))
    raise UserError(f"`{show(form)}` is not the sizes and the order of rows, like ([4 2 nil] [0 2 1])", form.span)


def _number(form: Form) -> float:
    value = _scalar(form)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UserError(f"`{show(form)}` is no number", form.span)
    return float(value)


def _forms(path: Path, seen: set[Path]) -> Iterator[Form]:
    if path.resolve() in seen or not path.is_file():
        return
    seen.add(path.resolve())
    for form in read(Source(str(path), read_text(path))):
        yield form
        if head_name(form) == "require":
            for item in form.items[1:]:  # type: ignore[attr-defined]
                item = item.items[0] if isinstance(item, Vector) and item.items else item
                if isinstance(item, Literal) and isinstance(item.value, str) and not item.value.startswith("@"):
                    yield from _forms(path.parent / item.value, seen)


def parse(form: List) -> FolderMap:
    """The map that the form says; UserError at the place where it is wrong."""
    types, *rest = form.items[1:]
    options = _options(rest.pop(0)) if isinstance(rest[0], Map) else {}  # type: ignore[arg-type]
    if [head_name(part) for part in rest] not in (["config", "weights"], ["weights"]):
        raise UserError('`hugging-face` is (hugging-face ["llama"] {options} (config …) (weights …))', form.span)
    settings = _pairs(rest[0].items[1:] if len(rest) == 2 else ())  # type: ignore[attr-defined]
    config = USUAL if options.pop("usual", False) else {}
    config = config | {name: _setting(value) for name, value in settings}
    weights = dict(_weights(rest[-1].items[1:]))  # type: ignore[attr-defined]
    parts = [part for part in rest[-1].items[1:] if head_name(part) == "some"]  # type: ignore[attr-defined]
    some = tuple(name for part in parts for name, _ in _pairs(part.items[2:]))
    if kinds := options.pop("rotary", ()):
        config = {name: _rotary(name) for name in ROTARY} | config
        options["ignored"] = (*options.get("ignored", ()), FREQUENCIES)
        options["requires"] = options.get("requires", {}) | dict.fromkeys(
            _rotary("rope-type").keys[: -len(ROTARY["rope-type"])], kinds
        )
    if keys := options.pop("activation", ()):
        config |= {"activation": Setting(keys, True)}
        options["requires"] = options.get("requires", {}) | dict.fromkeys(keys, ACTIVATIONS)
    return FolderMap(_texts(types), config, weights, some=some, **options)


def _rotary(name: str) -> Setting:
    """Where a setting of rotary positions stands, the places that count most before the others."""
    places = reversed(PLACES) if name in LENGTHS else PLACES
    return Setting(tuple(place + key for place in places for key in ROTARY[name]), True)


def _weights(items: tuple[Form, ...], prefix: str = "") -> Iterator[tuple[str, tuple[Pattern, ...]]]:
    plain = []
    for item in items:
        if head_name(item) in ("per", "some") and not prefix:
            if len(item.items) < 2 or "*" not in _text(item.items[1]):  # type: ignore[attr-defined]
                raise UserError(f'`{show(item)}` is not like ({head_name(item)} "layers.*." name "tensor")', item.span)
            yield from _weights(item.items[2:], _text(item.items[1]))  # type: ignore[attr-defined]
        else:
            plain.append(item)
    for name, value in _pairs(tuple(plain)):
        patterns = (_pattern(each) for each in _several(value))
        yield name, tuple(replace(pattern, name=prefix + pattern.name) for pattern in patterns)


def _options(form: Map) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in zip(form.items[::2], form.items[1::2], strict=False):
        if not isinstance(key, Keyword) or key.name not in OPTIONS:
            raise UserError(f"`{show(key)}` is none of the options :{', :'.join(OPTIONS)}", key.span)
        if key.name in ("prefix", "ignored", "rotary", "activation"):
            found[key.name] = _texts(value)
        elif key.name == "usual":
            found["usual"] = _scalar(value)
        else:
            pairs = zip(value.items[::2], value.items[1::2], strict=False) if isinstance(value, Map) else ()
            found["requires"] = {_text(k): tuple(_scalar(v) for v in _several(w)) for k, w in pairs}
    return found


def _pairs(items: tuple[Form, ...]) -> Iterator[tuple[str, Form]]:
    for index in range(0, len(items), 2):
        name = items[index]
        if not isinstance(name, Symbol) or index + 1 == len(items):
            raise UserError(f"`{show(name)}` is not a name with what it stands for in the folder", name.span)
        yield name.name, items[index + 1]


def _setting(form: Form) -> Setting:
    if head_name(form) == "optional":
        items: tuple[Form, ...] = form.items[1:]  # type: ignore[attr-defined]
        given = items[-1] if items and isinstance(items[-1], Map) else None
        keys = tuple(map(_text, items if given is None else items[:-1]))
        options = {} if given is None else dict(_entries(given))
        null = _scalar(options["null"]) if options.keys() == {"null"} else None
        if not keys or (given is not None and not isinstance(null, bool | int | float | str)):
            raise UserError(f'`{show(form)}` is not like (optional "key" {{:null 0}})', form.span)
        return Setting(keys, True, null)
    return Setting(_texts(form))


def _pattern(form: Form) -> Pattern:
    """`"name"`, `(transposed "name")`, or `(padded "name" 128)`."""
    items = form.items if isinstance(form, List) else ()
    if head_name(form) == "transposed" and len(items) == 2:
        return Pattern(_text(items[1]), transposed=True)
    if head_name(form) == "padded" and len(items) == 3:
        multiple = _scalar(items[2])
        if type(multiple) is int and multiple > 0:
            return Pattern(_text(items[1]), multiple=multiple)
    return Pattern(_text(form))


def _several(form: Form) -> tuple[Form, ...]:
    return form.items if isinstance(form, Vector) else (form,)


def _texts(form: Form) -> tuple[str, ...]:
    return tuple(map(_text, _several(form)))


def _text(form: Form) -> str:
    value = form.value if isinstance(form, Literal) else None
    if not isinstance(value, str):
        raise UserError(f"`{show(form)}` is no string, and `hugging-face` names what is in a folder", form.span)
    return value


def _scalar(form: Form) -> Any:
    if isinstance(form, Vector):
        return [_scalar(item) for item in form.items]
    if isinstance(form, Symbol) and form.name == "inf":
        return math.inf
    if not isinstance(form, Literal):
        raise UserError(f"`{show(form)}` is no string, number, true, false or nil", form.span)
    return form.value
