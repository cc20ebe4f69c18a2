"""PyTorch's side of tools/bench_research.py: the losses of examples/research, read from standard input and answered.

A line is JSON: {"open": name, "arrays": file.npz, "dtype": "float64"} gives the loss and what `said` says of its
gradients, or what a program that does not learn gives; {"steps": count} takes so many steps of AdamW (or Muon and
Lion), or runs of what does not learn, and gives their seconds.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

W = dict[str, Tensor]


def heads_of(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def attended(q: Tensor, k: Tensor, v: Tensor, heads: int, **more: Any) -> Tensor:
    parts = (heads_of(x, heads) for x in (q, k, v))
    return F.scaled_dot_product_attention(*parts, **more).transpose(1, 2).flatten(2)


def bert(w: W, i: W, sizes: dict[str, int]) -> Tensor:
    seen = i["mask"].bool()[:, None, None]
    x = w["table"][i["tokens"]] + w["places"][: i["tokens"].shape[1]]
    for n in range(sizes["layers"]):
        qkv = F.linear(x, w["qkv-w"][n], w["qkv-b"][n]).chunk(3, -1)
        y = F.linear(attended(*qkv, sizes["heads"], attn_mask=seen), w["out-w"][n], w["out-b"][n])
        x = F.layer_norm(x + y, x.shape[-1:], w["norm1-w"][n], w["norm1-b"][n])
        h = F.linear(F.gelu(F.linear(x, w["up-w"][n], w["up-b"][n])), w["down-w"][n], w["down-b"][n])
        x = F.layer_norm(x + h, x.shape[-1:], w["norm2-w"][n], w["norm2-b"][n])
    scores = F.linear(x, w["table"], w["bias"])
    return F.cross_entropy(scores.flatten(0, 1), i["targets"].flatten(), ignore_index=-1)


def vit(w: W, i: W, sizes: dict[str, int]) -> Tensor:
    n, across, s = len(i["images"]), sizes["size"] // sizes["square"], sizes["square"]
    parts = i["images"].reshape(n, across, s, across, s, 3).permute(0, 1, 3, 2, 4, 5).reshape(n, across**2, -1)
    x = torch.cat([w["class-row"].expand(n, 1, -1), F.linear(parts, w["square-w"])], 1) + w["places"]
    for depth in range(sizes["layers"]):
        qkv = F.linear(
            F.layer_norm(x, x.shape[-1:], w["norm1-w"][depth], w["norm1-b"][depth]), w["qkv-w"][depth]
        ).chunk(3, -1)
        x = x + F.linear(attended(*qkv, sizes["heads"]), w["out-w"][depth])
        h = F.linear(
            F.layer_norm(x, x.shape[-1:], w["norm2-w"][depth], w["norm2-b"][depth]), w["up-w"][depth], w["up-b"][depth]
        )
        x = x + F.linear(F.gelu(h, approximate="tanh"), w["down-w"][depth], w["down-b"][depth])
    firsts = F.layer_norm(x[:, 0], x.shape[-1:], w["norm-w"], w["norm-b"])
    return F.cross_entropy(F.linear(firsts, w["head-w"]), i["labels"])


def resnet(w: W, i: W, sizes: dict[str, int]) -> Tensor:
    def normed(x: Tensor, name: str, depth: int | None = None) -> Tensor:
        c, n, b = (w[f"{name}-{k}"] if depth is None else w[f"{name}-{k}"][depth] for k in "wnb")
        return F.batch_norm(F.conv2d(x, c, padding=1), None, None, n, b, True, 0.1, 1e-5)

    x = F.relu(normed(i["images"].permute(0, 3, 1, 2), "first"))
    for depth in range(sizes["blocks"]):
        x = F.relu(x + normed(F.relu(normed(x, "one", depth)), "two", depth))
    return F.cross_entropy(F.linear(x.mean((2, 3)), w["head-w"], w["head-b"]), i["labels"])


def unet(w: W, i: W, sizes: dict[str, int]) -> Tensor:
    def active(x: Tensor, n: Tensor, b: Tensor) -> Tensor:
        return F.silu(F.group_norm(x, sizes["groups"], n, b, 1e-5))

    t = i["t"]
    images, noise = (i[name].permute(0, 3, 1, 2) for name in ("images", "noise"))
    x = t.cos()[:, None, None, None] * images + t.sin()[:, None, None, None] * noise
    waves = (t[:, None] * torch.arange(1, 17, dtype=t.dtype)).sin()
    told = F.silu(F.linear(waves, w["time-w"], w["time-b"]))
    first = F.conv2d(x, w["in-w"], padding=1)
    small = F.conv2d(active(first, w["down-n"], w["down-b"]), w["down-w"], padding=1, stride=2) + told[:, :, None, None]
    mid = small + F.conv2d(active(small, w["mid-n"], w["mid-b"]), w["mid-w"], padding=1)
    both = torch.cat([F.interpolate(mid, scale_factor=2, mode="nearest"), first], 1)
    y = F.conv2d(F.conv2d(active(both, w["up-n"], w["up-b"]), w["up-w"], padding=1), w["out-w"], padding=1)
    return F.mse_loss(y, noise)


def lstm(w: W, i: W, sizes: dict[str, int]) -> Tensor:
    n, width = i["x"].shape[1], sizes["width"]
    zeros = torch.zeros(1, n, width, dtype=i["x"].dtype)
    weights = [w["x-w"], w["h-w"], w["b"], torch.zeros_like(w["b"])]
    _, h, _ = torch._VF.lstm(i["x"], (zeros, zeros), weights, True, 1, 0.0, True, False, False)
    return F.cross_entropy(F.linear(h[0], w["head-w"]), i["labels"])


def translate(w: W, i: W, sizes: dict[str, int]) -> Tensor:
    heads, seen = sizes["heads"], i["mask"].bool()[:, None, None]

    def normed(x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], w[name], 1e-6)

    x = w["table"][i["source"]]
    length = x.shape[1]
    bias = torch.where(seen, w["distance"][:, :length, :length][None], torch.tensor(-1e30, dtype=x.dtype))
    qkv = F.linear(normed(x, "read-n"), w["read-w"]).chunk(3, -1)
    known = x + F.linear(attended(*qkv, heads, attn_mask=bias, scale=1.0), w["read-out"])
    x = w["table"][i["tokens"]]
    qkv = F.linear(normed(x, "write-n"), w["write-w"]).chunk(3, -1)
    x = x + F.linear(attended(*qkv, heads, is_causal=True), w["write-out"])
    k, v = F.linear(known, w["look-kv"]).chunk(2, -1)
    q = F.linear(normed(x, "look-n"), w["look-q"])
    x = x + F.linear(attended(q, k, v, heads, attn_mask=seen), w["look-out"])
    scores = F.linear(normed(x, "end-n"), w["table"])
    return F.cross_entropy(scores.flatten(0, 1), i["targets"].flatten())


def preference(w: W, i: W, sizes: dict[str, int]) -> Tensor:
    def chance(tokens: Tensor, adapted: bool) -> Tensor:
        x = w["table"][tokens]
        qkv = F.linear(x, w["qkv-w"])
        qkv = qkv + F.linear(F.linear(x, w["lora-a"]), w["lora-b"]) if adapted else qkv
        x = x + F.linear(attended(*qkv.chunk(3, -1), sizes["heads"], is_causal=True), w["out-w"])
        logs = F.linear(x, w["table"]).log_softmax(-1)
        return logs[:, :-1].gather(-1, tokens[:, 1:, None])[..., 0].sum(-1)

    def gain(tokens: Tensor) -> Tensor:
        with torch.no_grad():
            before = chance(tokens, False)
        return chance(tokens, True) - before

    return -F.logsigmoid(0.1 * (gain(i["chosen"]) - gain(i["rejected"]))).mean()


def ppo(w: W, i: W, sizes: dict[str, int]) -> Tensor:
    h = F.linear(F.linear(i["seen"], w["in-w"], w["in-b"]).tanh(), w["mid-w"], w["mid-b"]).tanh()
    logs = F.linear(h, w["policy-w"]).log_softmax(-1)
    value = F.linear(h, w["value-w"])[:, 0]
    ratio = (logs.gather(1, i["action"][:, None])[:, 0] - i["before"]).exp()
    gain = torch.minimum(ratio * i["advantage"], ratio.clamp(0.8, 1.2) * i["advantage"]).mean()
    spread = -(logs.exp() * logs).sum(-1).mean()
    return 0.5 * F.mse_loss(value, i["returns"]) - gain - 0.01 * spread


def rwkv7(w: W, i: W, sizes: dict[str, int]) -> Tensor:
    length, n, _ = i["x"].shape
    told = F.linear(i["x"], w["x-w"], w["x-b"]).unflatten(-1, (6, sizes["heads"], -1))
    r, k, v, decay, share, key = told.unbind(2)
    decay, share = (-math.exp(-0.5) * decay.sigmoid()).exp(), share.sigmoid()
    key = key * (key.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
    state, said = told.new_zeros(n, sizes["heads"], r.shape[-1], r.shape[-1]), []
    for t in range(length):
        gone = (state @ key[t][..., None]) * (share[t] * key[t])[..., None, :]
        state = state * decay[t][..., None, :] - gone + v[t][..., None] * k[t][..., None, :]
        said.append((state @ r[t][..., None])[..., 0].flatten(1))
    mean = torch.stack(said).mean(0)
    return F.cross_entropy(
        F.linear(F.layer_norm(mean, mean.shape[-1:], w["norm-w"], w["norm-b"]), w["head-w"]), i["labels"]
    )


def solver(w: W, i: W, sizes: dict[str, int]) -> Tensor:
    def slope(y: Tensor) -> Tensor:
        return F.linear(F.linear(y, w["up-w"], w["up-b"]).tanh(), w["down-w"], w["down-b"]) - 0.1 * y

    y, dt = i["x"], 1.5 / sizes["steps"]
    for _ in range(sizes["steps"]):
        one = slope(y)
        two = slope(y + 0.5 * dt * one)
        three = slope(y + 0.5 * dt * two)
        y = y + dt / 6 * (one + slope(y + dt * three) + 2 * (two + three))
    return F.mse_loss(y, i["wanted"])


def mixture(w: W, i: W, sizes: dict[str, int]) -> Tensor:
    experts, capacity, x = sizes["experts"], sizes["capacity"], i["x"]
    likely = F.linear(x, w["router"]).softmax(-1)
    chosen = F.one_hot(likely.argmax(-1), experts).to(x.dtype)
    place = (chosen * (chosen.cumsum(0) - 1)).sum(-1).long()
    taken = chosen * (place < capacity)[:, None]
    slots = taken[:, :, None] * F.one_hot(place.clamp(max=capacity - 1), capacity).to(x.dtype)[:, None]
    given = torch.einsum("iec,id->ecd", slots, x)
    made = torch.einsum("ech,edh->ecd", torch.einsum("ecd,ehd->ech", given, w["up-w"]).relu(), w["down-w"])
    out = torch.einsum("iec,ecd->id", slots, made) * likely.max(-1, keepdim=True).values
    spreads = experts * (chosen.mean(0) * likely.mean(0)).sum()
    return F.cross_entropy(F.linear(x + out, w["head-w"]), i["labels"]) + 0.01 * spreads


def gru(w: W, i: W, sizes: dict[str, int]) -> Tensor:
    zeros = torch.zeros(1, i["x"].shape[1], sizes["width"], dtype=i["x"].dtype)
    weights = [w[name] for name in ("x-w", "h-w", "x-b", "h-b")]
    _, h = torch._VF.gru(i["x"], zeros, weights, True, 1, 0.0, True, False, False)
    return F.cross_entropy(F.linear(h[0], w["head-w"]), i["labels"])


def ssd(w: W, i: W, sizes: dict[str, int]) -> Tensor:
    """In chunks, as Listing 1 of "Transformers are SSMs" has it."""
    (n, length, _), heads, chunk = i["x"].shape, sizes["heads"], sizes["chunk"]
    told = F.linear(i["x"], w["in-w"], w["in-b"])
    u, said, asked, time = told.split([sizes["width"], sizes["states"], sizes["states"], heads], -1)
    time = F.softplus(time)
    kept = (-time * w["rates"].exp()).view(n, -1, chunk, heads).permute(0, 3, 1, 2)
    u = (u.unflatten(-1, (heads, -1)) * time[..., None]).view(n, length // chunk, chunk, heads, -1)
    said, asked = (x.view(n, length // chunk, chunk, -1) for x in (said, asked))
    so_far = kept.cumsum(-1)
    below = torch.ones(chunk, chunk, dtype=torch.bool).tril()
    between = (so_far[..., :, None] - so_far[..., None, :]).masked_fill(~below, -torch.inf).exp()
    near = torch.einsum("bcls,bcks,bhclk,bckhp->bclhp", asked, said, between, u)
    made = torch.einsum("bcks,bhck,bckhp->cbhps", said, (so_far[..., -1:] - so_far).exp(), u)
    state, before, shares = torch.zeros_like(made[0]), [], so_far[..., -1].exp()
    for number, new in enumerate(made):
        before.append(state)
        state = state * shares[:, :, number, None, None] + new
    far = torch.einsum("bcls,bchps,bhcl->bclhp", asked, torch.stack(before, 1), so_far.exp())
    means = (near + far).reshape(n, length, -1).mean(1)
    means = F.layer_norm(means, means.shape[-1:], w["norm-w"], w["norm-b"])
    return F.cross_entropy(F.linear(means, w["head-w"]), i["labels"])


@cache
def of_transformers(name: str, sizes: tuple[tuple[str, int], ...], dtype: torch.dtype) -> torch.nn.Module:
    """transformers' model without weights of its own."""
    import transformers

    of = dict(sizes)
    if name == "t5":
        config = transformers.T5Config(
            vocab_size=of["vocab"], d_model=of["width"], d_kv=of["width"] // of["heads"], d_ff=of["hidden"],
            num_layers=of["layers"], num_heads=of["heads"], relative_attention_num_buckets=of["classes"],
            relative_attention_max_distance=of["farthest"], dropout_rate=0.0,
        )  # fmt: skip
        model = transformers.T5ForConditionalGeneration(config)
    else:
        depth, heads, hidden = of["layers"], of["heads"], 4 * of["width"]
        config = transformers.WhisperConfig(
            vocab_size=of["vocab"], num_mel_bins=of["mels"], d_model=of["width"], encoder_layers=depth,
            decoder_layers=depth, encoder_attention_heads=heads, decoder_attention_heads=heads, encoder_ffn_dim=hidden,
            decoder_ffn_dim=hidden, max_source_positions=of["frames"] // 2, max_target_positions=of["context"],
            pad_token_id=0, bos_token_id=0, eos_token_id=0, decoder_start_token_id=0, dropout=0.0,
        )  # fmt: skip
        model = transformers.WhisperForConditionalGeneration(config)
    return model.eval().to(dtype)


