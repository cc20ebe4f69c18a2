"""What config.json leaves out is what transformers' class of the model has (see tools/record_folder_defaults.py), and
what it says by null, by older names or in two places is what transformers makes of that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recorded_folders
from recorded_folders import Folder

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.base.folder_map import FolderMap
from lispgpt.base.source import Source
from lispgpt.compiler.compiled import declared
from lispgpt.compiler.folders import names_in, open_weights, programs
from lispgpt.compiler.request import Request
from lispgpt.language.model.folders import parse
from lispgpt.language.reader.reader import read
from lispgpt.runtime.checkpoints.mapped_folder import read_settings
from lispgpt.runtime.checkpoints.safetensors_file import write_safetensors

DEFAULTS = json.loads((Path(__file__).parent / "references" / "folder_defaults.json").read_text())
KINDS = sorted(programs().keys() - {"mistral3"})
"""Of the other it is its text's kind that counts."""
NEEDED = {"model_type", "num_experts_per_tok"}
QUICK = ("cohere", "mistral", "granite", "deepseek_v3")
SIZES = {"head-width", "head-size", "dense-hidden", "q-rank", "rope-original", "rope-most"}
"""Of tensors, which are refused where they are others, and of positions, where 0 stands for another length."""
TO_BE_SAID = ("cwm", "gpt_oss", "ministral3")
"""The kinds whose positions are turned in so many ways that none is taken where config.json does not say it."""


def map_of(kind: str) -> FolderMap:
    found = names_in(programs()[kind])
    assert found is not None
    return found


def settings_of(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    return read_settings(Path("config.json"), {"model_type": kind, **data}, map_of(kind))


def config_of(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """The program's config for a config.json."""
    return declared(Request(programs()[kind], "cpu", {}, settings_of(kind, data))).config


@pytest.mark.drawn
@pytest.mark.parametrize("kind", [pytest.param(k, marks=[] if k in QUICK else [pytest.mark.slow]) for k in KINDS])
def test_settings_that_are_left_out_are_those_of_transformers(kind: str) -> None:
    needed = NEEDED | {key for setting in map_of(kind).config.values() if not setting.optional for key in setting.keys}
    said = {key: value for key, value in DEFAULTS[kind].items() if value is not None}
    said |= {"num_experts_per_tok": 2} if kind == "deepseek_v2" else {}
    said |= {"attention_layers": ["global", "local"] * 12} if kind == "gpt_neo" else {}
    all_said, found = config_of(kind, said), config_of(kind, {k: v for k, v in said.items() if k in needed})
    assert all_said.keys() == found.keys()
    for name in found.keys() - SIZES:
        if kind in TO_BE_SAID and name.startswith(("rope", "longer")):
            assert found["rope-type"] == ""
        elif isinstance(found[name], float):
            assert found[name] == pytest.approx(all_said[name], rel=1e-12), name
        else:
            assert found[name] == all_said[name], name


OWN_HEADS = ("cwm", "ernie4_5", "glm", "glm4", "helium", "internlm3", "ministral3", "qwen3", "seed_oss")
"""The kinds whose heads are of 128 columns where config.json does not say how many."""
FREQUENCIES = np.ones(6, np.float32)
SMALL = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32, "intermediate_size": 48}
SMALL |= {"num_hidden_layers": 2, "vocab_size": 100, "max_position_embeddings": 64}


def test_null_is_not_what_a_program_has_where_nothing_is_said() -> None:
    """transformers' Gemma 2 has caps unless they are null, and so have others windows."""
    for kind, key, name in (
        ("gemma2", "final_logit_softcapping", "logit-cap"),
        ("gemma2", "attn_logit_softcapping", "score-cap"),
        *((kind, "sliding_window", "window") for kind in ("mistral", "qwen2", "qwen3", "cohere2", "olmo3", "exaone4")),
    ):
        assert name not in settings_of(kind, SMALL)
        assert settings_of(kind, {**SMALL, key: None})[name] == 0
        assert settings_of(kind, {**SMALL, key: 7})[name] == 7


@pytest.mark.drawn
@pytest.mark.parametrize("kind", OWN_HEADS)
def test_heads_have_a_width_of_their_own_where_none_is_said(kind: str) -> None:
    """Null is an even share of the model's width, where transformers takes it."""
    sizes = {**SMALL, "hidden_size": 320}
    assert config_of(kind, sizes)["head-width"] == DEFAULTS[kind]["head_dim"] == 128
    assert config_of(kind, {**sizes, "head_dim": 24})["head-width"] == 24
    if kind in ("ernie4_5", "internlm3", "seed_oss"):
        assert config_of(kind, {**sizes, "head_dim": None})["head-width"] == 80


def test_rope_scaling_counts_before_rope_parameters() -> None:
    newer = {"rope_type": "yarn", "factor": 8.0, "rope_theta": 900.0}
    older = {"rope_theta": 700.0, "rope_scaling": {"type": "linear", "factor": 2.0}}
    for more, theta in ((older, 700.0), ({"rope_scaling": older["rope_scaling"]}, None)):
        found = settings_of("llama", {**SMALL, "rope_parameters": newer, **more})
        assert (found["rope-type"], found["rope-factor"], found.get("rope-theta")) == ("linear", 2.0, theta)
    for nothing in (None, {}):
        found = settings_of("llama", {**SMALL, "rope_parameters": newer, "rope_theta": 700.0, "rope_scaling": nothing})
        assert (found["rope-type"], found["rope-theta"]) == ("yarn", 900.0)
    kinds = {"sliding_attention": {"rope_type": "default", "rope_theta": 80.0}, "full_attention": dict(newer)}
    found = settings_of("olmo3", {**SMALL, "rope_parameters": kinds, "rope_scaling": {"factor": 3.0}})
    assert (found["rope-type"], found["rope-factor"], found["rope-near"]) == ("yarn", 3.0, 80.0)


def test_what_is_said_of_a_model_counts_before_what_is_said_of_its_positions() -> None:
    yarn = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 24}
    assert settings_of("llama", {**SMALL, "rope_parameters": yarn})["rope-original"] == 24
    both = {**SMALL, "rope_parameters": yarn, "original_max_position_embeddings": 40}
    assert settings_of("llama", both)["rope-original"] == 40
    older = {**SMALL, "rotary_emb_base": 300.0, "rotary_pct": 0.5}
    assert settings_of("gpt_neox", older)["rope-theta"] == 300.0


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
        (
            "gemma3_text",
            {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 3.0}}},
            r"rope_parameters\.sliding_attention\.rope_type is 'linear'",
        ),
        ("exaone4", {"sliding_window_pattern": 3}, "sliding_window_pattern is 3"),
    ],
)
def test_what_a_program_makes_nothing_of_is_refused(kind: str, change: dict[str, Any], said: str) -> None:
    settings_of(kind, SMALL)
    with pytest.raises(UserError, match=said):
        settings_of(kind, {**SMALL, **change})


