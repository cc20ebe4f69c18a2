"""`lispgpt chat`: through pipes, and on a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from lispgpt.cli.chat_session import TWICE
from lispgpt.cli.main import main

AUSTEN = Path(__file__).resolve().parent.parent.parent / "examples" / "models" / "austen"
END = json.loads((AUSTEN / "config.json").read_text())["eos_token_id"]
COMMAND = [sys.executable, "-m", "lispgpt", "chat", str(AUSTEN), "--seed", "1", "--temperature", "0.7"]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LISPGPT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


@pytest.fixture
def piped(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """`piped(text, "--option", …)` has a conversation through pipes."""

    def talk(text: str, *more: str) -> Done:
        (tmp_path / "said").write_text(text)
        with (tmp_path / "said").open() as said, pytest.raises(SystemExit) as ended:
            monkeypatch.setattr("sys.stdin", said)
            main([*COMMAND[3:], *more])
        seen = capfd.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, seen.out, seen.err)

    return talk


def test_answers_alone_go_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["chat", str(AUSTEN), "--greedy", "--max-new-tokens", "5", "--prompt", "It is a", "--prompt", "She"])
    said = capfd.readouterr()
    assert ended.value.code == 0 and len(said.out.strip().splitlines()) == 2
    assert "has no chat template: it goes on with what was said" in said.err


def test_a_pipe_is_a_conversation_whose_messages_may_have_lines(piped: Callable[..., Done], tmp_path: Path) -> None:
    saved = tmp_path / "talk.json"
    text = f'It is\\\na truth\n/retry\n"""My\ndear"""\n/system Be brief.\n/save {saved}\n/bye\nnot read\n'
    done = piped(text, "--max-new-tokens", "12")
    assert done.code == 0, done.err
    messages = json.loads(saved.read_text())["messages"]
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user", "assistant"]
    assert messages[1]["content"] == "It is\na truth" and messages[3]["content"] == "My\ndear"
    answers = [m["content"] for m in messages if m["role"] == "assistant"]
    first, second, third = done.out.rstrip("\n").split("\n") if done.out.count("\n") == 3 else ("", *answers)
    assert (second, third) == tuple(answers) and first != second  # asked again, it drew anew
    again = piped("/retry\n", "--max-new-tokens", "12", "--load", str(saved))
    assert again.code == 0 and again.out.strip()


def test_a_template_is_told_what_was_asked(piped: Callable[..., Done], tmp_path: Path) -> None:
    shown = tmp_path / "refuses.jinja"
    shown.write_text("{{ raise_exception(enable_thinking ~ ' ' ~ (messages | tojson)) }}")
    done = piped("hello\n", "--template", str(shown), "--system", "Be kind.", "--no-think")
    assert done.code == 1 and "Traceback" not in done.err
    assert 'the chat template says: False [{"role": "system", "content": "Be kind."}, {"role"' in done.err


def test_reasoning_stands_apart(piped: Callable[..., Done], tmp_path: Path) -> None:
    template = tmp_path / "thinks.jinja"
    template.write_text("{{ messages[-1].content }}<think>")
    done = piped("It is a truth\n", "--template", str(template), "--max-new-tokens", "8")
    assert done.code == 0 and done.out == "\n" and len(done.err.split()) > 3


def test_what_cannot_be_said_is_one_error(piped: Callable[..., Done], tmp_path: Path) -> None:
    for text, word in (("/nonsense\n", "no command"), ("/retry\n", "nothing was said"), ("/load x.json\n", "x.json")):
        done = piped(text)
        assert done.code == 1 and word in done.err and "Traceback" not in done.err
    template = tmp_path / "long.jinja"
    template.write_text("{{ 'long ' * 1000 }}")
    done = piped("hello\n", "--template", str(template))
    assert done.code == 1 and "the context has room for 240" in done.err


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, command: list[str]) -> None:
        self.process, self._end = pty.fork()
        if self.process == 0:
            os.execve(command[0], command, {**os.environ, "TERM": "xterm"})
        self.seen = ""

    def until(self, pattern: str, seconds: float = 60) -> str:
        """What is shown up to a pattern, which has to come."""
        begun, start = time.monotonic(), len(self.seen)
        while not re.search(pattern, self.seen[start:]):
            assert time.monotonic() - begun < seconds, self.seen
            if select.select([self._end], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self._end, 4096).decode(errors="replace")
                except OSError:
                    break
        return self.seen[start:]

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def code(self) -> int:
        status = os.waitpid(self.process, 0)[1]
        os.close(self._end)
        return os.waitstatus_to_exitcode(status)


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """A model of random numbers with a context so long that its answers last longer than a test waits."""
    wide, context, generator = 32, 1 << 16, np.random.default_rng(1)
    config = json.loads((AUSTEN / "config.json").read_text())
    sizes = {"n_positions": context, "n_ctx": context, "n_embd": wide, "n_head": 2, "n_layer": 1, "dtype": "float32"}
    (tmp_path / "config.json").write_text(json.dumps(config | sizes))
    shutil.copy(AUSTEN / "tokenizer.json", tmp_path)
    shapes: dict[str, tuple[int, ...]] = {"wte": (config["vocab_size"], wide), "wpe": (context, wide)}
    shapes |= {"h.0.attn.c_attn": (wide, 3 * wide), "h.0.attn.c_proj": (wide, wide)}
    shapes |= {"h.0.mlp.c_fc": (wide, 4 * wide), "h.0.mlp.c_proj": (4 * wide, wide)}
    tensors = {f"{name}.weight": generator.normal(0, 0.1, shape) for name, shape in shapes.items()}
    tensors |= {f"{name}.bias": np.zeros(shape[1]) for name, shape in shapes.items() if name.startswith("h.")}
    for norm in ("h.0.ln_1", "h.0.ln_2", "ln_f"):
        tensors |= {f"{norm}.weight": np.ones(wide), f"{norm}.bias": np.zeros(wide)}
    save_file({name: tensor.astype(np.float32) for name, tensor in tensors.items()}, tmp_path / "model.safetensors")
    return tmp_path


def test_ctrl_c_stops_the_answer_alone(endless: Path) -> None:
    choices = ["--seed", "1", "--max-new-tokens", "60000", "--logit-bias", f"{END}=-inf"]
    terminal = Terminal([sys.executable, "-m", "lispgpt", "chat", str(endless), *choices])
    try:
        terminal.until(r"\n> $")
        terminal.type("It is a truth\n")
        terminal.until(r"(\w+\W+){20}")
        terminal.type("\x03")
        terminal.until(r"\n> $")
        time.sleep(1.2 * TWICE)  # within which the same one may come by its other way, and clear what is typed
        terminal.type("/retry\n")
        if "(Ctrl-D" in terminal.until(r"(\w+\W+){12}|ends\)"):  # it came later still, as on a machine at work
            terminal.type("/retry\n")
            terminal.until(r"(\w+\W+){12}")
        terminal.type("\x03")
        terminal.until(r"\n> $")
        time.sleep(1.2 * TWICE)
        terminal.type("\x03")
        assert "Ctrl-D" in terminal.until(r"\n> $")
        terminal.type("/help\n")
        assert "/save FILE" in terminal.until(r"\n> $")
        terminal.type("\x04")
        terminal.until("never", 30)
        assert terminal.code() == 0
    finally:
        with suppress(ProcessLookupError):
            os.kill(terminal.process, signal.SIGKILL)
