"""Hostile files beside a model's weights: tables of tokens, templates, settings of generation, and parts of weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fuzz.hostile import gguf_parts
from fuzz.hostile.case import Case, Words
from fuzz.hostile.mutations import changed_json, changed_text, replaced_file, written_json

ONE = ("--max-new-tokens", "2")

DECLARED = {
    "tokenizer_class": "GPT2Tokenizer",
    "bos_token": "<s>",
    "eos_token": {"content": "</s>"},
    "add_bos_token": True,
    "additional_special_tokens": ["<x>"],
    "added_tokens_decoder": {"3": {"content": "<s>", "special": True, "lstrip": True}, "4": {"content": "</s>"}},
    "chat_template": "{{ messages }}",
}
SETTINGS = {
    "eos_token_id": [1, 2],
    "temperature": 0.7,
    "top_k": 5,
    "top_p": 0.9,
    "repetition_penalty": 1.1,
    "do_sample": True,
    "max_length": 20,
}
TEMPLATES = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m['content'] | trim }}{{ eos_token }}{% endfor %}",
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}{{ messages[-1] }}",
    "{%- macro one(m) -%}{{ m.content }}{%- endmacro -%}{% for m in messages %}{{ one(m) }}{% endfor %}",
)
GROWING = (
    "{% for i in range(10**9) %}x{% endfor %}",
    "{{ 'x' * 10**10 }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{{ messages.__class__.__mro__[1].__subclasses__() }}",
    "{% include '/etc/passwd' %}",
    "{{ raise_exception('\x1b]0;owned\x07') }}",
    "{{ 10 ** 10 ** 10 }}",
    "{% set ns = namespace(a=[1]) %}{% for i in range(99) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
    "{{ 'a' | center(10**10) }}",
    "{{ strftime_now('%' * 100000) }}",
    "(" * 10_000,
    "{{ " + "[" * 3000 + "]" * 3000 + " }}",
)


def of_pairs(case: Case) -> Words:
    """vocab.json beside merges.txt, with what is declared beside them; llm.c's table beside its weights."""
    if case.rng.random() < 0.2:
        path = case.copy("model.tokenizer.bin")
        case.change_bytes(path, 200) if case.mostly() else replaced_file(path, case.rng)
        return ["tokenizer", "decode", "3", "200", "--tokenizer", path]
    folder = case.copy("pair")
    for name in ("tokenizer_config", "special_tokens_map", "added_tokens"):
        (folder / f"{name}.json").write_text(json.dumps(DECLARED if name != "added_tokens" else {"<s>": 3}))
    path = case.rng.choice(sorted(folder.iterdir()))
    if not case.mostly(0.95):
        replaced_file(path, case.rng)
    elif path.suffix == ".txt":
        text = changed_text(path.read_text(), case.rng)
        path.write_text(text, errors="surrogatepass") if case.mostly(0.7) else case.change_bytes(path)
    else:
        case.change_json(path)
    encode = ["tokenizer", "encode", case.good / "text.txt", "--tokenizer", folder / "vocab.json"]
    return case.rng.choice((encode, ["tokenizer", "decode", "3", "255", "--tokenizer", folder / "vocab.json"]))


def of_templates(case: Case) -> Words:
    """Chat templates, alone and in a folder's settings."""
    folder = case.copy("hf")
    text = case.rng.choice(GROWING) if case.rng.random() < 0.4 else changed_text(case.rng.choice(TEMPLATES), case.rng)
    declared: Any = {"chat_template": text, "bos_token": "a"}
    if case.rng.random() < 0.3:
        declared = changed_json({"chat_template": [{"name": "default", "template": text}], "bos_token": "a"}, case.rng)
    beside = folder / "chat_template.jinja"
    given: list[Any] = []
    if case.mostly(0.5):
        (folder / "tokenizer_config.json").write_bytes(written_json(declared, case.rng))
    else:
        beside.write_text(text, errors="surrogatepass") if case.mostly() else replaced_file(beside, case.rng)
        given = ["--template", beside] if case.mostly(0.5) else []
    return ["chat", folder, *given, "--prompt", "the cat", *ONE]


def of_generations(case: Case) -> Words:
    """Settings of generation."""
    folder = case.copy("hf")
    path = folder / "generation_config.json"
    path.write_text(json.dumps(SETTINGS))
    case.change_json(path) if case.mostly() else replaced_file(path, case.rng)
    return ["run", folder, "--prompt-tokens", "1,2", *ONE]


def of_parts(case: Case) -> Words:
    """Weights in several files, and what says which has which."""
    run = ["--prompt-tokens", "1,2", *ONE]
    if case.rng.random() < 0.4:
        paths = [case.copy(f"split-0000{number}-of-00002.gguf") for number in (1, 2)]
        path = case.rng.choice(paths)
        if case.mostly():
            parts = gguf_parts.parse(path.read_bytes())
            gguf_parts.change(parts, case.rng)
            path.write_bytes(gguf_parts.written(parts))
        else:
            replaced_file(path, case.rng)
        return case.rng.choice((["checkpoint", "info", paths[0]], ["run", paths[0], *run]))
    folder = case.copy("sharded")
    path = case.rng.choice([folder / "model.safetensors.index.json"] * 3 + sorted(folder.glob("*.safetensors")))
    if not case.mostly(0.85):
        replaced_file(path, case.rng)
    elif path.suffix == ".json":
        case.change_json(path)
    else:
        case.change_bytes(path)
    return case.rng.choice((["checkpoint", "info", folder, "--check"], ["run", folder, *run]))


def make_parts(folder: Path) -> None:
    """Make the good folders `pair` and `sharded`, and two parts of the good GGUF file."""
    from recorded_folders import folders

    from lispgpt.runtime.tokenizers.base import byte_alphabet

    (folder / "pair").mkdir()
    tokens = [*byte_alphabet(), "th", "the", "us"]
    (folder / "pair" / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    (folder / "pair" / "merges.txt").write_text("#version: 0.2\nt h\nth e\nu s\n")
    next(each for each in folders() if each.config["model_type"] == "qwen2").write(folder / "sharded", shards=2)
    whole = gguf_parts.parse((folder / "model.gguf").read_bytes())
    tensors = sorted(whole.tensors, key=lambda tensor: tensor[3])
    half = tensors[len(tensors) // 2][3]
    for number in range(2):
        own = [t for t in tensors if (t[3] >= half) == bool(number)]
        counted = [[b"split.no", 2, number], [b"split.count", 2, 2], [b"split.tensors.count", 5, len(tensors)]]
        moved = [[name, shape, kind, place - half * number] for name, shape, kind, place in own]
        rest = whole.rest[half:] if number else whole.rest[:half]
        part = gguf_parts.Parts(counted if number else whole.metadata + counted, moved, rest)
        (folder / f"split-{number + 1:05}-of-00002.gguf").write_bytes(gguf_parts.written(part))
