"""Make GGUF files by llama.cpp's own converter, and record what transformers makes of the folders that they came from.

Run it from the project's root in an environment of its own, with a checkout of llama.cpp (the project needs neither):

    python -m venv /tmp/references
    /tmp/references/bin/pip install torch transformers sentencepiece protobuf safetensors
    PYTHONPATH=.:tests /tmp/references/bin/python tools/record_converted.py LLAMA_CPP [NAME …]

Without names it makes those of `converted_kinds.py` that tests/references/converted lacks: NAME.gguf.xz, and in
converted.json the prompts with their tokens, and each new token's lead before the next best one.  Weights are of a few
values, which BF16 has and which pack well.
"""

from __future__ import annotations

import json
import lzma
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
from converted_kinds import CONVERTED
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

FILES = Path(__file__).parent.parent / "tests" / "references" / "converted"
TEXTS = (Path(__file__).parent.parent / "examples" / "texts" / "harbour.txt").read_text(encoding="utf-8")
PROMPT = "The sea was calm, and the ships lay there."
VOCAB, NEW_TOKENS, CANDIDATES, WIDE = 320, 12, 8, 0.02
LENGTHS = (3, 17, 30)
STEPS = 7
OLDER_KEYS = {"gpt_neox": {"rotary_pct": 0.5, "rotary_emb_base": 10000}, "gpt2": {"n_ctx": 96}}
OLDER_NAMES = {"MptForCausalLM": "MPTForCausalLM"}
"""What published folders have, and the converter asks for, where transformers writes other keys today."""


def main() -> None:
    torch.set_num_threads(1)
    sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]) / "gguf-py")]
    FILES.mkdir(exist_ok=True)
    record = FILES / "converted.json"
    recorded = json.loads(record.read_text()) if record.exists() else {}
    for seed, (name, kind, tokenizer, rule, settings) in enumerate(CONVERTED):
        if name in sys.argv[2:] or (len(sys.argv) == 2 and name not in recorded):
            print(name, flush=True)
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place) / "model"
                cases = make_folder(folder, kind, tokenizer, settings, seed)
                convert(folder, Path(place) / "model.gguf", rule)
                packed = lzma.compress((Path(place) / "model.gguf").read_bytes(), preset=9)
            (FILES / f"{name}.gguf.xz").write_bytes(packed)
            recorded[name] = cases
            print(name, len(packed), [min(case["gaps"]) for case in cases["cases"]], flush=True)
            lines = (f'"{key}":{json.dumps(recorded[key], separators=(",", ":"))}' for key in sorted(recorded))
            record.write_text("{" + ",\n".join(lines) + "}\n")


def make_folder(folder: Path, kind: str, tokenizer: str, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """A folder with its tokenizer, and what transformers makes of it."""
    folder.mkdir()
    (make_bytes if tokenizer == "bytes" else make_pieces)(folder, "gemma" in kind)
    special = {"vocab_size": VOCAB, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **special, **settings)).eval()
    chance = np.random.default_rng(seed)
    for name, values in model.state_dict().items():
        values.copy_(torch.from_numpy(drawn(chance, name, tuple(values.shape), kind)))
    model.tie_weights()
    model.to(torch.bfloat16).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    cases = []
    for length in LENGTHS:
        tried = [run(model, chance.integers(3, VOCAB, length).tolist()) for _ in range(CANDIDATES)]
        cases.append(max(tried, key=quality))
    return {"text": PROMPT, "text_tokens": AutoTokenizer.from_pretrained(folder)(PROMPT)["input_ids"], "cases": cases}


def drawn(chance: np.random.Generator, name: str, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """Values of a tensor, of a few: about one in a norm, and about zero elsewhere."""
    values = chance.binomial(2 * STEPS, 0.5, shape).astype(np.float32) - STEPS
    if len(shape) > 1:
        return values / np.float32(128 if "gemma" in kind and "embed" in name else 8)
    neutral = 1 if "norm" in name or "ln_" in name or "layernorm" in name else 0
    neutral = 0 if "bias" in name or "gemma" in kind else neutral
    return values / np.float32(16) + np.float32(neutral)


@torch.no_grad()
def run(model: Any, prompt: list[int]) -> dict[str, Any]:
    """Greedy tokens, each from the whole text before it, and the gap of the best two logits before each."""
    text, gaps = list(prompt), []
    for _ in range(NEW_TOKENS):
        logits = model(torch.tensor([text]), use_cache=False).logits[0, -1].numpy()
        best = np.sort(logits)[-2:]
        gaps.append(round(float(best[1] - best[0]), 4))
        text.append(int(logits.argmax()))
    return {"prompt": prompt, "tokens": text[len(prompt) :], "gaps": gaps}


def quality(case: dict[str, Any]) -> float:
    """More is better; a text that may end before its last token is none."""
    smallest = min(case["gaps"]) if min(case["tokens"]) > 4 else -1.0
    return len(set(case["tokens"])) if smallest >= WIDE else smallest


def make_bytes(folder: Path, gemma: bool) -> None:
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    names = ["<pad>", "<s>", "</s>", "<|user|>", "<|endoftext|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, initial_alphabet=alphabet, special_tokens=names)
    library.train_from_iterator([TEXTS], trainer)
    library.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    library.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def make_pieces(folder: Path, gemma: bool) -> None:
    source = folder / "text.txt"
    source.write_text(TEXTS, encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(source),
        model_prefix=str(folder / "tokenizer"),
        model_type="bpe",
        vocab_size=VOCAB,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        add_dummy_prefix=not gemma,
        minloglevel=2,
    )
    source.unlink()
    (folder / "tokenizer.vocab").unlink()
    kind = "GemmaTokenizer" if gemma else "LlamaTokenizer"
    settings = {"tokenizer_class": kind, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"add_bos_token": True}))


def convert(folder: Path, file: Path, rule: str) -> None:
    """Run the converter, which knows rules of words by sums of the tokens that known tokenizers make."""
    import gguf
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class
    from conversion.base import TextModel

    TextModel.get_vocab_base_pre = lambda self, tokenizer: rule
    settings = ModelBase.load_hparams(folder, False)
    settings = OLDER_KEYS.get(settings["model_type"], {}) | settings
    name = get_model_architecture(settings, ModelType.TEXT)
    model = get_model_class(OLDER_NAMES.get(name, name))
    with torch.inference_mode():
        model(folder, gguf.LlamaFileType.MOSTLY_BF16, file, hparams=settings).write()


if __name__ == "__main__":
    main()
