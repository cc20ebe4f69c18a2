"""llama.cpp's side of `lispgpt bench`, in an interpreter that has `llama_cpp` and `gguf` (see `peers`).

The model is a GGUF file.  Where that does not exist it becomes a GPT-2 124M of seeded random weights: matrices in BF16,
norms and biases in F32, as GGUF wants them.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

LAYERS, HEADS, WIDTH, VOCAB, CONTEXT = 12, 12, 768, 50257, 1024


def main() -> None:
    given = json.loads(sys.argv[1])
    path, threads = Path(given["model"]), given["threads"]
    if not path.exists():
        write_model(path)
    import llama_cpp

    places = {"n_gpu_layers": -1 if given["gpu"] else 0, "n_threads": threads, "n_threads_batch": threads}
    model = llama_cpp.Llama(str(path), n_ctx=given["context"], verbose=False, **places)
    random, vocab = np.random.default_rng(0), model.n_vocab()
    seconds_of(model, [[1] * 8])
    print(json.dumps({"name": f"llama.cpp (llama-cpp-python {llama_cpp.__version__})"}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if asked.get("batch", 1) > 1:
            print(json.dumps({"failed": "it is measured with one sequence"}), flush=True)
            continue
        tokens = [int(t) for t in random.integers(0, vocab, asked["count"])]
        model.reset()
        if asked["what"] == "prompt":
            seconds = seconds_of(model, [tokens])
        else:
            steps = [[int(t)] for t in random.integers(0, vocab, asked["steps"])]
            model.eval(tokens or [1])
            seconds = seconds_of(model, steps) / len(steps)
        print(json.dumps({"seconds": seconds}), flush=True)


def seconds_of(model: Any, batches: list[list[int]]) -> float:
    """Time to evaluate batches of tokens one after another."""
    started = time.perf_counter()
    for batch in batches:
        model.eval(batch)
    return time.perf_counter() - started


def write_model(path: Path) -> None:
    """A GGUF file, put in place when it is whole."""
    import gguf

    rng = np.random.default_rng(1)
    unfinished = path.with_suffix(".unfinished")
    writer = gguf.GGUFWriter(str(unfinished), "gpt2")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(4 * WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    add_vocabulary(writer)
    bf16 = gguf.GGMLQuantizationType.BF16

    def matrix(name: str, *shape: int) -> None:
        values = rng.normal(0, 0.02, shape).astype(np.float32)
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(values, bf16), raw_dtype=bf16)

    def product(name: str, out: int, into: int) -> None:
        matrix(name, out, into)
        writer.add_tensor(f"{name}.bias", np.zeros(out, np.float32))

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
        writer.add_tensor(f"{name}.bias", np.zeros(WIDTH, np.float32))

    matrix("token_embd", VOCAB, WIDTH)
    writer.add_tensor("position_embd.weight", rng.normal(0, 0.01, (CONTEXT, WIDTH)).astype(np.float32))
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        norm(f"{block}.attn_norm")
        product(f"{block}.attn_qkv", 3 * WIDTH, WIDTH)
        product(f"{block}.attn_output", WIDTH, WIDTH)
        norm(f"{block}.ffn_norm")
        product(f"{block}.ffn_up", 4 * WIDTH, WIDTH)
        product(f"{block}.ffn_down", WIDTH, 4 * WIDTH)
    norm("output_norm")
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        write()
    writer.close()
    unfinished.replace(path)


def add_vocabulary(writer: Any) -> None:
    """Bytes as GPT-2 writes them, and words that are only numbered."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    shown = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in shown]
    letters = [chr(byte if byte in shown else 256 + others.index(byte)) for byte in range(256)]
    writer.add_token_list([*letters, "Ġw", *(f"Ġw{i}" for i in range(VOCAB - 258)), "<|endoftext|>"])
    writer.add_token_types([1] * (VOCAB - 1) + [3])
    writer.add_token_merges(["Ġ w"])
    writer.add_bos_token_id(VOCAB - 1)
    writer.add_eos_token_id(VOCAB - 1)


if __name__ == "__main__":
    main()
