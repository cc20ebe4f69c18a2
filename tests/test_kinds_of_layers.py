"""Models whose layers are of several kinds: weights and states that some layers have, in folders and in programs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import recorded_folders
import seeded
from compiled_models import Weights
from recorded_folders import Folder

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.compiler.folders import open_weights
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.session import Session

pytestmark = pytest.mark.drawn

FOLDERS = {folder.name: folder for folder in recorded_folders.folders()}
STATES = ("mamba", "mamba2", "rwkv", "granite-hybrid", "bamba", "jamba", "falcon-h1", "falcon-h1-normed", "qwen3-next")
PROGRAM = """
(weights (per 5 :where (fn [l] (= (mod l 2) 1)) (odd [4])) (per 5 :where (fn [l] false) (none [4])) (per 5 (all [4])))
(state (per 5 :where (fn [l] (> l 2)) (kept [4])))
(entry run [(x [4] f32)]
  (let [y (fold (fn [x l] (if (= (mod l 2) 1) (* x (odd l)) (+ x (all l)))) x (range 5))]
    (write-state (kept 3) y)
    (write-state (kept 4) (+ (read-state (kept 4)) y))
    (update! (odd 3) y)
    y))
"""


def changed(name: str, **config: object) -> Folder:
    return replace(FOLDERS[name], config={**FOLDERS[name].config, **config})


def test_a_layer_has_its_part_of_a_stack_of_some(tmp_path: Path) -> None:
    (tmp_path / "p.lisp").write_text(PROGRAM)
    artifact, _ = compile_request(Request(tmp_path / "p.lisp"), Observer())
    assert artifact.weights["odd"] == {"shape": [2, 4], "dtype": "f32", "layers": [1, 3], "stacked": True}
    assert "none" not in artifact.weights and "layers" not in artifact.weights["all"]
    rng = seeded.rng()
    weights = {"odd": rng.standard_normal((2, 4), np.float32), "all": rng.standard_normal((5, 4), np.float32)}
    x = rng.standard_normal(4, np.float32)
    with Session(artifact, CpuDevice(2), Weights(weights)) as session:  # type: ignore[arg-type]
        odd, kept = weights["odd"].astype(np.float64), np.zeros((2, 4))
        for _ in range(2):
            (found,) = session.run("run", x=x).values()
            wanted = ((x + weights["all"][0]) * odd[0] + weights["all"][2]) * odd[1] + weights["all"][4]
            odd[1], kept[0], kept[1] = wanted, wanted, kept[1] + wanted
            np.testing.assert_allclose(found, wanted, rtol=1e-5)
            np.testing.assert_allclose(session.read("kept"), kept, rtol=1e-5)
            np.testing.assert_allclose(session.read("odd"), odd, rtol=1e-5)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"decoder_sparse_step": 1},
            r"gate_proj\.weight \('dense-gate-w'\), and its settings describe a model without it",
        ),
        ({"decoder_sparse_step": 3}, r"is of layers (2|0, 1) in the program, and of (1|0, 2) in the checkpoint"),
        (
            {"decoder_sparse_step": 1, "mlp_only_layers": [1, 2]},
            r"is of layers (0|1, 2) in the program, and of (1|0, 2)",
        ),
    ],
)
def test_layers_of_another_kind_than_the_config_says_are_refused(config: dict, said: str, tmp_path: Path) -> None:
    """With as many of them, too."""
    with (
        pytest.raises(UserError, match=said),
        lispgpt.load(changed("qwen3-moe-dense-f32", **config).write(tmp_path / "m")) as m,
    ):
        list(m.generate([3], max_new_tokens=1))


def test_a_missing_tensor_of_a_layer_that_has_others_is_told(tmp_path: Path) -> None:
    folder = FOLDERS["qwen3-moe-dense-f32"]
    gone = "model.layers.1.mlp.experts.2.up_proj.weight"
    left = {name: shape for name, shape in folder.tensors.items() if name != gone}
    with pytest.raises(UserError, match=r"layers\.1\.mlp\.experts\.\d\.up_proj\.weight' is missing"):
        lispgpt.load(replace(folder, tensors=left).write(tmp_path / "m"))


def test_layers_that_guess_at_further_tokens_are_left_out(tmp_path: Path) -> None:
    """As many as config.json says, and no more."""
    folder = FOLDERS["glm4-moe-f32"]
    own = {name: shape for name, shape in folder.tensors.items() if ".layers.2." in name}
    more = {name.replace(".2.", ".3.", 1): shape for name, shape in own.items()} | {
        "model.layers.3.eh_proj.weight": [9, 9]
    }
    folder = replace(folder, tensors={**folder.tensors, **more})
    assert folder.config["num_nextn_predict_layers"] == 1
    weights = open_weights(folder.write(tmp_path / "m"))
    assert weights.info("norm1-w").shape[0] == 3 and weights.info("router-w").layers == (1, 2)
    without = replace(folder, config={**folder.config, "num_nextn_predict_layers": 0})
    with pytest.raises(UserError, match=r"the program has no weight for tensor 'layers\.3\."):
        open_weights(without.write(tmp_path / "without"))


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("deepseek-v2-f32", {"norm_topk_prob": True}, "norm_topk_prob is false"),
        ("deepseek-v3-f32", {"rope_interleave": False}, "rope_interleave is False, and the program is for True alone"),
        ("mamba2-f32", {"time_step_limit": [0.0, 0.1]}, r"time_step_limit\.1 is 0\.1, and the program is for inf"),
        ("qwen3-next-f32", {"mlp_only_layers": [1]}, r"mlp_only_layers is \[1\], and the program is for \[\] or none"),
        ("nemotron-h-f32", {"moe_latent_size": 20}, "moe_latent_size is 20, and the program is for none alone"),
        ("lfm2-f32", {"conv_bias": True}, "conv_bias is True, and the program is for False alone"),
    ],
)
def test_settings_that_change_what_is_computed_are_refused(name: str, config: dict, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said), lispgpt.load(changed(name, **config).write(tmp_path / "m")) as model:
        list(model.generate([3], max_new_tokens=1))


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(f"{n}-f32", marks=pytest.mark.slow) for n in ("lfm2", "nemotron-h", "deepseek-v3", *STATES)),
    ],
)
def test_ragged_batches_are_single_texts_and_states_refuse_drafts(name: str, tmp_path: Path) -> None:
    folder, rng = FOLDERS[name], seeded.rng()
    prompts = [*(case.prompt for case in folder.cases), *(rng.integers(3, 131, n).tolist() for n in (2, 17, 40))]
    with lispgpt.load(folder.write(tmp_path / "m")) as model:
        alone = []
        for prompt in prompts:
            text = model.generate(prompt, max_new_tokens=12, greedy=True)
            assert list(text) is not None
            alone.append(text.tokens)
        together = model.generate_batch(prompts, batch=4, max_new_tokens=12, greedy=True)
        assert [text.tokens for text in together] == alone
        assert model.logits(prompts[2])[-1].argmax() == alone[2][0]
        if name.startswith("deepseek"):
            text = model.generate(prompts[1], max_new_tokens=12, greedy=True, lookup=4)
            assert list(text) is not None and text.tokens == alone[1]
        else:
            with pytest.raises(UserError, match="states add up over positions, so that no draft can be taken back"):
                model.generate(prompts[1], greedy=True, lookup=4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "gone", "instead"),
    [
        ("granite-hybrid-f32", "", {"layer_types": ["mamba", "attention", "mamba"]}),
        ("nemotron-h-f32", "layers_block_type", {"hybrid_override_pattern": "ME*-M", "num_hidden_layers": 5}),
        ("qwen3-next-f32", "layer_types", {"full_attention_interval": 4}),
    ],
)
def test_layers_are_called_as_earlier_folders_call_them(name: str, gone: str, instead: dict, tmp_path: Path) -> None:
    folder = FOLDERS[name]
    config = {key: value for key, value in folder.config.items() if key != gone} | instead
    with lispgpt.load(replace(folder, config=config).write(tmp_path / "m")) as model:
        text = model.generate(folder.cases[1].prompt, max_new_tokens=24, greedy=True)
        assert list(text) is not None and folder.cases[1].accepts(text.tokens)


def test_layers_of_no_known_kind_are_told(tmp_path: Path) -> None:
    for kinds in ("ME*-X", "ME*-"):
        config = {key: value for key, value in FOLDERS["nemotron-h-f32"].config.items() if key != "layers_block_type"}
        config |= {"hybrid_override_pattern": kinds, "num_hidden_layers": 5}
        folder = replace(FOLDERS["nemotron-h-f32"], config=config)
        said = "no layer of this kind is known" if len(kinds) == 5 else "4 is not a position in a text of 4"
        with pytest.raises(UserError, match=said), lispgpt.load(folder.write(tmp_path / kinds[3:])) as model:
            list(model.generate([3], max_new_tokens=1))


@pytest.mark.slow
def test_blocks_and_artifacts_of_such_models(tmp_path: Path) -> None:
    folder = FOLDERS["qwen3-moe-dense-f32"]
    path = folder.write(tmp_path / "m")
    lispgpt.compile(path).save(tmp_path / "m.lgpt")
    with lispgpt.load(tmp_path / "m.lgpt", path, trust=True) as model:
        assert json.loads(json.dumps(model.artifact.weights["router-w"]["layers"])) == [1]
        text = model.generate(folder.cases[1].prompt, max_new_tokens=24, greedy=True)
        assert list(text) is not None and folder.cases[1].accepts(text.tokens)
