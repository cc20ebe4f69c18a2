"""Models of the hub are fetched whole, once, and said what is wrong with; against a stand-in of the hub."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hub_server import Hub, hub_server
from huggingface_hub import constants

from lispgpt.cli.main import main
from lispgpt.runtime.checkpoints.hub import is_hub_name

AUSTEN = Path(__file__).resolve().parent.parent.parent / "examples" / "models" / "austen"


@dataclass(frozen=True)
class Done:
    code: object
    out: str
    err: str


@pytest.fixture
def hub() -> Iterator[Hub]:
    with hub_server() as made:
        files = {path.name: path.read_bytes() for path in AUSTEN.iterdir()}
        more = {"README.md": b"# Austen", "pytorch_model.bin": b"x" * 20000, "original/model.safetensors": b"y" * 20000}
        made.repos["jane/austen"] = {"main": {**files, **more, "chat_template.jinja": b"{{ messages[-1].content }}"}}
        yield made


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, where commands run; the hub's files are kept beside it."""
    for name in [name for name in os.environ if name.startswith(("HF_", "HUGGING"))]:
        monkeypatch.delenv(name)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setenv("LISPGPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    return tmp_path


@pytest.fixture
def lispgpt(
    hub: Hub, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """`lispgpt("pull", …)` with the stand-in for the hub."""
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(logging, "raiseExceptions", False)  # the library's log goes to a stream that was captured
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}")

    def call(*arguments: str) -> Done:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        said = capfd.readouterr()
        assert "Traceback" not in said.err
        return Done(ended.value.code, said.out.strip(), said.err)

    return call


def test_the_environment_says_where_from_and_where_to(hub: Hub, place: Path) -> None:
    hub.private.add("jane/austen")
    kept = {"HF_ENDPOINT": hub.url, "HF_HOME": str(place / "home"), "HF_TOKEN": "hf_secret"}
    command = [sys.executable, "-m", "lispgpt", "pull", "jane/austen"]
    done = subprocess.run(command, env=os.environ | kept, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.startswith(str(place / "home")), done.stderr
    assert "gpt2_generate.lisp" in done.stderr and "%" in done.stderr  # a progress bar


def test_only_what_is_needed_is_fetched_once_and_runs_offline(
    hub: Hub, lispgpt: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = lispgpt("pull", "jane/austen")
    assert done.code == 0, done.err
    folder = Path(done.out)
    assert {path.name for path in folder.rglob("*")} == {path.name for path in AUSTEN.iterdir()} | {
        "chat_template.jinja"
    }
    for path in AUSTEN.iterdir():
        assert (folder / path.name).read_bytes() == path.read_bytes()
    asked = len(hub.asked)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    done = lispgpt("run", "jane/austen", "--prompt", "It is a truth", "--max-new-tokens", "3")
    assert done.code == 0 and done.out.startswith("It is a truth"), done.err
    assert lispgpt("checkpoint", "info", "jane/austen").code == 0
    assert len(hub.asked) == asked


def test_what_changed_is_fetched_by_pull_alone_and_old_revisions_stay(hub: Hub, lispgpt: Callable[..., Done]) -> None:
    first = hub.commit("jane/austen", "main")
    assert lispgpt("checkpoint", "info", "jane/austen").code == 0
    changed = {**hub.repos["jane/austen"]["main"], "chat_template.jinja": b"new"}
    hub.repos["jane/austen"] = {"old": hub.repos["jane/austen"]["main"], "main": changed}
    assert lispgpt("checkpoint", "info", "jane/austen").code == 0
    fetched = sum(path.startswith("/cdn/") for _, path, _ in hub.asked)
    new = Path(lispgpt("pull", "jane/austen").out)
    assert (new / "chat_template.jinja").read_text() == "new" and new.name != first
    assert sum(path.startswith("/cdn/") for _, path, _ in hub.asked) == fetched  # the weights are the old ones
    assert Path(lispgpt("pull", "jane/austen@old").out).name == first
    assert Path(lispgpt("pull", "jane/austen", "--revision", first).out).name == first
    done = lispgpt("pull", "jane/austen@nowhere")
    assert done.code == 1 and "it has no such revision" in done.err


def test_what_broke_off_goes_on(hub: Hub, lispgpt: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 10_000)
    hub.breaks = 1
    done = lispgpt("pull", "jane/austen")
    assert done.code == 0, done.err
    for path in AUSTEN.iterdir():
        assert (Path(done.out) / path.name).read_bytes() == path.read_bytes()
    ranges = [asked for _, path, asked in hub.asked if path.startswith("/cdn/")]
    assert any(asked and asked != "bytes=0-" for asked in ranges)  # not from its start


def test_what_is_not_ours_to_see_is_one_error(
    hub: Hub, lispgpt: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.private.add("jane/austen")
    for arguments in (("pull", "jane/austen"), ("run", "jane/austen"), ("pull", "jane/nobody")):
        done = lispgpt(*arguments)
        assert done.code == 1 and "set HF_TOKEN" in done.err
    hub.repos["jane/bare"] = {"main": {"README.md": b"", "a.gguf": b"", "b.gguf": b""}}
    done = lispgpt("pull", "jane/bare")
    assert done.code == 1 and "name one: jane/bare/a.gguf, jane/bare/b.gguf" in done.err
    done = lispgpt("pull", "jane/bare/c.gguf")
    assert done.code == 1 and "no such file" in done.err
    done = lispgpt("pull", "jane")
    assert done.code == 1 and "that is ORG/NAME" in done.err
    with monkeypatch.context() as patch:
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        done = lispgpt("run", "jane/other")
        assert done.code == 1 and "HF_HUB_OFFLINE" in done.err
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    done = lispgpt("pull", "jane/austen")
    assert done.code == 1 and "cannot fetch jane/austen" in done.err


@pytest.mark.parametrize(
    "path, names",
    [
        ("jane/austen", True),
        ("jane/austen@v1.0", True),
        ("jane/austen/q4.gguf", True),
        ("jane/austen.lisp", False),
        ("jane/austen.gguf", False),
        ("there/austen", False),
        ("austen", False),
        ("/jane/austen", False),
        ("../austen", False),
        ("jane/./austen", False),
        ("a/b/c", False),
    ],
)
def test_a_name_is_no_path(path: str, names: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    assert is_hub_name(path) == names