def called(name: str, weights: W, sizes: dict[str, int], **given: Tensor) -> Tensor:
    """The logits of transformers' model with these weights."""
    model = of_transformers(name, tuple(sizes.items()), next(iter(weights.values())).dtype)
    held = {key for key, _ in model.named_parameters()}
    assert held == set(weights), held ^ set(weights)
    return torch.func.functional_call(model, weights, kwargs=given | {"use_cache": False}).logits


def t5(w: W, i: W, sizes: dict[str, int]) -> Tensor:
    made = {"shared.weight": w["table"]}
    for side, of in (("encoder", "read"), ("decoder", "write")):
        layers, last = f"{side}.block.", 1 + (of == "write")
        made[f"{side}.final_layer_norm.weight"] = w[f"{of}-end"]
        made[f"{layers}0.layer.0.SelfAttention.relative_attention_bias.weight"] = w[f"{of}-near"]
        for n in range(sizes["layers"]):
            parts = [(0, "SelfAttention", w[f"{of}-qkv"][n].chunk(3), w[f"{of}-out"][n])]
            if last == 2:
                parts += [(1, "EncDecAttention", (w["look-q"][n], *w["look-kv"][n].chunk(2)), w["look-out"][n])]
            for number, kind, qkv, out in parts:
                for key, value in zip("qkvo", (*qkv, out), strict=True):
                    made[f"{layers}{n}.layer.{number}.{kind}.{key}.weight"] = value
            for key, part in (("wi", "up"), ("wo", "down")):
                made[f"{layers}{n}.layer.{last}.DenseReluDense.{key}.weight"] = w[f"{of}-{part}"][n]
            for number, norm in enumerate([f"{of}-n", *["look-n"] * (last == 2), f"{of}-m"]):
                made[f"{layers}{n}.layer.{number}.layer_norm.weight"] = w[norm][n]
    given = {"input_ids": i["source"], "attention_mask": i["mask"], "decoder_input_ids": i["tokens"]}
    return F.cross_entropy(called("t5", made, sizes, **given).flatten(0, 1), i["targets"].flatten())