def test_an_option_of_optional_is_null() -> None:
    form = '(hugging-face ["x"] (config window (optional "w" {%s 0})) (weights))'
    (good,), (bad,) = (read(Source("x.lisp", form % option)) for option in (":null", ":absent"))
    assert parse(good).config["window"].null == 0  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r'is not like \(optional "key" \{:null 0\}\)'):
        parse(bad)  # type: ignore[arg-type]
    names = parse(good)  # type: ignore[arg-type]
    assert FolderMap.from_json(json.loads(json.dumps(names.to_json()))).config == names.config


TOKENS = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26, 43, 3, 83, 27, 95, 28, 88, 41]


def logits_of(path: Path, folder: Folder, change: dict[str, Any], **more: Any) -> np.ndarray:
    """What the folder gives with other settings, of which those that are None are left out."""
    config = {key: value for key, value in {**folder.config, **change}.items() if value is not None}
    (path / "config.json").write_text(json.dumps(config))
    with lispgpt.load(path, **more) as model:
        return model.logits(TOKENS)


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """Of the largest; NaN where either has one."""
    return float(np.abs(a - b).max() / np.abs(b).max())


def folder_of(name: str, place: Path) -> tuple[Folder, Path]:
    found = next(folder for folder in recorded_folders.folders() if folder.name == name)
    return found, found.write(place / name)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("(config window (optional)) (weights)", r"is not like \(optional"),
        ("(config window (optional {:null 0})) (weights)", r"is not like \(optional"),
        ('(config window (optional "w" {:null [1 2]})) (weights)', r"is not like \(optional"),
        ('(config window (optional "w" {})) (weights)', r"is not like \(optional"),
        ("(weights (some))", r"is not like \(some \"layers"),
        ('(weights (per "layers" w "w"))', r"is not like \(per \"layers"),
    ],
)
def test_forms_that_are_not_whole_are_refused(part: str, said: str) -> None:
    (form,) = read(Source("x.lisp", f'(hugging-face ["x"] {part})'))
    with pytest.raises(UserError, match=said):
        parse(form)  # type: ignore[arg-type]


