"""Record PyTorch's gradients of the library's layers, as tests/references/gradients.json.

Run it from the project's root in an environment of its own (the project itself does not need torch):

    python -m venv /tmp/references && /tmp/references/bin/pip install numpy torch==2.13.0
    PYTHONPATH=.:tests /tmp/references/bin/python tools/record_gradients.py

Layers are PyTorch's own functions where it has them, in float64, on the numbers that the tests draw; the loss is the
sum of the result's elements, each times a weight that the tests know.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from recorded_gradients import LAYERS, RECORDED, Layer
from torch import Tensor


def turned(x: Tensor, ids: Tensor, share: int) -> Tensor:
    """Heads whose first columns, one of `share` of them, are halves of pairs that turn by their rows' positions."""
    size = x.shape[-1] // share
    frequencies = 10000.0 ** (-torch.arange(size // 2, dtype=torch.float64) / (size // 2))
    turns = torch.polar(torch.ones(1, dtype=torch.float64), ids[:, None] * frequencies)[:, None]
    pairs = torch.complex(*x[..., :size].chunk(2, -1)) * turns
    return torch.cat([pairs.real, pairs.imag, x[..., size:]], -1)


def attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    """bias: added to the scores of [heads rows positions]; what is ahead of a row stays hidden."""
    hidden = torch.full((q.shape[1], k.shape[1]), -torch.inf, dtype=torch.float64).triu(1)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    mask = hidden if bias is None else hidden + bias
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True).transpose(1, 2)


def back(rows: int) -> Tensor:
    """How far each position lies behind each row."""
    places = torch.arange(rows, dtype=torch.float64)
    return places[:, None] - places


def self_attention(qkv: Tensor) -> Tensor:
    parts = (part.reshape(2, 5, 3, 4) for part in qkv.chunk(3, -1))
    return attention(*parts).reshape(10, 12)


def mixture(x: Tensor, router: Tensor, gate: Tensor, up: Tensor, down: Tensor, normed: bool) -> Tensor:
    shares, chosen = F.linear(x, router).softmax(-1).topk(2)
    if normed:
        shares = shares / shares.sum(-1, keepdim=True)
    rows = []
    for row, experts, weights in zip(x, chosen, shares, strict=True):
        made = (F.linear(F.silu(F.linear(row, gate[e])) * F.linear(row, up[e]), down[e]) for e in experts)
        rows.append(sum(w * y for w, y in zip(weights, made, strict=True)))
    return torch.stack(rows)


def loss(x: Tensor, w: Tensor, b: Tensor, ids: Tensor) -> Tensor:
    targets = torch.where(ids < 2, -100, ids - 2)
    return F.cross_entropy(F.linear(x, w, b)[:, :10], targets, ignore_index=-100)


SLOPES = torch.exp(-torch.arange(4, dtype=torch.float64))[:, None, None]
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "rows": lambda table, ids: F.embedding(ids, table),
    "linear": F.linear,
    "layer-norm": lambda x, w, b: F.layer_norm(x, (9,), w, b, 1e-3),
    "rms-norm": lambda x, w: F.rms_norm(x, (9,), w, 1e-3),
    "head-norm": lambda x, w: F.rms_norm(x, (6,), w, 1e-3),
    "relu": F.relu,
    "sigmoid": F.sigmoid,
    "silu": F.silu,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "gelu-exact": F.gelu,
    "swiglu": lambda x, gate, up, down: F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down),
    "geglu": lambda x, gate, up, down: F.linear(F.gelu(F.linear(x, gate), approximate="tanh") * F.linear(x, up), down),
    "softmax": lambda x: x.softmax(-1),
    "log-sum-exp": lambda x: x.logsumexp(-1),
    "maximum": lambda x: x.amax(-1),
    "rotary": lambda x, ids: turned(x, ids, 1),
    "rotary of a part": lambda x, ids: turned(x, ids, 2),
    "attention": attention,
    "attention within a window": lambda q, k, v: attention(
        q, k, v, torch.zeros(5, 5, dtype=torch.float64).masked_fill(back(5) >= 3, -torch.inf)
    ),
    "attention with slopes": lambda q, k, v: attention(q, k, v, -SLOPES * back(5)),
    "self-attention": self_attention,
    "mixture": lambda **given: mixture(**given, normed=False),
    "mixture, normed": lambda **given: mixture(**given, normed=True),
    "cross-entropy": loss,
    "head-loss": loss,
}


def record(layer: Layer) -> dict[str, Any]:
    given = {n: torch.tensor(a) for n, a in layer.given().items()}
    given = {n: t.long() if n == "ids" else t.double().requires_grad_() for n, t in given.items()}
    names = list(layer.shapes)
    function = FUNCTIONS[layer.name]
    value = function(**given) if "mixture" in layer.name else function(*(given[name] for name in names))
    (value * torch.tensor(layer.weigh(tuple(value.shape)))).sum().backward()
    found = {"value": value.detach(), **{n: t.grad for n, t in given.items() if n != "ids"}}
    return {n: [list(t.shape), [float(f"{x:.7g}") for x in t.flatten().tolist()]] for n, t in found.items()}


def main() -> None:
    lines = [f"{json.dumps(layer.name)}:{json.dumps(record(layer), separators=(',', ':'))}" for layer in LAYERS]
    RECORDED.write_text("{" + ",\n".join(lines) + "}\n")
    print(f"wrote {RECORDED} ({RECORDED.stat().st_size} bytes)")


if __name__ == "__main__":
    main()