def whisper(w: W, i: W, sizes: dict[str, int]) -> Tensor:
    made = {"model.decoder.embed_tokens.weight": w["table"], "model.decoder.embed_positions.weight": w["places"]}
    made["model.encoder.embed_positions.weight"] = w["moments"]
    for key, name in (("conv1", "one"), ("conv2", "two")):
        made |= {f"model.encoder.{key}.{kind}": w[f"{name}-{kind[0]}"] for kind in ("weight", "bias")}
    for side, of in (("encoder", "read"), ("decoder", "write")):
        names = {f"{side}.layer_norm": (f"{of}-e", f"{of}-f")}
        for n in range(sizes["layers"]):
            layer = f"{side}.layers.{n}."
            pairs = {"self_attn_layer_norm": "nm", "final_layer_norm": "gh"}
            names |= {f"{layer}{key}": tuple(f"{of}-{x}" for x in two) for key, two in pairs.items()}
            names |= {f"{layer}fc1": (f"{of}-up", f"{of}-u"), f"{layer}fc2": (f"{of}-down", f"{of}-d")}
            names[f"{layer}self_attn.out_proj"] = (f"{of}-out", f"{of}-o")
            q, k, v = w[f"{of}-qkv"][n].chunk(3)
            own = f"model.{layer}self_attn."
            made |= {f"{own}q_proj.weight": q, f"{own}k_proj.weight": k, f"{own}v_proj.weight": v}
            made |= {f"{own}q_proj.bias": w[f"{of}-q"][n], f"{own}v_proj.bias": w[f"{of}-v"][n]}
            if of == "write":
                names[f"{layer}encoder_attn_layer_norm"] = ("look-n", "look-m")
                names |= {f"{layer}encoder_attn.q_proj": ("look-to", "look-q")}
                names |= {f"{layer}encoder_attn.out_proj": ("look-out", "look-o")}
                k, v = w["look-kv"][n].chunk(2)
                own = f"model.{layer}encoder_attn."
                made |= {f"{own}k_proj.weight": k, f"{own}v_proj.weight": v, f"{own}v_proj.bias": w["look-v"][n]}
        for key, two in names.items():
            depth = int(key.split(".")[2]) if ".layers." in key else None
            for kind, name in zip(("weight", "bias"), two, strict=True):
                made[f"model.{key}.{kind}"] = w[name] if depth is None else w[name][depth]
    given = {"input_features": i["sound"].transpose(1, 2), "decoder_input_ids": i["tokens"]}
    return F.cross_entropy(called("whisper", made, sizes, **given).flatten(0, 1), i["targets"].flatten())


