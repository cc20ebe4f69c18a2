"""What `lispgpt run` compiles for texts, and finds compiled: no more than they need, and never less."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_cli import Call, call, generate, made

from lispgpt.cli.prompts import Prompts
from lispgpt.compiler.request import Request, prompt_size
from lispgpt.runtime.decoding import DRAWN, GREEDY
from lispgpt.runtime.plan.artifact import load_artifact

__all__ = ["call", "made"]

NOTHING = dict.fromkeys(("prompt_file", "prompts_file", "batch", "samples", "lookup")) | {
    "prompts": (),
    "prompt_tokens": (),
}


def chunks_of(folder: Path) -> list[int]:
    """The sizes that prompts are taken in by, of the artifact compiled last."""
    newest = max(folder.glob("*/artifact.lgpt"), key=lambda path: path.stat().st_mtime)
    return [entry.sizes["positions"] for entry in load_artifact(newest).plan.entries if entry.name == "prefill"]


def decodes_of(folder: Path) -> list[set[str]]:
    """The entries that decode, of each artifact that was compiled."""
    plans = [load_artifact(path).plan for path in folder.glob("*/artifact.lgpt")]
    return [{entry.name for entry in plan.entries if entry.name.startswith("decode")} for plan in plans]


def test_greedy_texts_do_not_wait_for_the_kernels_of_drawn_ones(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = ("--target", "emulated:gfx1151", "--prompt-tokens", "1,2", "--max-new-tokens", "3", "--format", "json")
    found = {}
    for order in (("greedy", "drawn"), ("drawn", "greedy")):
        folder = tmp_path / order[0]
        monkeypatch.setenv("LISPGPT_CACHE", str(folder))
        for way in order:
            done = generate(call, *options, *(["--greedy"] if way == "greedy" else ["--seed", "1"]))
            assert done.code == 0, done.err
            found[way, order] = json.loads(done.out)["tokens"]
        both = [{GREEDY, DRAWN}]
        assert sorted(decodes_of(folder), key=len) == ([{GREEDY}, *both] if order[0] == "greedy" else both)
    for way in ("greedy", "drawn"):
        assert found[way, ("greedy", "drawn")] == found[way, ("drawn", "greedy")]


def test_a_short_prompt_is_compiled_for_alone_and_a_longer_one_gets_what_it_needs(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LISPGPT_CACHE", str(tmp_path))
    options = ("--greedy", "--format", "json")
    short = generate(call, "--prompt-tokens", "1,2", *options)
    assert short.code == 0 and chunks_of(tmp_path) == [16], short.err
    again = generate(call, "--prompt-tokens", "3,4,5", *options)
    assert again.code == 0 and len([*tmp_path.glob("*/artifact.lgpt")]) == 1, "both prompts are short"
    longer = generate(call, "--prompt-tokens", ",".join(map(str, range(18))), *options)
    assert longer.code == 0 and len([*tmp_path.glob("*/artifact.lgpt")]) == 2
    assert json.loads(longer.out)["prompt_tokens"] == [*range(18)]
    third = generate(call, "--prompt-tokens", "9", *options)
    assert third.code == 0 and len([*tmp_path.glob("*/artifact.lgpt")]) == 2


def test_sizes_of_prompts() -> None:
    assert [prompt_size(count) for count in (None, 0, 1, 16, 17, 128, 129)] == [0, 16, 16, 16, 128, 128, 512]
    assert [wide.longest for wide in Request(Path("x.lisp"), longest=16).wider()] == [16, 128, 512, 0]
    assert [wide.longest for wide in Request(Path("x.lisp")).wider()] == [0]
    greedy = Request(Path("x.lisp"), longest=512, unneeded=(DRAWN,)).wider()
    assert [(wide.longest, wide.unneeded) for wide in greedy] == [(512, (DRAWN,)), (0, (DRAWN,)), (512, ()), (0, ())]


def test_the_longest_prompt_has_at_most_a_token_a_byte(tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").write_text('{"tokens": [1, 2, 3]}\n{"prompt": "aé"}\n')
    (tmp_path / "text").write_text("é" * 50)

    def longest(**options: object) -> int | None:
        return Prompts(NOTHING | options).longest()

    assert longest(prompt_tokens=("1,2,3", "4")) == 3
    assert longest(prompts=("a", "éé")) == 4 + 4
    assert longest(prompt_file=tmp_path / "text") == 104
    lines = longest(prompts_file=tmp_path / "lines.jsonl")
    assert lines is not None and lines >= 4
    assert longest() is None and longest(prompts=("-",)) is None
