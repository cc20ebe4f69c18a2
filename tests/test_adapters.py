"""Adapters in PEFT's format: added to weights as PEFT adds them, merged into folders, refused where they do more."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_adapters import RecordedAdapter, adapters
from recorded_folders import Folder, folders
from test_cli import Call, call, made

import lispgpt
from lispgpt.compiler.folders import PROGRAMS, find_given
from lispgpt.runtime.checkpoints.safetensors_file import read_safetensors, write_safetensors

__all__ = ["call", "made"]

ADAPTERS = {each.name: each for each in adapters()}
BASES: dict[str, Folder] = {each.name: each for each in folders()}


def written(name: str, folder: Path, **changes: Any) -> tuple[Path, Path]:
    """A model's folder and that of an adapter of it."""
    adapter = ADAPTERS[name]
    return BASES[adapter.base].write(folder / "base"), adapter.write(folder / "adapter", **changes)


@pytest.mark.drawn
@pytest.mark.parametrize("name", ADAPTERS)
def test_a_model_with_an_adapter_says_what_it_says_in_peft(name: str, tmp_path: Path) -> None:
    base, adapter = written(name, tmp_path)
    wanted = ADAPTERS[name]
    with lispgpt.load(base, adapter=adapter) as model:
        np.testing.assert_allclose(model.logits(wanted.prompt)[-1], wanted.logits, atol=2e-3)
        text = model.generate(wanted.prompt, greedy=True, max_new_tokens=len(wanted.continued))
        str(text)
        assert text.tokens == wanted.continued


BESIDE = [name for name in ADAPTERS if not ADAPTERS[name].config.get("modules_to_save")]


@pytest.mark.drawn
@pytest.mark.parametrize("name", BESIDE)
def test_an_adapter_beside_the_model_says_what_it_says_in_peft(name: str, tmp_path: Path) -> None:
    """With another one of the same model, and without any."""
    base, adapter = written(name, tmp_path)
    wanted, plain = ADAPTERS[name], BASES[ADAPTERS[name].base].cases[0]
    other = replace(wanted, seed=wanted.seed + 100).write(tmp_path / "other")
    with lispgpt.load(base, adapters=[other, adapter]) as model:
        for number in (2, 0, 1):
            logits = model.logits(wanted.prompt, number)[-1]
            assert (np.abs(logits - wanted.logits).max() < 2e-3) == (number == 2)
        options = model.options(greedy=True, max_new_tokens=len(wanted.continued))
        texts = [model.text(wanted.prompt, options, adapter=number) for number in (1, 2)]
        texts.append(model.text(plain.prompt, replace(options, max_new_tokens=len(plain.tokens))))
        for _ in model.together(texts, 3):
            continue
        assert texts[1].tokens == wanted.continued and texts[2].tokens == list(plain.tokens)


@pytest.mark.slow
def test_an_adapter_beside_the_model_runs_on_a_gpu(tmp_path: Path) -> None:
    """On an emulated one.  Run it after a change of lib/lora.lisp."""
    base, adapter = written("patterns", tmp_path)
    wanted = ADAPTERS["patterns"]
    chosen = {"target": "emulated:gfx1151", "settings": {"context": 32}}
    with lispgpt.load(base, adapters=[adapter], **chosen) as model:  # type: ignore[arg-type]
        text = model.text(wanted.prompt, model.options(greedy=True, max_new_tokens=3), adapter=1)
        str(text)
        assert text.tokens == wanted.continued[:3]


def test_what_adapters_beside_a_model_cannot_be_is_said(tmp_path: Path, call: Call) -> None:
    base, saved = written("saved", tmp_path)
    with pytest.raises(lispgpt.UserError, match="no product's matrix alone: `lispgpt checkpoint convert --merge`"):
        lispgpt.load(base, adapters=[saved])
    turned = ADAPTERS["plain"].write(tmp_path / "turned", fan_in_fan_out=False)
    with pytest.raises(lispgpt.UserError, match="adds 180 by 60 to what is 60 by 180"):
        lispgpt.load(BASES["gpt2-untied-f32"].write(tmp_path / "gpt2"), adapters=[turned])
    with pytest.raises(lispgpt.UserError, match="none are given"):
        lispgpt.load(PROGRAMS / "gpt2.lisp", adapters=[saved])


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_merged_folder_has_the_weights_that_run(name: str, tmp_path: Path, call: Call) -> None:
    base, adapter = written(name, tmp_path)
    done = call("checkpoint", "convert", str(base), str(tmp_path / "out"), "--merge", str(adapter))
    assert done.code == 0, done.err
    merged, running = find_given(tmp_path / "out", None).checkpoint, find_given(base, None, adapter).checkpoint
    plain = find_given(base, None).checkpoint
    assert merged is not None and running is not None and plain is not None
    changed = set()
    for weight in plain.names():
        assert np.array_equal(merged.tensor(weight), running.tensor(weight))
        if not np.array_equal(plain.tensor(weight), running.tensor(weight)):
            changed.add(weight)
    assert changed and len(changed) < len(plain.names())
    again = call("checkpoint", "convert", str(base), str(tmp_path / "out"), "--merge", str(adapter))
    assert again.code == 1 and "is there already" in again.err