@pytest.mark.parametrize("entries", [[], "logits"])
def test_entries_are_a_list_of_names(entries: Any, examples: Path) -> None:
    with pytest.raises(UserError, match="entries is a list of entries' names"):
        lispgpt.compile(examples / "gpt2_generate.lisp", entries=entries)


def test_frequencies_that_older_folders_have_are_no_weights(tmp_path: Path) -> None:
    for name in ("mistral-window-f32", "qwen3-f32"):
        folder, path = folder_of(name, tmp_path)
        more = {f"model.{of}rotary_emb.inv_freq": (6,) for of in ("", "layers.0.self_attn.", "layers.1.self_attn.")}
        write_safetensors(path / "model-2.safetensors", [(k, s, "f32") for k, s in more.items()], [FREQUENCIES] * 3)
        (path / "model.safetensors").rename(path / "model-1.safetensors")
        places = dict.fromkeys(folder.tensors, "model-1.safetensors") | dict.fromkeys(more, "model-2.safetensors")
        (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
        assert set(open_weights(path).names()) == set(open_weights(folder.write(tmp_path / f"{name}-new")).names())


@pytest.mark.parametrize("batch", [0, "2", True])
def test_a_batch_is_a_number_of_sequences(batch: Any, examples: Path) -> None:
    for use in (lispgpt.compile, lispgpt.load):
        with pytest.raises(UserError, match="batch is a number of sequences, from 1 on, not"):
            use(examples / "gpt2_generate.lisp", batch=batch)


def test_a_folder_is_no_program_to_train(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"is a folder without config[.]json: give a model's folder, or a program to train"
    ):
        lispgpt.train(tmp_path, data=tmp_path, run=tmp_path / "run")


@pytest.mark.slow
def test_lengths_of_training_do_not_depend_on_the_context(tmp_path: Path) -> None:
    """Where config.json does not say them, they are those of the model, however short a context is asked for."""
    folder, path = folder_of("llama-3-f32", tmp_path)
    positions = {k: v for k, v in folder.config["rope_parameters"].items() if not k.startswith("original")}
    found, own, shorter = (
        logits_of(path, folder, {"rope_parameters": positions | more}, context=40)
        for more in ({}, *({"original_max_position_embeddings": length} for length in (96, 40)))
    )
    assert difference(found, own) < 1e-5 and difference(shorter, own) > 1e-3


@pytest.mark.slow
def test_windows_of_smollm3_are_of_layers_that_turn_nothing(tmp_path: Path) -> None:
    """Unless layer_types says otherwise, and by no_rope_layer_interval where no_rope_layers does not say those."""
    folder, path = folder_of("smollm3-f32", tmp_path)
    windows = {"use_sliding_window": True, "sliding_window": 5, "layer_types": None, "no_rope_layers": [0, 1, 1, 0]}
    kinds = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]
    found, own, others = (
        logits_of(path, folder, windows | more)
        for more in ({}, *({"layer_types": each} for each in (kinds, kinds[1:] + kinds[1:2])))
    )
    assert difference(found, own) < 1e-5 and difference(others, own) > 1e-3
    found, own = (
        logits_of(path, folder, more)
        for more in ({"no_rope_layer_interval": 2, "no_rope_layers": None}, {"no_rope_layers": [1, 0, 1, 0]})
    )
    assert difference(found, own) < 1e-5


@pytest.mark.slow
def test_layers_of_gemma3_see_everything_by_an_older_setting(tmp_path: Path) -> None:
    folder, path = folder_of("gemma3-f32", tmp_path)
    found, own, others = (
        logits_of(path, folder, change)
        for change in (
            {"layer_types": None, "sliding_window_pattern": 2},
            {"layer_types": ["sliding_attention", "full_attention"] * 3},
            {},
        )
    )
    assert difference(found, own) < 1e-5 and difference(others, own) > 1e-3


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("glm4-moe-f32", {"rope_parameters": {"partial_rotary_factor": 0.25}}, "no whole number of pairs"),
        ("gpt-oss-f32", {"rope_parameters": None}, "how this model's positions are turned has to be said: rope_type"),
        ("ministral3-f32", {"rope_parameters": None}, "how this model's positions are turned has to be said"),
    ],
)
def test_positions_that_are_not_said_or_odd_are_refused(
    name: str, change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    folder, path = folder_of(name, tmp_path)
    with pytest.raises(UserError, match=said):
        logits_of(path, folder, change)
