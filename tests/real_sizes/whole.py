"""Whole models of sizes that nobody has, on a device: logits and tokens beside float64.

    python tests/real_sizes/whole.py [--first SEED] [--count N] [--targets T…] [--minutes N] [--to FILE]

A seed draws all of it: the kind of model and its sizes, odd and prime ones among them, the type of its weights, "exact"
or "fast", how many sequences a step has, and the length of the prompt; models for chips that are here are wider.  What
a device says is compared by `lispgpt check`, on random weights; Llama's and GPT-2's float64, which the compiler makes
as well, with numpy's.  FILE has a line of JSON for each seed and target, and what is in it is not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import reference_gpt2
import reference_llama
from compiled_models import Weights, rounded_to_bf16
from gpu.chips import emulated_cuda_opener
from real_sizes.kernels import TooSlow, limited
from real_sizes.models import source_of

from lispgpt.base.dtypes import BLOCK_DTYPES, find_dtype
from lispgpt.base.errors import UserError
from lispgpt.checking.check import Checked, Found, check, compared, parts_of
from lispgpt.checking.words import told
from lispgpt.compiler.cache import Cache
from lispgpt.compiler.compiled import artifact_of
from lispgpt.compiler.folders import PROGRAMS
from lispgpt.compiler.present import running_target
from lispgpt.compiler.request import Request, prompt_size
from lispgpt.runtime.checkpoints.blocks import in_blocks_of, widened
from lispgpt.runtime.checkpoints.llama import LlamaShape
from lispgpt.runtime.decoding import DRAWN
from lispgpt.runtime.devices import cuda
from lispgpt.runtime.plan.artifact import Artifact

DEVICES = ("cpu", "emulated:gfx942", "emulated:gfx1151", "emulated:gfx1201", "emulated:sm_80", "emulated:sm_90a")
KINDS = ("llama", "gpt2", "qwen3", "mistral", "gemma2", "mixtral", "phi", "gpt_neox", "bloom", "olmo2", "starcoder2",
         "mamba", "mamba2", "rwkv")  # fmt: skip
COMMON = {"llama": 5, "gpt2": 3}
"""How much oftener than the others some kinds are drawn: those that numpy has in float64 as well."""
NVIDIA = "emulated:sm"
"""How devices begin that the tests alone emulate."""
OWN_HEADS = ("llama", "qwen3", "mistral", "gemma2")
"""Kinds whose heads are of any width, whatever the model's is."""
RECURRENT = ("mamba", "mamba2", "rwkv")
TURNED = {"phi": 4, "gpt_neox": 8, "gpt2": 1, "bloom": 1}
"""What divides a head's width, of which a part is turned: 2 where it is not said."""
STEPS = 3
NARROW, WIDE = 400, 3000
"""The largest width of a model."""
WITHIN = 1e-5
"""How far two float64 logits are apart that say the same, beside the largest: one has BF16's powers in F32's tables."""


@dataclass(frozen=True)
class Whole:
    """A model of a kind and config values, and how it is run: the length of its prompt, and sequences in a step."""

    seed: int
    kind: str
    settings: dict[str, Any]
    precision: str
    batch: int
    prompt: int

    def __str__(self) -> str:
        values = " ".join(f"{name}={value}" for name, value in self.settings.items())
        return f"seed {self.seed}: {self.kind} {values}, {self.precision}, {self.batch} of {self.prompt}"

    @property
    def program(self) -> Path:
        return PROGRAMS / "gpt2_generate.lisp" if self.kind == "gpt2" else source_of(self.kind)


def drawn(seed: int, wide: bool = False) -> Whole:
    """The model of a seed.  wide: as an emulator has no time for."""
    random = Random(seed)
    kind = random.choices(KINDS, [COMMON.get(kind, 1) for kind in KINDS])[0]
    floats = random.random() < 0.5 or kind in RECURRENT
    weights = random.choice(("bf16", "bf16", "f32") if floats else BLOCK_DTYPES)
    batch = random.choice((1, 1, random.randint(2, 9)))
    prompt = random.randint(1, 70) if batch == 1 else random.randint(1, 5)
    settings: dict[str, Any] = {"layers": 2}
    settings["vocab"] = random.choice((random.randint(50, 400), random.randint(400, 3000)))
    settings |= _widths(kind, find_dtype(weights).block, WIDE if wide else NARROW, random)
    settings |= {"context": prompt + STEPS + random.randint(0, 40), "weight-type": weights}
    if kind in ("llama", "qwen3", "mistral") and random.random() < 0.5:
        settings["tied-head"] = True
    return Whole(seed, kind, settings, random.choice(("exact", "fast")), batch, prompt)


