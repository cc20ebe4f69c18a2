"""Hugging Face folders of today's models, by themselves: transformers' tokens, or clear words for what is not right."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import recorded_folders
import seeded
from recorded_folders import Folder

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.cli.main import main
from lispgpt.compiler.folders import programs
from lispgpt.language.model.folders import ACTIVATIONS
from lispgpt.runtime import checkpoints
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.make import make
from lispgpt.runtime.checkpoints.safetensors_file import read_safetensors, write_safetensors
from lispgpt.runtime.data.shards import write_shard

pytestmark = pytest.mark.drawn

FOLDERS = {folder.name: folder for folder in recorded_folders.folders()}
SLOW = [name for name in FOLDERS if name.endswith("bf16") and not name.startswith("qwen3-bf16")]
SLOW += [f"{name}-f32" for name in ("smollm3", "granite", "olmo2", "phi", "stablelm", "falcon-groups")]
QUICK = ("gpt-oss-f32", "gemma3-images-f32", "bloom-f32", "cohere2-f32", "qwen3-biased-f32")
QUICK += ("qwen3-moe-dense-f32", "deepseek-v3-f32", "mamba-f32", "lfm2-f32", "qwen3-next-f32")
SLOW += [name for name in list(FOLDERS)[list(FOLDERS).index("llama-mlp-biased-f32") :] if name not in QUICK]
"""Run them after a change of the library's layers or of what reads folders."""


def check(folder: Folder, path: Path) -> None:
    """The folder alone gives the recorded tokens."""
    with lispgpt.load(path) as model:
        for case in folder.cases:
            text = model.generate(case.prompt, max_new_tokens=len(case.tokens), greedy=True)
            assert list(text) is not None
            assert case.accepts(text.tokens), f"{folder.name}: {text.tokens} is not {case.tokens}"


def said(path: Path, prompt: list[int], number: int, target: str) -> lispgpt.Text:
    with lispgpt.load(path, target=target) as model:
        text = model.generate(prompt, max_new_tokens=number, greedy=True)
        assert list(text) is not None
    return text


def say_something(path: Path, settings: dict | None = None) -> None:
    with lispgpt.load(path, settings=settings or {}) as model:
        list(model.generate([3], max_new_tokens=1, greedy=True))


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in FOLDERS])
def test_a_folder_alone_gives_transformers_tokens(name: str, tmp_path: Path) -> None:
    check(FOLDERS[name], FOLDERS[name].write(tmp_path / name, shards=3 if "qwen" in name else 1))


def test_all_rows_of_a_text_take_long_factors_once_it_is_long(tmp_path: Path) -> None:
    """However it is run: one by one, in a batch where others cross the length at other steps, at once, and scored."""
    folder = FOLDERS["phi3-long-f32"]
    path = folder.write(tmp_path / "model")
    with lispgpt.load(path) as model:
        texts = model.generate_batch([case.prompt for case in folder.cases], max_new_tokens=24, greedy=True, batch=2)
        for case, text in zip(folder.cases, texts, strict=True):
            assert case.accepts(text.tokens)
        whole = model.logits([*folder.cases[1].prompt, *folder.cases[1].tokens])  # all of them by long factors
    tokens = [*folder.cases[1].prompt, *folder.cases[1].tokens]
    data = tmp_path / "one.bin"
    write_shard(data, [np.array(tokens)], folder.config["vocab_size"])
    found = lispgpt.evaluate(path, None, data, length=28)
    powers = whole[np.arange(28), tokens[1:]] - np.log(np.exp(whole[:28]).sum(1))
    assert found.loss == pytest.approx(-powers.mean(), abs=1e-4)


@pytest.mark.slow
def test_groups_of_heads_begin_a_text_on_an_emulated_gpu(tmp_path: Path) -> None:
    """Several workgroups write the same keys to the first place, which all have read and dropped."""
    path = FOLDERS["llama-3-f32"].write(tmp_path / "model")
    found = [said(path, [3], 2, target).tokens for target in ("cpu", "emulated:gfx1151")]
    assert found[0] == found[1]


@pytest.mark.slow
def test_a_text_becomes_a_long_one_on_an_emulated_gpu(tmp_path: Path) -> None:
    folder = FOLDERS["phi3-long-f32"]
    case = folder.cases[1]
    assert case.accepts(said(folder.write(tmp_path / "model"), case.prompt, 24, "emulated:gfx1151").tokens)