def fused(w: W, i: W, sizes: dict[str, int]) -> Tensor:
    return F.cross_entropy(F.linear(i["x"], w["head-w"]), i["labels"])


def muon(w: W, i: W, sizes: dict[str, int]) -> Tensor:
    x = w["table"][i["words"]]
    x = x + F.linear(F.gelu(F.linear(x, w["one-w"]), approximate="tanh"), w["two-w"])
    return F.cross_entropy(F.linear(x, w["head-w"]), i["labels"])


def beam(w: W, i: W, sizes: dict[str, int]) -> list[Tensor]:
    beams, vocab, end = sizes["beams"], sizes["vocab"], sizes["end"]
    n = len(i["first-word"])
    texts = i["first-word"][:, None, None].expand(n, beams, sizes["steps"] + 1).clone()
    chances = torch.where(torch.arange(beams) == 0, 0.0, -1e9).to(w["table"].dtype).expand(n, beams)
    h = w["table"].new_zeros(n, beams, sizes["width"])
    over = torch.full((vocab,), -1e9, dtype=h.dtype)
    over[end] = 0.0
    for k in range(sizes["steps"]):
        last = texts[:, :, k]
        h = (w["table"][last] + F.linear(h, w["h-w"])).tanh()
        logs = F.linear(h, w["head-w"]).log_softmax(-1)
        if k:
            logs = torch.where((last == end)[..., None], over, logs)
        chances, best = (chances[..., None] + logs).flatten(1).topk(beams)
        source = best // vocab
        texts = texts.gather(1, source[..., None].expand_as(texts))
        texts[:, :, k + 1] = best % vocab
        h = h.gather(1, source[..., None].expand_as(h))
    return [texts, chances]


