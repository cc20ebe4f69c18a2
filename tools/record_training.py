"""Record what PyTorch makes of a small GPT-2: 50 steps of training, and a debug state as llm.c has.

Run it from the project's root in an environment of its own (the project itself does not need torch):

    python -m venv /tmp/references && /tmp/references/bin/pip install numpy torch==2.13.0
    PYTHONPATH=.:tests /tmp/references/bin/python tools/record_training.py

It writes tests/references/training.json (losses, gradient norms and learning rates, in F32 and with BF16 products) and
tests/references/gpt2_debug_state.bin (tokens, targets, logits, loss and gradients of the first batch; FORMAT below).
"""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from gpt2_curves import BATCH, LENGTH, RATES, SHAPE, STEPS, batch, write_weights

from lispgpt.runtime import checkpoints

REFERENCES = Path("tests/references")
MAGIC, VERSION, HEADER = 20240327, 2, 256
"""FORMAT: HEADER i32 (magic, version, batch, length), tokens and targets i32, logits f32 of the vocabulary alone, the
loss, and gradients f32 in the order of the model's file, with rows of zeros for the vocabulary's padding."""
ORDER = ("wte", "wpe", "ln1-w", "ln1-b", "qkv-w", "qkv-b", "proj-w", "proj-b", "ln2-w", "ln2-b")
ORDER += ("fc-w", "fc-b", "out-w", "out-b", "lnf-w", "lnf-b")


def read_parameters(path: Path) -> dict[str, list[torch.nn.Parameter]]:
    """Each tensor's layers (one for those that are not stacked), in float32."""
    checkpoint = checkpoints.open(path)
    found = {}
    for name in ORDER:
        array = np.empty(tuple(checkpoint.info(name).shape), np.float32)
        checkpoint.read_into(name, array, "f32")
        stacked = name[0] != "w" and not name.startswith("lnf")
        found[name] = [torch.nn.Parameter(torch.tensor(part)) for part in (array if stacked else array[None])]
    return found


def logits_of(p: dict[str, list[torch.nn.Parameter]], tokens: torch.Tensor) -> torch.Tensor:
    """GPT-2, of the vocabulary without its padding: [batch length vocab]."""
    n, t = tokens.shape
    size = SHAPE.width // SHAPE.heads
    x = F.embedding(tokens, p["wte"][0]) + p["wpe"][0][:t]
    for layer in range(SHAPE.layers):
        w = {name: parts[layer] for name, parts in p.items() if len(parts) == SHAPE.layers}
        h = F.layer_norm(x, (SHAPE.width,), w["ln1-w"], w["ln1-b"])
        parts = F.linear(h, w["qkv-w"], w["qkv-b"]).split(SHAPE.width, 2)
        q, k, v = (part.view(n, t, SHAPE.heads, size).transpose(1, 2) for part in parts)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, SHAPE.width)
        x = x + F.linear(a, w["proj-w"], w["proj-b"])
        h = F.layer_norm(x, (SHAPE.width,), w["ln2-w"], w["ln2-b"])
        h = F.gelu(F.linear(h, w["fc-w"], w["fc-b"]), approximate="tanh")
        x = x + F.linear(h, w["out-w"], w["out-b"])
    h = F.layer_norm(x, (SHAPE.width,), p["lnf-w"][0], p["lnf-b"][0])
    return F.linear(h, p["wte"][0][: SHAPE.vocab])


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def rate_of(step: int) -> float:
    if step < RATES["warmup"]:
        return RATES["lr"] * step / RATES["warmup"]
    done = (step - RATES["warmup"]) / (RATES["steps"] - RATES["warmup"])
    return RATES["min-lr"] + 0.5 * (1 + math.cos(math.pi * min(done, 1.0))) * (RATES["lr"] - RATES["min-lr"])


def curve(folder: Path, dtype: str) -> dict[str, list[float]]:
    p = read_parameters(write_weights(folder, dtype))
    everything = [part for parts in p.values() for part in parts]
    groups = [
        {"params": [part for part in everything if part.dim() > 1], "weight_decay": RATES["weight-decay"]},
        {"params": [part for part in everything if part.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, betas=(RATES["beta1"], RATES["beta2"]), eps=1e-8)
    found: dict[str, list[float]] = {"loss": [], "grad-norm": [], "lr": []}
    for step in range(1, STEPS + 1):
        tokens, targets = (torch.tensor(rows, dtype=torch.long) for rows in batch(step))
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            logits = logits_of(p, tokens)
        loss = loss_of(logits, targets)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(everything, RATES["clip"])
        for group in optimizer.param_groups:
            group["lr"] = rate_of(step)
        optimizer.step()
        for name, value in (("loss", loss.item()), ("grad-norm", norm.item()), ("lr", rate_of(step))):
            found[name].append(float(f"{value:.8g}"))
    return found


def write_debug_state(folder: Path, path: Path) -> None:
    p = read_parameters(write_weights(folder, "f32"))
    tokens, targets = batch(1)
    logits = logits_of(p, torch.tensor(tokens, dtype=torch.long))
    loss = loss_of(logits, torch.tensor(targets, dtype=torch.long))
    loss.backward()
    header = np.zeros(HEADER, np.int32)
    header[:4] = MAGIC, VERSION, BATCH, LENGTH
    parts = [header, tokens, targets, logits.detach().numpy(), np.float32([loss.item()])]
    parts += [np.stack([part.grad.numpy() for part in p[name]]) for name in ORDER]
    path.write_bytes(b"".join(np.ascontiguousarray(part).tobytes() for part in parts))


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        curves = {dtype: curve(Path(folder), dtype) for dtype in ("f32", "bf16")}
        write_debug_state(Path(folder), REFERENCES / "gpt2_debug_state.bin")
    made_by = {"torch": torch.__version__, "seed": "tests/gpt2_curves.py"}
    (REFERENCES / "training.json").write_text(json.dumps({"made-by": made_by, **curves}) + "\n")


if __name__ == "__main__":
    main()