@pytest.mark.slow
def test_long_factors_are_those_of_long_texts(tmp_path: Path) -> None:
    """They do to long texts what short factors would do, were no text a long one."""
    folder, found = FOLDERS["phi3-long-f32"], {}
    short, long = (folder.config["rope_parameters"][f"{name}_factor"] for name in ("short", "long"))
    for name, factors, settings in (
        ("long", (short, long), {}),
        ("short", (short, long), {"long-after": 1000}),
        ("exchanged", (long, short), {"long-after": 1000}),
    ):
        path = folder.write(tmp_path / name)
        config = dict(folder.config)
        config["rope_parameters"] = {**config["rope_parameters"], "short_factor": factors[0], "long_factor": factors[1]}
        (path / "config.json").write_text(json.dumps(config))
        with lispgpt.load(path, settings=settings) as model:
            found[name] = model.logits(folder.cases[2].prompt)
            if name == "long":  # nobody says how long a text is that an entry is run on
                direct = model.run("logits", tokens=[folder.cases[2].prompt], positions=[list(range(33))])["logits"]
                np.testing.assert_allclose(direct[0], found[name][-1], atol=1e-4)
    np.testing.assert_allclose(found["long"], found["exchanged"], atol=1e-5)
    assert np.abs(found["long"] - found["short"])[1:].max() > 0.01


def test_every_kind_has_a_program_of_at_most_sixty_lines() -> None:
    assert {folder.config["model_type"] for folder in FOLDERS.values()} == set(programs())
    for path in programs().values():
        assert sum(not line.startswith(";") for line in path.read_text().splitlines()) <= 60


def test_what_runs_by_itself_no_more_than_this_is_said(tmp_path: Path) -> None:
    """Checkpoints, folders of other things, files that are called GGUF, and a run of a program of one's own."""
    checkpoint = tmp_path / "m.bin"
    make(checkpoint, Gpt2Shape.unpadded(vocab=300, context=20, layers=1, heads=3, width=12), "llmc")
    (tmp_path / "empty.gguf").touch()
    (tmp_path / "run" / "checkpoints" / "1").mkdir(parents=True)
    (tmp_path / "run" / "latest").symlink_to("checkpoints/1")
    (tmp_path / "lora").mkdir()
    (tmp_path / "lora" / "adapter_config.json").write_text("{}")
    pointer = FOLDERS["qwen3-f32"].write(tmp_path / "pointer") / "model.safetensors"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 100\n")
    for path, said in {
        "m.bin": "is a checkpoint, which a program runs",
        "empty.gguf": "is no GGUF file",
        ".": "is a folder without config.json, as models have, and manifest.json",
        "run": "is the folder of a run: give the program that was trained",
        "lora": "is an adapter, which changes another model: give that, and --adapter",
        "pointer": "is but Git LFS's pointer to the file",
    }.items():
        with pytest.raises(UserError, match=said):
            lispgpt.load(tmp_path / path)
    (tmp_path / "a.lgpt").write_bytes(b"PK\3\4")
    with pytest.raises(UserError, match="is a compiled program, and no checkpoint"):
        checkpoints.open(tmp_path / "a.lgpt")


def test_all_kinds_are_listed_beside_their_programs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["examples", "--kinds"])
    told, listed = capsys.readouterr().out, programs()
    assert ended.value.code in (0, None) and len(listed) >= 66
    lines = {line.split()[0]: line for line in told.splitlines() if ".lisp " in line}
    assert all(name in lines[path.name].replace(",", " ").split() for name, path in listed.items())
    assert all(len(line) <= 120 for line in told.splitlines())


