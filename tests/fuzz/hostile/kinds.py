"""Kinds of hostile files: of each, a function that makes some in a folder and says with which command they meet
lispgpt."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from fuzz.hostile import gguf_parts
from fuzz.hostile.case import Case, Words
from fuzz.hostile.folders import of_generations, of_pairs, of_parts, of_templates
from fuzz.hostile.mutations import (
    changed_bytes,
    changed_json,
    replaced_file,
    written_json,
)
from fuzz.hostile.programs import of_lisp, of_pipelines

ONE = ("--prompt-tokens", "1,2", "--max-new-tokens", "2")


def of_gguf(case: Case) -> Words:
    path = case.copy("model.gguf")
    if not case.mostly(0.95):
        replaced_file(path, case.rng)
    elif case.rng.random() < 0.6:
        parts = gguf_parts.parse(path.read_bytes())
        gguf_parts.change(parts, case.rng)
        path.write_bytes(gguf_parts.written(parts))
    else:
        case.change_bytes(path, 20_000)
    encode = ["tokenizer", "encode", case.good / "text.txt", "--tokenizer", path]
    return case.rng.choice(
        (["checkpoint", "info", path], ["run", path, *ONE], ["run", path, "--prompt", "ab", *ONE[2:]], encode)
    )


def of_safetensors(case: Case) -> Words:
    path = case.copy("hf") / "model.safetensors"
    if not case.mostly():
        replaced_file(path, case.rng)
    elif case.rng.random() < 0.7:
        data = path.read_bytes()
        count = int.from_bytes(data[:8], "little")
        header = written_json(changed_json(json.loads(data[8 : 8 + count]), case.rng), case.rng)
        path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + count :])
    else:
        case.change_bytes(path)
    return case.rng.choice((["checkpoint", "info", path.parent, "--check"], ["run", path.parent, *ONE]))


def of_config(case: Case) -> Words:
    folder = case.copy("hf")
    path = folder / "config.json"
    case.change_json(path) if case.mostly() else replaced_file(path, case.rng)
    return case.rng.choice((["checkpoint", "info", folder], ["run", folder, *ONE]))


def of_tokenizer(case: Case) -> Words:
    folder = case.copy("hf")
    path = folder / "tokenizer.json"
    if case.rng.random() < 0.2:
        declared = {"bos_token": "a", "eos_token": {"content": "b"}, "added_tokens_decoder": {"0": {"content": "c"}}}
        beside = folder / "tokenizer_config.json"
        beside.write_bytes(written_json(changed_json(declared, case.rng), case.rng))
    elif case.mostly():
        case.change_json(path) if case.rng.random() < 0.8 else case.change_bytes(path, 10_000)
    else:
        replaced_file(path, case.rng)
    text = case.good / "text.txt"
    decode = ["tokenizer", "decode", "3", "299", "--tokenizer", path]
    run = ["run", folder, "--prompt", "the cat", *ONE[2:]]
    return case.rng.choice((["tokenizer", "encode", text, "--tokenizer", path], decode, run))


def of_llmc(case: Case) -> Words:
    path = case.copy("model.bin")
    case.change_bytes(path, 64) if case.mostly() else replaced_file(path, case.rng)
    run = ["run", case.good / "model.lgpt", "--checkpoint", path, *ONE, "--trust"]
    return case.rng.choice((["checkpoint", "info", path, "--check"], run))


def of_runs(case: Case) -> Words:
    run = case.copy("run")
    step = sorted((run / "checkpoints").iterdir())[-1]
    files = [run / "run.json"] * 4 + [run / "metrics.jsonl", run / "tokenizer.json"]
    files += [step / "checkpoint.json", step / "training.safetensors"]
    path = case.rng.choice(files)
    if not case.mostly(0.85):
        replaced_file(case.rng.choice([*files, run / "lock", run / "latest", run / "checkpoints", step]), case.rng)
    elif path.suffix == ".json" and case.rng.random() < 0.9:
        case.change_json(path)
    else:
        case.change_bytes(path)
    resume = ["train", "--run", run, "--resume", "--steps", "6", "--threads", "1"]
    run_it = ["run", case.good / "tiny.lisp", "--checkpoint", run, *ONE]
    plot, info = ["plot", run, "-o", case.place / "p.png"], ["checkpoint", "info", run]
    return case.rng.choice((resume, resume, resume, run_it, plot, info))


def of_caches(case: Case) -> Words:
    cache = case.copy("cache")
    entry = case.rng.choice([path for path in cache.iterdir() if path.is_dir()])
    path = entry / case.rng.choice(("inputs.json", "artifact.lgpt"))
    if not case.mostly(0.8):
        replaced_file(case.rng.choice((path, entry, cache / "made-here")), case.rng)
    elif path.suffix == ".json":
        case.change_json(path)
    else:
        case.change_bytes(path)
    return ["run", case.good / "hf", *ONE]


def of_shards(case: Case) -> Words:
    path = case.copy("shard.bin")
    case.change_bytes(path, 1100) if case.mostly() else replaced_file(path, case.rng)
    train = [
        "train",
        case.good / "tiny.lisp",
        "--data",
        path,
        "--run",
        case.place / "new",
        "--batch",
        "2",
        "--length",
        "8",
    ]
    decode = ["tokenizer", "decode", path, "--tokenizer", case.good / "tokenizer.json"]
    return case.rng.choice(([*train, "--steps", "2", "--eval-every", "0"], decode))


def of_arrays(case: Case) -> Words:
    name = case.rng.choice(("x.npy", "x.npz"))
    path = case.copy(name)
    if not case.mostly():
        replaced_file(path, case.rng)
    elif case.rng.random() < 0.4:
        shape = case.rng.choice(((), (0,), (4, 1), (3,), (1,) * 60, (4,)))
        kind = case.rng.choice(("f8", "i1", "?", "c16", "U3", "M8[s]", "f2", "u8", "V4", ">f4"))
        array = np.zeros(shape, kind)
        np.save(path, array) if name == "x.npy" else np.savez_compressed(path, x=array)
    elif name == "x.npz" and case.rng.random() < 0.3:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            head = io.BytesIO()
            np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (1 << 28,)})
            archive.writestr("x.npy", head.getvalue() + bytes(1 << 26))
    else:
        case.change_bytes(path, 400)
    texts = ("[1,2,3]", "[[1],[2,3]]", "1e999", "NaN", "[" * 2000, '"a"', "{}", "9" * 400, "[true,1,2,3]")
    text = case.rng.choice(texts)
    given = f"x={path}" if case.rng.random() < 0.8 else f"x={text}"
    words = ["run", case.good / "entries.lgpt", "--trust", "--checkpoint", case.good / "entries.safetensors"]
    return [*words, "--entry", "scaled", "--input", given, "--input", "n=3"]


def of_prompts(case: Case) -> Words:
    path = case.copy("prompts.jsonl")
    if not case.mostly():
        replaced_file(path, case.rng)
    elif case.rng.random() < 0.5:
        given = {case.rng.choice(("prompt", "tokens")): [1, 2, 3]}
        lines = [written_json(changed_json(given, case.rng), case.rng) for _ in range(3)]
        path.write_bytes(b"\n".join(lines))
    else:
        case.change_bytes(path)
    options = (["--prompts", path], ["--prompt-file", path])
    return ["run", case.good / "hf", *case.rng.choice(options), "--max-new-tokens", "2"]


def of_artifacts(case: Case) -> Words:
    path = case.copy(case.rng.choice(("model.lgpt", "entries.lgpt")))
    if not case.mostly():
        replaced_file(path, case.rng)
    elif case.rng.random() < 0.75:
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        members["manifest.json"] = written_json(changed_json(json.loads(members["manifest.json"]), case.rng), case.rng)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED if case.mostly() else zipfile.ZIP_DEFLATED) as archive:
            for name, data in members.items():
                archive.writestr(name, data)
    else:
        _change_around_code(path, case.rng)
    if path.name == "model.lgpt":
        return ["run", path, "--checkpoint", case.good / "model.bin", *ONE, "--trust"]
    words = ["run", path, "--checkpoint", case.good / "entries.safetensors", "--trust"]
    return [*words, "--entry", "scaled", "--input", "x=[1,2,3,4]", "--input", "n=3"]


def _change_around_code(path: Path, rng: random.Random) -> None:
    """Change the zip's own bytes at its end; machine code that was changed is code, not data."""
    data = path.read_bytes()
    end = data.index(b"PK\x01\x02")
    path.write_bytes(data[:end] + changed_bytes(data[end:], rng))


KINDS: dict[str, Callable[[Case], Words]] = {
    "gguf": of_gguf,
    "safetensors": of_safetensors,
    "config": of_config,
    "tokenizer": of_tokenizer,
    "llmc": of_llmc,
    "runs": of_runs,
    "caches": of_caches,
    "shards": of_shards,
    "arrays": of_arrays,
    "prompts": of_prompts,
    "pipelines": of_pipelines,
    "lisp": of_lisp,
    "artifacts": of_artifacts,
    "pairs": of_pairs,
    "templates": of_templates,
    "generations": of_generations,
    "parts": of_parts,
}
EVERY = tuple(KINDS)