def _widths(kind: str, block: int, most: int, random: Random) -> dict[str, int]:
    """Of a model and its parts, up to `most`, whose rows whole blocks divide."""
    most = max(block, most)

    def any_of(least: int, most: int) -> int:
        return block * random.randint(-(-least // block), max(-(-least // block), most // block))

    if kind == "mamba":
        width = any_of(7, most)
        return {"width": width, "states": random.randint(1, 20), "taps": random.randint(2, 5)}
    if kind == "rwkv":
        return {"width": any_of(7, most), "hidden": any_of(7, 2 * most)}
    while True:
        step, kv_heads, group = TURNED.get(kind, 2), random.randint(1, 5), random.randint(1, 6)
        head_width = step * random.randint(1, 130 // step)
        heads = kv_heads * (group if kind not in ("gpt2", "bloom", "phi", "gpt_neox") else 1)
        inner = heads * head_width
        if inner <= max(most, 2 * block) and inner % block == 0:
            break
    if kind == "mamba2":
        groups = random.choice([n for n in range(1, heads + 1) if heads % n == 0])
        return {"width": any_of(7, most), "heads": heads, "head-width": head_width, "groups": groups,
                "states": random.randint(1, 20)}  # fmt: skip
    found = {"width": any_of(7, most) if kind in OWN_HEADS else inner, "heads": heads}
    if kind in OWN_HEADS:
        found["head-width"] = head_width
    if kind not in ("gpt2", "bloom", "phi", "gpt_neox"):
        found["kv-heads"] = kv_heads
    if kind not in ("gpt2", "bloom"):
        found["hidden"] = any_of(7, 2 * most)
    if kind == "mixtral":
        experts = random.randint(1, 7)
        found |= {"experts": experts, "top": random.randint(1, experts)}
    if kind in ("mistral", "gemma2"):
        found["window"] = random.randint(1, 60)
    return found


def run(whole: Whole, device: str, folder: Path) -> str:
    """What is wrong with a model on a device; "" where nothing is."""
    target = target_of(device)
    made = Request(whole.program, target, whole.settings, batch=whole.batch, precision=whole.precision, unsized=True,
                   unneeded=(DRAWN,), longest=prompt_size(whole.prompt))  # fmt: skip
    rng = np.random.default_rng(whole.seed)
    cache = Cache(folder)
    weights = weights_of(artifact_of(Request(whole.program, "cpu", whole.settings), cache=cache), rng)
    device = target if device.startswith(NVIDIA) else device
    checked = Checked(made, weights, device, 1, cache)  # type: ignore[arg-type]
    prompt = rng.integers(0, whole.settings["vocab"], whole.prompt).tolist()
    found = on_cpu(checked, prompt) if target == "cpu" else check(checked, prompt, STEPS, False, "", lambda _: None)
    if not found.right or not isfinite(found.worst):
        return told(found, len(prompt), device, whole.program, f"whole.py --first {whole.seed} --targets {device}")
    return beside_numpy(whole, checked, weights, found.tokens)


def target_of(device: str) -> str:
    """What code is made for."""
    if device.startswith(NVIDIA):
        return f"cuda:{device.partition(':')[2]}"
    return running_target(device)


def weights_of(artifact: Artifact, rng: np.random.Generator) -> Weights:
    """Such that products are about as large as what is multiplied; vectors, which multiply norms, are around 1."""
    bf16 = frozenset(name for name, facts in artifact.weights.items() if facts["dtype"] == "bf16")
    values = {}
    for name, facts in artifact.weights.items():
        shape = facts["shape"]
        vector = len(shape) == 1 or (len(shape) == 2 and shape[0] == 2)
        scale = 0.3 if vector else 1.6 / shape[-1] ** 0.5
        values[name] = rng.normal(float(vector and name.endswith("-w")), scale, shape).astype(np.float32)
    return Weights({n: rounded_to_bf16(v) if n in bf16 else v for n, v in values.items()}, bf16)


def on_cpu(checked: Checked, prompt: list[int]) -> Found:
    """The same of the CPU's own plans for prompts and for several sequences, beside float64."""
    with checked.on_cpu() as cpu:
        written = cpu.generate(prompt, greedy=True, max_new_tokens=STEPS)
        for _ in written:
            continue
        text = prompt + written.tokens
        wanted = checked.reference(text, cpu)
    found = Found(text, cpu=wanted.of_cpu(), unknown=wanted.unknown)
    with checked.model() as model:
        for part in parts_of(model.session, model, text, len(prompt), checked.request.batch):
            model.session.start(part.entry, part.inputs)
            found.parted = found.parted or compared(model.session, part, wanted, found)
    return found


def beside_numpy(whole: Whole, checked: Checked, weights: Weights, text: Sequence[int]) -> str:
    """What is wrong with the float64 that the compiler makes, where numpy has the model too."""
    if whole.kind not in ("llama", "gpt2"):
        return ""
    with checked.on_cpu() as cpu:
        exact = checked.reference(text, cpu).exact
        declared, config = cpu.artifact.weights, cpu.artifact.config
    if exact is None:
        return ""
    held = {name: _held(weights.values[name], facts["dtype"]) for name, facts in declared.items()}
    if whole.kind == "gpt2":
        right = reference_gpt2.logits(held, config["heads"], list(text), config["vocab"], config["epsilon"])
    else:
        shape = LlamaShape(config["vocab"], config["context"], 2, config["heads"], config["kv-heads"], config["width"],
                           config["hidden"], config["head-width"], epsilon=config["epsilon"],
                           tied_head=bool(config["tied-head"]))  # fmt: skip
        right = reference_llama.logits(held, shape, list(text))
    off = np.abs(exact[:, : right.shape[1]] - right).max() / np.abs(right).max()
    return "" if off <= WITHIN else f"float64 is {off:.1e} of the largest off numpy's"


def _held(values: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers as a type of weights has them, in float64."""
    if dtype in BLOCK_DTYPES:
        return widened(in_blocks_of(values, dtype), dtype).astype(np.float64).reshape(values.shape)
    return values.astype(np.float64)


def outcome(whole: Whole, device: str, seconds: float) -> tuple[str, str]:
    """(how it went, what is to be said of it)."""
    try:
        opener = emulated_cuda_opener if device.startswith(NVIDIA) else cuda.open_device
        with tempfile.TemporaryDirectory() as folder, patch.object(cuda, "open_device", opener), limited(seconds):
            wrong = run(whole, device, Path(folder))
    except TooSlow:
        return "too slow", f"more than {seconds} s"
    except UserError as error:
        return "refused", error.message
    except Exception as error:  # the tool goes on with others
        return "failed", "".join(traceback.format_exception(error))[-1500:]
    return ("wrong", wrong) if wrong else ("right", "")


def main() -> int:
    options = _options()
    done = [json.loads(line) for line in options.to.read_text().splitlines()] if options.to.exists() else []
    known, end = {(each["seed"], each["target"]) for each in done}, time.monotonic() + 60 * options.minutes
    tell: Callable[[str], None] = lambda text: print(text, flush=True)  # noqa: E731
    with options.to.open("a") as file:
        for seed in range(options.first, options.first + options.count):
            device = options.targets[seed % len(options.targets)]
            if (seed, device) in known or time.monotonic() > end:
                continue
            whole = drawn(seed, not device.startswith("emulated"))
            start = time.process_time()
            how, said = outcome(whole, device, options.seconds)
            took = round(time.process_time() - start, 1)
            line = {"seed": whole.seed, "target": device, "model": str(whole), "how": how, "said": said, "took": took}
            done.append(line)
            print(json.dumps(line), file=file, flush=True)
            if how != "right":
                tell(f"{device}: {whole}: {how}: {said}")
    counts = Counter((each["target"], each["how"]) for each in done)
    for (device, how), count in sorted(counts.items()):
        tell(f"{device}: {count} {how}")
    return any(each["how"] not in ("right", "too slow") for each in done)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1, help="seed")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--targets", nargs="*", default=list(DEVICES), help="in turn")
    parser.add_argument("--seconds", type=float, default=600, help="that a model may take")
    parser.add_argument("--minutes", type=float, default=1e6, help="after which no model is begun")
    parser.add_argument("--to", type=Path, default=Path("whole_models.jsonl"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
