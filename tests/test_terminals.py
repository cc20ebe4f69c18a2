"""Nothing that files hold, their names among it, reaches a terminal as a command to it."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from recorded_folders import folders
from rich.console import Console

from lispgpt.cli.chat_session import ChatSession
from lispgpt.cli.main import main
from lispgpt.cli.progress import Progress
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.make import make

ESCAPE = "\x1b]0;owned\x07\x1b[31m\x9b"
COMMAND = re.compile("[\x07\x9b]|\x1b(?!\\[[0-9;?]*[mKhlA-H])|owned\x07")
"""Of a terminal: what is not a colour or a movement of a progress bar."""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def said(*words: object) -> str:
    """All that a command says to a terminal, which ended well or with an error of its user's."""
    terminal = Terminal()
    with pytest.raises(SystemExit) as ended, redirect_stdout(terminal), redirect_stderr(terminal):
        main(list(map(str, words)))
    assert ended.value.code in (0, 1, 2), terminal.getvalue()
    assert not COMMAND.search(terminal.getvalue()), repr(terminal.getvalue())
    return terminal.getvalue()


def test_names_of_files_do_not_steer_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LISPGPT_CACHE", str(tmp_path / "cache"))
    model, text, tokenizer = f"m{ESCAPE}.bin", f"t{ESCAPE}.txt", f"t{ESCAPE}.json"
    make(Path(model), Gpt2Shape.unpadded(vocab=300, context=20, layers=1, heads=1, width=8), "llmc", "bf16", 1)
    Path(text).write_text("a b c a b c")
    Path(f"p{ESCAPE}.lisp").write_text("(entry e [(x [4] f32)] (* 2.0 x))")
    shown = r"\x1b]0;owned"
    assert shown in said("checkpoint", "info", model)
    for words in (
        ("tokenizer", "train", text, "--vocab-size", "260", "-o", tokenizer),
        ("tokenizer", "encode", text, "--tokenizer", tokenizer, "-o", f"t{ESCAPE}.shard"),
        ("compile", f"p{ESCAPE}.lisp", "-o", f"p{ESCAPE}.lgpt"),
        ("fmt", f"p{ESCAPE}.lisp"),
        ("examples", f"e{ESCAPE}"),
        ("sign", f"p{ESCAPE}.lgpt", "--key", f"k{ESCAPE}"),
        ("plot", f"run{ESCAPE}"),
        ("bench", f"none{ESCAPE}"),
        ("run", model, "--set", f"a{ESCAPE}=1"),
        (f"none{ESCAPE}",),
    ):
        said(*words)


def test_what_a_folder_says_does_not_steer_a_terminal(tmp_path: Path) -> None:
    """Its settings, and names of its tensors."""
    folder = next(each for each in folders() if each.config["model_type"] == "qwen2").write(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_act": f"silu{ESCAPE}", ESCAPE: ESCAPE}))
    weights = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(weights[:8], "little")
    header = json.loads(weights[8 : 8 + size])
    header[ESCAPE] = header.pop("model.norm.weight")
    changed = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(changed).to_bytes(8, "little") + changed + weights[8 + size :])
    said("checkpoint", "info", folder)
    said("run", folder, "--prompt-tokens", "1,2")


def test_training_says_names_as_they_are(tmp_path: Path) -> None:
    """A path may look like the console's own marks."""
    heard = io.StringIO()
    with Progress(Console(file=heard, soft_wrap=True)) as progress:
        progress.saved(3, Path(f"run[/b][red]{ESCAPE}"))
        progress.sampled(3, f"[/b]{ESCAPE}")
    assert not COMMAND.search(heard.getvalue()) and heard.getvalue().count("[/b]") == 2


def test_an_answer_does_not_steer_a_terminal_that_the_prompt_does_not_come_from() -> None:
    session, terminal = ChatSession.__new__(ChatSession), Terminal()
    session._terminal = False
    with redirect_stdout(terminal), redirect_stderr(terminal):
        session._show(False, f"an answer {ESCAPE}")
        session._show(True, f"a thought {ESCAPE}")
    assert "an answer" in terminal.getvalue() and not COMMAND.search(terminal.getvalue())