def guidance(w: W, i: W, sizes: dict[str, int]) -> list[Tensor]:
    steps, x = sizes["steps"], i["noise"]
    both = torch.cat([i["class"], torch.full_like(i["class"], sizes["classes"])])
    counts = torch.arange(1, 9, dtype=x.dtype)
    for step in range(steps):
        t, after = (torch.tensor(1.5 / steps * (steps - k), dtype=x.dtype) for k in (step, step + 1))
        h = F.linear(torch.cat([x, x]), w["in-w"]) + F.linear((t * counts).sin(), w["time-w"]) + w["class-w"][both]
        asked, none = F.linear(F.silu(F.linear(F.silu(h), w["mid-w"], w["mid-b"])), w["out-w"]).chunk(2)
        said = asked + 1.5 * (asked - none)
        x = after.cos() * (x - t.sin() * said) / t.cos() + after.sin() * said
    return [x]


def sequences(w: W, i: W, sizes: dict[str, int]) -> list[Tensor]:
    x, ids, classes = i["x"], i["ids"], sizes["classes"]
    n, m = x.shape
    p, half, flat = x.square() + 0.5, m // 2, ids.flatten()
    powers = p.pow(1.5) + p.log2() + p.log1p() + p.log() + x.sin().expm1() + x.cos().exp()
    elements = x.floor() + x.ceil() + x.round() + powers + p.sqrt() + p.rsqrt() + x.tanh() + x.erf()
    elements = elements + torch.where(x > 0.5, x.clamp(max=2.0), x.abs().clamp(min=0.1))
    left, right = x.split([half, m - half], 1)
    put = x.clone()
    put[:, m - half :] = left
    along = x.cumsum(1) + (1 + 0.01 * x).cumprod(1) + x.sort(dim=-1, stable=True).values + x.flip(1) + x.roll(2, 1)
    along = along + torch.cat([right, left], 1) + F.pad(x[:, 1:], (1, 0), value=0.25)
    along = along + torch.stack([x, x.T.contiguous().T]).mean(0) + put + x.index_select(1, ids[0])
    along = along + x.log_softmax(-1) + x.softmax(-1)
    measured = x.mean(1) + x.var(1, correction=0) + x.amax(1) + x.amin(1) + x.sum(1) + (1 + 0.01 * x).prod(1)
    whole = ids // 3 + ids % 3 + ids * ids + (ids & 3) + (ids | 1) + (ids ^ 3) + (ids << 1) + (ids >> 1)
    whole = whole + torch.where(ids >= 3, ids.clamp(max=5), ids.clamp(min=1))
    best, places = x.topk(sizes["kept"])
    added = torch.ones(classes, dtype=x.dtype).index_add(0, flat, x.flatten())
    sums = torch.zeros(classes, dtype=x.dtype).index_add(0, flat, x.flatten())
    counts, hot = torch.bincount(flat, minlength=classes), F.one_hot(ids[0], classes).sum(0)
    products, picked = torch.outer(x[:, 0], x[0]), x[torch.arange(n), ids[:, 0]]
    order, first = x.argsort(dim=-1, stable=True), x.argmax(-1)
    return [elements, along, measured, whole, order, best, places, first, counts, sums, added, hot, products, picked]