def test_weights_of_16_bits_are_rounded_once(tmp_path: Path) -> None:
    folder = next(each for name, each in BASES.items() if name == "gpt2-untied-bf16")
    adapter = ADAPTERS["plain"].write(tmp_path / "adapter")
    base = folder.write(tmp_path / "base")
    found, plain = find_given(base, None, adapter).checkpoint, find_given(base, None).checkpoint
    assert found is not None and plain is not None
    halves = read_safetensors(adapter / "adapter_model.safetensors")
    key = "base_model.model.transformer.h.1.attn.c_attn.lora_{}.weight"
    added = 2 * halves[key.format("B")].array.astype(np.float64) @ halves[key.format("A")].array.astype(np.float64)
    exact, kept = np.empty(plain.info("qkv-w").shape, np.float32), np.empty(plain.info("qkv-w").shape, np.float32)
    plain.read_into("qkv-w", exact, "f32")
    found.read_into("qkv-w", kept, "f32")
    np.testing.assert_allclose(kept[1], exact[1] + added, rtol=2**-8)


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"use_dora": True}, "use_dora asks for DoRA"),
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"init_lora_weights": "pissa"}, "'pissa' changes the model's own weights"),
        ({"target_parameters": ["experts.gate"]}, "target_parameters asks for"),
        ({"r": 3}, "has rank 4"),
        ({"lora_alpha": None}, "lora_alpha is None"),
        ({"alpha_pattern": {"(a+)+$": 3}}, "no module's name"),
        ({"fan_in_fan_out": False}, "adds 180 by 60 to what is 60 by 180"),
    ],
)
def test_what_an_adapter_asks_for_that_is_not_known_is_refused(
    changes: dict[str, Any], word: str, tmp_path: Path
) -> None:
    base, adapter = written("plain", tmp_path, **changes)
    with pytest.raises(lispgpt.UserError) as refused:
        find_given(base, None, adapter)
    assert word in str(refused.value)


def changed(adapter: Path, old: str, new: str, value: float = 0.5) -> None:
    """Have an adapter's first tensor with `old` in its name be called otherwise, and hold one number."""
    file = adapter / "adapter_model.safetensors"
    tensors = {name: np.array(tensor.array) for name, tensor in read_safetensors(file).items()}
    name = next(name for name in tensors if old in name)
    tensors[name.replace(old, new)] = np.full_like(tensors.pop(name), value)
    write_safetensors(file, [(n, array.shape, "f32") for n, array in tensors.items()], tensors.values())


@pytest.mark.parametrize(
    "old, new, value, word",
    [
        ("h.0.", "h.7.", 0.5, "do not fit each other"),
        ("lora_A", "lora_C", 0.5, "is no part of a LoRA"),
        ("lora_A", "lora_A", np.nan, "holds NaN or infinity"),
        ("lora_A.weight", "lora_magnitude_vector", 0.5, "is no part of a LoRA"),
    ],
)
def test_damaged_adapters_are_refused(old: str, new: str, value: float, word: str, tmp_path: Path) -> None:
    base, adapter = written("plain", tmp_path)
    changed(adapter, old, new, value)
    with pytest.raises(lispgpt.UserError) as refused:
        find_given(base, None, adapter)
    assert word in str(refused.value)


def test_an_adapter_of_another_model_is_refused(tmp_path: Path, call: Call) -> None:
    base, adapter = written("plain", tmp_path)
    other = BASES["llama-3-f32"].write(tmp_path / "other")
    done = call("run", str(other), "--adapter", str(adapter), "--prompt-tokens", "1")
    assert done.code == 1 and "which the model has not" in done.err
    alone = call("run", str(adapter))
    assert alone.code == 1 and f"--adapter {adapter}" in alone.err
    for wrong in (base, tmp_path / "nowhere"):
        done = call("run", str(base), "--adapter", str(wrong), "--prompt-tokens", "1")
        assert done.code == 1 and "is no adapter in PEFT's format" in done.err


def test_tied_embeddings_are_not_changed_alone(tmp_path: Path) -> None:
    tied = BASES["qwen3-f32"]
    names = {"base_model.model.model.embed_tokens.weight": tied.tensors["model.embed_tokens.weight"]}
    saved = RecordedAdapter("tied", tied.name, {"peft_type": "LORA", "r": 1, "lora_alpha": 1}, names, 3, [], [], [])
    with pytest.raises(lispgpt.UserError, match="the model's head, too"):
        find_given(tied.write(tmp_path / "base"), None, saved.write(tmp_path / "adapter"))


def test_recorded_adapters_do_something() -> None:
    assert len({json.dumps(each.logits) for each in ADAPTERS.values()}) == len(ADAPTERS) >= 4