def test_a_program_for_another_model_names_the_right_one(tmp_path: Path, examples: Path) -> None:
    path = FOLDERS["qwen3-f32"].write(tmp_path / "model")
    with pytest.raises(UserError, match=r"'qwen3', and .*qwen2\.lisp is for qwen2; qwen3\.lisp is the program for it"):
        lispgpt.load(examples / "qwen2.lisp", path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"model_type": "zamba2"},
            r"no program is known for model_type 'zamba2'; there are programs for \d+ kinds, of which .*(mamba2|bamba)"
            r".* called most like it \(lispgpt examples --kinds lists them\)$",
        ),
        ({"model_type": "!"}, r"there are programs for \d+ kinds \(lispgpt examples --kinds lists them\)$"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu', and the program is for 'silu' alone"),
        ({"hidden_size": None}, "lacks hidden_size, by which the program sets width"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is NaN, and should be a number above 0 and below 1"),
        ({"vocab_size": 1 << 40}, "vocab_size is 1099511627776, and should be a whole number from 1 on"),
        ({"num_hidden_layers": 3}, r"layers\.2\.\S+' is missing; config.json asks for 3 layers"),
        ({"num_hidden_layers": 1}, r"the program has no weight for tensor 'layers\.1\."),
        ({"rope_parameters": {"rope_type": "spiral"}}, "rope_type is 'spiral', and the program is for"),
        (
            {"quantization_config": {"quant_method": "gptq", "more": "." * 200}},
            r"quantization_config is .{80} …, and the",
        ),
        ({"tie_word_embeddings": False}, "has no weight 'head-w', which the program declares"),
        ({"attention_bias": True}, "has no weight 'qkv-b', which the program declares"),
        (
            {"use_sliding_window": True, "layer_types": ["full_attention", "linear_attention"]},
            "layer_types are sliding_",
        ),
    ],
)
def test_a_folder_that_is_not_right_is_one_clear_error(change: dict, message: str, tmp_path: Path) -> None:
    path = FOLDERS["qwen3-f32"].write(tmp_path / "model")
    config = dict(FOLDERS["qwen3-f32"].config) | change
    (path / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    with pytest.raises(UserError, match=message):
        say_something(path)


def test_an_artifact_reads_folders_as_its_program_does(tmp_path: Path) -> None:
    folder = FOLDERS["qwen3-f32"]
    path = folder.write(tmp_path / "model")
    lispgpt.compile(path).save(tmp_path / "model.lgpt")
    with lispgpt.load(tmp_path / "model.lgpt", path, trust=True) as model:
        text = model.generate(folder.cases[1].prompt, max_new_tokens=24, greedy=True)
        list(text)
        assert folder.cases[1].accepts(text.tokens)


def test_a_weight_that_the_settings_leave_out_is_not_lost_silently(tmp_path: Path) -> None:
    """But where it is another once more, as tied heads are, it is no matter."""
    folder = FOLDERS["qwen2-f32"]
    path = folder.write(tmp_path / "other")
    (path / "config.json").write_text(json.dumps({**folder.config, "tie_word_embeddings": True}))
    with pytest.raises(
        UserError, match=r"holds lm_head.weight \('head-w'\), and its settings describe a model without it"
    ):
        say_something(path)
    tied = FOLDERS["qwen3-f32"]
    path = tied.write(tmp_path / "same")
    file = next(path.glob("*.safetensors"))
    stored = {name: tensor.array for name, tensor in read_safetensors(file).items()}
    stored["lm_head.weight"] = stored["model.embed_tokens.weight"]
    header = [(name, array.shape, "f32") for name, array in stored.items()]
    write_safetensors(tmp_path / "new", header, [array.copy() for array in stored.values()])
    (tmp_path / "new").replace(file)
    with lispgpt.load(path) as model:
        text = model.generate(tied.cases[0].prompt, max_new_tokens=24, greedy=True)
        list(text)
        assert tied.cases[0].accepts(text.tokens)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("pythia-f32", {"rotary_pct": 0.25}, "what of a head is turned is no whole number of pairs"),
        ("llama-dynamic-f32", {}, "with rope_type dynamic no context beyond max_position_embeddings"),
    ],
)
def test_positions_that_the_library_cannot_turn_are_refused(
    name: str, change: dict, message: str, tmp_path: Path
) -> None:
    folder = FOLDERS[name]
    path = folder.write(tmp_path / "model")
    config = json.loads(json.dumps(folder.config))
    if change:
        config["rope_parameters"]["partial_rotary_factor"] = change["rotary_pct"]
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=message):
        say_something(path, {} if change else {"context": 200})


def test_every_activation_of_folders_is_in_the_library(tmp_path: Path) -> None:
    """Each by the program that takes any, and as transformers computes it."""
    given = seeded.rng().standard_normal((3, 17)).astype(np.float32)
    wide = given.astype(np.float64)
    phi = np.vectorize(lambda v: 0.5 * (1 + math.erf(v / math.sqrt(2))))(wide)
    tanh_form = 0.5 * wide * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))
    logistic = 1 / (1 + np.exp(-wide))
    wanted = {"silu": wide * logistic, "gelu": wide * phi, "gelu_new": tanh_form, "relu": np.maximum(wide, 0)}
    wanted |= {"quick_gelu": wide / (1 + np.exp(-1.702 * wide)), "relu2": np.maximum(wide, 0) ** 2}
    wanted |= {"tanh": np.tanh(wide), "sigmoid": logistic, "swish": wide * logistic, "gelu_python": wide * phi}
    wanted |= dict.fromkeys(("gelu_pytorch_tanh", "gelu_fast"), tanh_form)
    assert set(wanted) == set(ACTIVATIONS)
    program = tmp_path / "a.lisp"
    outputs = " ".join(f':y{i} ((activation-named "{name}") x)' for i, name in enumerate(wanted))
    program.write_text(f"(require nn)\n(entry run [(x [3 17] f32)] {{{outputs}}})\n")
    with lispgpt.load(program) as model:
        found = model.run("run", x=given)
    for i, (name, values) in enumerate(wanted.items()):
        np.testing.assert_allclose(found[f"y{i}"], values, atol=2e-6, err_msg=name)