RESULTS: dict[str, Callable[[W, W, dict[str, int]], list[Tensor]]] = {
    each.__name__: each for each in (beam, guidance, sequences)
}

LOSSES: dict[str, Callable[[W, W, dict[str, int]], Tensor]] = {
    each.__name__: each
    for each in (
        bert,
        vit,
        resnet,
        unet,
        lstm,
        gru,
        translate,
        t5,
        whisper,
        preference,
        muon,
        ppo,
        rwkv7,
        ssd,
        solver,
        mixture,
        fused,
    )
}


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, over all weights at once."""

    def __init__(self, weights: list[Tensor], lr: float, betas: tuple[float, float], weight_decay: float) -> None:
        super().__init__(weights, {"lr": lr})
        self._betas, self._decay, self._means = betas, weight_decay, [torch.zeros_like(w) for w in weights]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        (group,) = self.param_groups
        weights, (one, two) = group["params"], self._betas
        gradients = [w.grad for w in weights]
        ways = torch._foreach_lerp(gradients, self._means, one)
        torch._foreach_mul_(weights, 1 - group["lr"] * self._decay)
        torch._foreach_add_(weights, torch._foreach_sign(ways), alpha=-group["lr"])
        torch._foreach_lerp_(self._means, gradients, 1 - two)


def optimizers(name: str, weights: W) -> list[torch.optim.Optimizer]:
    """What the weights of a program learn by."""
    rates = {"lr": 1e-4, "weight_decay": 0.1}
    if name != "muon":
        return [torch.optim.AdamW(list(weights.values()), betas=(0.9, 0.95), foreach=True, **rates)]
    hidden = [w for key, w in weights.items() if key in ("one-w", "two-w")]
    others = [w for key, w in weights.items() if key not in ("one-w", "two-w")]
    return [torch.optim.Muon(hidden, momentum=0.9, nesterov=True, **rates), Lion(others, betas=(0.9, 0.95), **rates)]


class Opened:
    """A loss on arrays: weights whose names begin with w:, and inputs with i:."""

    def __init__(self, name: str, path: str, dtype: str, sizes: dict[str, int], learns: list[str]) -> None:
        arrays = {key: torch.from_numpy(value) for key, value in np.load(path).items()}
        kind = getattr(torch, dtype)
        cast = {k: v.to(kind if v.is_floating_point() else torch.int64) for k, v in arrays.items()}
        self.w = {k[2:]: v.requires_grad_(k[2:] in learns) for k, v in cast.items() if k.startswith("w:")}
        self.i = {k[2:]: v for k, v in cast.items() if k.startswith("i:")}
        self._name, self._sizes = name, sizes
        self._learned = [self.w[name] for name in learns]
        if name not in RESULTS:
            self._optimizers = optimizers(name, {name: self.w[name] for name in learns})

    def loss(self) -> Tensor:
        return LOSSES[self._name](self.w, self.i, self._sizes)

    def results(self) -> list[Tensor]:
        with torch.no_grad():
            return RESULTS[self._name](self.w, self.i, self._sizes)

    def said(self) -> dict[str, Any]:
        """The loss, and of each gradient its length and its part along cosines of the elements' numbers."""
        loss = self.loss()
        loss.backward()
        found = {}
        for name, weight in self.w.items():
            if weight.grad is not None:
                flat = weight.grad.flatten()
                found[name] = [float(flat.norm()), float((flat * torch.arange(len(flat)).to(flat).cos()).sum())]
        return {"loss": float(loss.detach()), "gradients": found}

    def steps(self, count: int) -> float:
        begun = time.process_time()
        for _ in range(count):
            if self._name in RESULTS:
                self.results()
                continue
            for optimizer in self._optimizers:
                optimizer.zero_grad()
            self.loss().backward()
            torch.nn.utils.clip_grad_norm_(self._learned, 1.0, foreach=True)
            for optimizer in self._optimizers:
                optimizer.step()
        return time.process_time() - begun


def main() -> None:
    torch.set_num_threads(1)
    opened: Opened | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        if "open" in asked:
            opened = Opened(asked["open"], asked["arrays"], asked["dtype"], asked["sizes"], asked["learns"])
            if asked["open"] in RESULTS:
                answer: Any = [result.tolist() for result in opened.results()]
            else:
                answer = opened.said()
                assert math.isfinite(answer["loss"])
        else:
            assert opened is not None
            answer = opened.steps(asked["steps"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
