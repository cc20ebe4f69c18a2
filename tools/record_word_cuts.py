"""Record how llama.cpp tokenizes by each rule of cutting words, as tests/references/word_cuts.json.

Run it from the project's root in an environment of its own (the project itself does not need llama.cpp):

    python -m venv /tmp/references && /tmp/references/bin/pip install gguf llama-cpp-python tokenizers
    PYTHONPATH=tests /tmp/references/bin/python tools/record_word_cuts.py

A small vocabulary is made of the texts themselves, without any rule, so that its merges cross words where a rule lets
them.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from gguf_files import write_vocabulary
from llama_cpp import Llama
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

RECORDED = Path(__file__).parent.parent / "tests" / "references" / "word_cuts.json"
RULES = (
    *("default", "falcon", "gpt-2", "llama-bpe", "dbrx", "glm4", "falcon3", "lfm2", "pixtral", "qwen2", "hunyuan"),
    *("tekken", "gpt-4o", "llama4", "bloom", "smollm", "command-r", "exaone", "exaone4", "olmo", "mpt", "refact"),
    *("starcoder", "stablelm2", "jais", "smaug-bpe", "mellum", "phi-2", "gigachat", "a.x-4.0", "trillion"),
    *("granite-docling", "llama3", "llama-v3", "glm5", "chatglm-bpe", "falcon-h1", "midm-2.0", "deepseek-r1-qwen"),
    *("megrez", "kormo", "solar-open", "grok-2", "qwen35", "kanana2", "minimax-m2", "poro-chat", "gpt3-finnish"),
    *("viking", "deepseek-llm", "deepseek-coder", "deepseek-v3", "hunyuan-dense", "joyai-llm", "bailingmoe"),
    *("bailingmoe2", "llada-moe", "seed-coder", "minicpm5", "codeshell", "minerva-7b", "mellum2"),
)
TEXTS = (
    "Once upon a time, it's THE end; he'LL go",
    "  two  spaces\n\nnew 12345 67 x1y22 ",
    "naïve café 漢字かな 😀 “x” (a|b)…",
    "def f(x):\n    return x+1  # ok\r\n\r\n",
    "HelloWorld camelCase ÀÉ ñandú Straße",
    "a,b.c!d?e; 3.14 -5 'tis $9 <=> `q`",
    "\t\ttabs\n \n  end  ",
)


def main() -> None:
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=560, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet)
    library.train_from_iterator([text for text in TEXTS for _ in range(3)], trainer)
    model = json.loads(library.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [" ".join(merge) for merge in model["merges"]]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for rule in RULES:
            path = write_vocabulary(Path(folder) / f"{rule}.gguf", rule, tokens, merges)
            opened = Llama(str(path), vocab_only=True, verbose=False)
            found[rule] = [opened.tokenize(text.encode(), add_bos=False, special=False) for text in TEXTS]
    data = {"texts": TEXTS, "tokens": tokens, "merges": merges, "rules": found}
    RECORDED.write_text(json.dumps(data, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
