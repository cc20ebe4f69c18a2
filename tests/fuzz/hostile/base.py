"""The good files that hostile ones are made of: small, of every format, made once."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import numpy as np
from fuzz.hostile.execute import run
from fuzz.hostile.folders import make_parts

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"

ENTRIES = """(weights (w [4 4]))
(entry scaled [(x [4] f32) (n [] i32)] {:y (* 2.0 x) :z (+ n 1)})
(entry weighed [(x [4] f32)] {:y (reshape (matmul-transposed (reshape x [1 4]) w) [4])})
"""
SIZES = ("--layers", "2", "--heads", "2", "--width", "16", "--vocab", "300", "--context", "32")


def make(folder: Path) -> Path:
    """Make all of it in a folder, which also is where commands find their cache; the folder."""
    from training.tiny import begun_folder

    def lispgpt(*words: object) -> None:
        end = run(list(map(str, words)), folder, folder / "cache")
        assert end.code == 0, (words, end.code, end.err[-3000:])

    folder.mkdir(parents=True, exist_ok=True)
    begun_folder(folder)
    (folder / "entries.lisp").write_text("(require nn)\n" + ENTRIES)
    lispgpt("checkpoint", "make", "model.bin", *SIZES)
    lispgpt("checkpoint", "make", "hf", "--format", "huggingface", *SIZES)
    lispgpt("checkpoint", "make", "entries.safetensors", "--for", "entries.lisp")
    lispgpt("tokenizer", "train", "text.txt", "--vocab-size", "300", "-o", "tokenizer.json")
    shutil.copy(folder / "tokenizer.json", folder / "hf" / "tokenizer.json")
    lispgpt("tokenizer", "encode", "text.txt", "--tokenizer", "tokenizer.json", "-o", "shard.bin")
    _write_gguf(folder / "model.gguf")
    make_parts(folder)
    np.save(folder / "x.npy", np.arange(4, dtype=np.float32))
    np.savez(folder / "x.npz", x=np.arange(4, dtype=np.float32), n=np.int32(3))
    shutil.copy(EXAMPLES / "prompts.jsonl", folder / "prompts.jsonl")
    train = ("--batch", "2", "--length", "8", "--steps", "4", "--checkpoint-every", "2", "--eval-every", "0")
    lispgpt("train", "tiny.lisp", "--data", "text.txt", "--vocab-size", "300", "--run", "run", *train)
    lispgpt("compile", "entries.lisp", "-o", "entries.lgpt")
    lispgpt("run", "hf", "--prompt-tokens", "1,2", "--max-new-tokens", "2")
    shutil.copy(_artifact_for(folder / "cache", "gpt2_generate.lisp"), folder / "model.lgpt")
    return folder


def _artifact_for(cache: Path, program: str) -> Path:
    """What the cache has of a program."""
    found = [path for path in cache.glob("*/artifact.lgpt") if f"source/{program}" in zipfile.ZipFile(path).namelist()]
    return found[0]


def _write_gguf(path: Path) -> None:
    from gguf_files import write_gguf
    from recorded_folders import folders

    folder = next(each for each in folders() if each.config["model_type"] == "qwen2")
    size = folder.config["vocab_size"]
    words = [*(chr(33 + n) for n in range(94)), "Ġ", "ab", "th"]
    tokenizer = {
        "tokenizer_model": "gpt2",
        "tokenizer_pre": "qwen2",
        "token_list": [*words, *(f"t{n}" for n in range(size - len(words)))],
        "token_merges": ["a b", "t h"],
        "token_types": [1] * size,
        "eos_token_id": 0,
        "chat_template": "{{ messages }}",
    }
    write_gguf(folder, path, "F32", tokenizer)
