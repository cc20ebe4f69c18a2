"""All of it from Python, with a GPT-2's checkpoint or folder: python examples/python_api.py small.bin"""

import sys
from pathlib import Path

import lispgpt

HERE = Path(__file__).resolve().parent
if len(sys.argv) != 2:
    sys.exit(__doc__)
PROGRAM, TRAINED, TEXTS = HERE / "gpt2_generate.lisp", HERE / "gpt2_train.lisp", [HERE / "texts"]

with lispgpt.load(PROGRAM, sys.argv[1], target="cpu", context=64) as model:
    for piece in model.generate("Once", max_new_tokens=12, temperature=0.9, min_p=0.05, repeat_penalty=1.2, seed=1):
        print(piece, end="", flush=True)
    prompts = ["Once upon a time", "Good morning", "A"]
    for text in model.generate_batch(prompts, batch=2, greedy=True, max_new_tokens=8, logprobs=True, stop="\n\n"):
        print(f"\n{len(text.prompt)} tokens, then {text.text!r}, which is worth {sum(text.logprobs):.2f}: {text.ended}")
    drafted = model.generate("one two one two one two", greedy=True, lookup=7, max_new_tokens=20)
    print("".join(drafted), drafted.tokens)
    tokens = model.prompt("Once upon")
    print(model.logits(tokens).shape, model.logits("Once upon")[-1].argmax())
    print(model.run("logits", tokens=[tokens], positions=[range(len(tokens))])["logits"].shape)

artifact = lispgpt.compile(PROGRAM, checkpoint=sys.argv[1], target="cuda:sm_90a", batch=4, context=64)
artifact.save("small.lgpt")
sizes = {"layers": 1, "heads": 2, "width": 32, "context": 32, "weight-type": "f32"}
print(
    lispgpt.train(TRAINED, run="runs/python", data=TEXTS, vocab_size=300, settings=sizes, steps=4, batch=2, length=32)
)
for scores in (lispgpt.evaluate(TRAINED, "runs/python", TEXTS), lispgpt.evaluate(PROGRAM, "runs/python", TEXTS)):
    print(f"perplexity {scores.perplexity:.1f}, {scores.accuracy:.1%} of {scores.targets} tokens")
