"""Children end with their parent, interrupts and closed streams with a word; prompts come from where users put them."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import forked
import pytest
import seeded

from lispgpt.cli import main
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.make import make

PROGRAM = Path(__file__).resolve().parent.parent / "examples" / "gpt2_generate.lisp"
LISPGPT = [sys.executable, "-m", "lispgpt"]
LOOP = """(require-dialect arith scf)
(extern-fn clock_ms (-> [] [i64]))
(defn main []
  (println "running")
  (scf.while (region (block [] (clock_ms) (scf.condition (: true i1)))) (region (block [] (scf.yield)))))
"""
"""A loop without an end; one that did nothing would be left out."""
FORKING = LOOP.replace("(defn", "(extern-fn fork (-> [] [i32]))\n(defn").replace(
    "  (println", "  (if (= (fork) 0) (fork) 0)\n  (println"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("processes")
    make(folder / "m.bin", Gpt2Shape.unpadded(vocab=300, context=20, layers=1, heads=3, width=12), "llmc", "f32", 1)
    make(folder / "other.bin", Gpt2Shape.unpadded(vocab=17, context=20, layers=1, heads=1, width=8), "llmc", "bf16", 1)
    return folder


def run(folder: Path, *options: object, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    words = ["run", PROGRAM, "--checkpoint", "m.bin", "--max-new-tokens", 3, *options]
    environment = os.environ | {"LISPGPT_CACHE": str(folder / "cache")}
    return forked.lispgpt(*words, cwd=folder, env=environment, input=stdin)


def alive_below(process: int) -> list[int]:
    """The processes that descend from one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == process:
                found += [int(entry.name), *alive_below(int(entry.name))]
    return found


def gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


LEVELS = ["the command", "its child", "the program's parent", "the program"]
ENDINGS = [(level, ending) for level in range(4) for ending in (signal.SIGTERM, signal.SIGKILL)]
RARE = [(1, signal.SIGTERM), (2, signal.SIGTERM), (3, signal.SIGKILL)]


@pytest.mark.parametrize(
    ("level", "ending"),
    [
        pytest.param(*each, id=f"{LEVELS[each[0]]} by {each[1].name}", marks=[pytest.mark.slow] if each in RARE else [])
        for each in ENDINGS
    ],
)
def test_a_program_ends_with_the_command_that_runs_it(level: int, ending: signal.Signals, tmp_path: Path) -> None:
    """Processes that the program has forked, and their threads, end too, whichever of them is ended from outside; no
    temporary file is left."""
    (tmp_path / "loop.lisp").write_text(FORKING)
    (temporary := tmp_path / "temporary").mkdir()
    given = os.environ | {"TMPDIR": str(temporary)}
    command = subprocess.Popen([*LISPGPT, "run", "loop.lisp"], cwd=tmp_path, env=given, stdout=subprocess.PIPE)
    try:
        deadline = time.time() + 60
        while len(below := alive_below(command.pid)) < 5 and time.time() < deadline and command.poll() is None:
            time.sleep(0.1)
        assert len(below) == 5, "command's child, compiler's process, program, its child, and that one's"
        os.kill([command.pid, *below][level], ending)
        command.wait(30)
        while not all(map(gone, below)) and time.time() < deadline:
            time.sleep(0.05)
        assert all(map(gone, below)) and list(temporary.iterdir()) == []
    finally:
        command.kill()
        for process in below:
            if not gone(process):
                os.kill(process, signal.SIGKILL)


CRASHING = """
import os, sys
from lispgpt.runtime.session import Session
from lispgpt.__main__ import main
number = sys.argv.pop()
Session.start = lambda *_, **__: os.kill(os.getpid(), int(number))
main()
"""


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGXCPU])
def test_a_signal_while_generating_is_one_sentence(number: signal.Signals, made: Path) -> None:
    words = ["run", str(PROGRAM), "--checkpoint", "m.bin", "--prompt-tokens", "1,2", str(int(number))]
    done = subprocess.run([sys.executable, "-c", CRASHING, *words], cwd=made, capture_output=True, text=True)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"error: running the model was ended by {number.name}: ")
    assert ("cut short" in last) == (number == signal.SIGBUS)
    assert "Traceback" not in done.stderr and "bug" not in done.stderr


def test_a_checkpoint_cut_short_while_it_is_read_is_one_sentence(made: Path) -> None:
    (made / "cut.bin").write_bytes((made / "m.bin").read_bytes())
    words = [*LISPGPT, "run", str(PROGRAM), "--checkpoint", "cut.bin", "--prompt-tokens", "1", "--tokenizer", "none"]
    text = (
        "import os\nfrom lispgpt.runtime.session import Session\nstart = Session.start\n"
        "def cut(*a, **k):\n    os.truncate('cut.bin', 0)\n    return start(*a, **k)\nSession.start = cut\n"
        "from lispgpt.__main__ import main\nmain()\n"
    )
    words = [sys.executable, "-c", text, *words[3:-2]]
    done = subprocess.run(words, cwd=made, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "was ended by SIGBUS" in done.stderr and "cut short" in done.stderr


def test_every_prompt_and_every_sequence_of_a_batch_is_continued(made: Path) -> None:
    greedy = ["--greedy", "--format", "json"]
    alone = [json.loads(run(made, "--prompt", text, *greedy).stdout)["tokens"] for text in ("hello", "a b")]
    both = json.loads(run(made, "--prompt", "hello", "--prompt", "a b", *greedy).stdout)["texts"]
    assert [each["tokens"] for each in both] == alone
    numbers = run(made, "--prompt-tokens", "1,2", "--prompt-tokens", "3", *greedy).stdout
    assert [each["prompt_tokens"] for each in json.loads(numbers)["texts"]] == [[1, 2], [3]]
    batch = run(made, "--prompt", "hello", "--batch", 2, "--temperature", 5, "--seed", 3, "--format", "json")
    first, second = json.loads(batch.stdout)["texts"]
    assert first["prompt_tokens"] == second["prompt_tokens"] and first["tokens"] != second["tokens"]
    shown = run(made, "--prompt", "hello", "--batch", 3, "--greedy").stdout
    assert shown.count("hello") == 3 and len(shown.splitlines()) == 3
    three = [*("--prompt", "hello"), *("--prompt", "a b"), *("--prompt", "hello"), "--batch", 2]
    seeds = json.loads(run(made, *three, "--seed", 4, "--temperature", 5, "--format", "json").stdout)["texts"]
    for number, text in enumerate(("hello", "a b", "hello")):
        one = run(made, "--prompt", text, "--seed", 4 + number, "--temperature", 5, "--format", "json")
        assert json.loads(one.stdout)["tokens"] == seeds[number]["tokens"]
    (made / "prompts.jsonl").write_text('{"prompt": "hello"}\n"a b"\n{"tokens": [1, 2]}\n')
    lines = json.loads(run(made, "--prompts", "prompts.jsonl", "--samples", 2, *greedy).stdout)["texts"]
    assert [each["tokens"] for each in lines[:4:2]] == [each["tokens"] for each in lines[1:4:2]] == alone
    assert len(lines) == 6 and lines[4]["prompt_tokens"] == [1, 2]
    for text, word in (("{}", "prompts.jsonl:1"), ('"a"\n{"prompt": 3}', "prompts.jsonl:2"), ("", "no prompts")):
        (made / "prompts.jsonl").write_text(text)
        wrong = run(made, "--prompts", "prompts.jsonl")
        assert wrong.returncode == 1 and word in wrong.stderr


def test_standard_input_is_a_prompt(made: Path) -> None:
    expected = run(made, "--prompt", "hello", "--greedy").stdout
    assert expected.startswith("hello")
    assert run(made, "--greedy", stdin="hello\n").stdout == expected
    assert run(made, "--prompt", "-", "--greedy", stdin="hello\n").stdout == expected
    assert run(made, "--prompt", "-", "--prompt", "b", stdin="x").returncode == 2
    (made / "in.txt").write_text("hello\n")
    assert run(made, "--prompt-file", "in.txt", "--greedy").stdout == expected
    assert run(made, "--prompt-file", "in.txt", "--prompt", "b").returncode == 2
    words = " ".join([*LISPGPT, "run", str(PROGRAM), "--checkpoint m.bin --max-new-tokens 3 --greedy"])
    lines = '{"prompt": "hello"}\n{"tokens": [300]}\n'
    wrong = run(made, "--prompts", "-", "--greedy", "--batch", 1, stdin=lines)
    assert wrong.returncode == 1 and wrong.stdout == f"{expected}\n", "an error begins a line"
    assert run(made, "--prompts", "-", "--greedy", stdin=lines.splitlines()[0]).stdout == expected
    assert (
        subprocess.run(["bash", "-c", f"{words} < in.txt"], cwd=made, capture_output=True, text=True).stdout == expected
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words.split(), cwd=made, text=True, **pipes) as waiting:  # type: ignore[call-overload]
        assert "nothing is in the pipe" in waiting.stderr.readline()
        assert waiting.communicate()[0].strip() and waiting.returncode == 0, "it goes on without"


def test_an_artifact_from_elsewhere_wants_trust(made: Path) -> None:
    environment = os.environ | {"LISPGPT_CACHE": str(made / "mine")}

    def lispgpt(*words: str) -> subprocess.CompletedProcess[str]:
        return forked.lispgpt(*words, cwd=made, env=environment)

    assert lispgpt("compile", str(PROGRAM), "--checkpoint", "m.bin", "-o", "own.lgpt").returncode == 0
    generate = ["--checkpoint", "m.bin", "--prompt-tokens", "1,2", "--max-new-tokens", "2", "--greedy"]
    own = lispgpt("run", "own.lgpt", *generate)
    assert own.returncode == 0, own.stderr
    (made / "moved.lgpt").write_bytes((made / "own.lgpt").read_bytes())
    assert lispgpt("run", "moved.lgpt", *generate).stdout == own.stdout
    with zipfile.ZipFile(made / "own.lgpt") as old, zipfile.ZipFile(made / "changed.lgpt", "w") as changed:
        for member in old.namelist():
            changed.writestr(member, old.read(member).replace(b'"temperature": 0.8', b'"temperature": 0.9'))
    for name, folder in (("changed.lgpt", "mine"), ("own.lgpt", "another user's")):
        environment["LISPGPT_CACHE"] = str(made / folder)
        refused = lispgpt("run", name, *generate)
        assert refused.returncode == 1 and "would run with your rights" in refused.stderr
    assert lispgpt("run", "own.lgpt", *generate, "--trust").stdout == own.stdout
    help_ = " ".join(lispgpt("run", "--help").stdout.split())
    assert "--trust" in help_ and "they run with your rights" in help_


@pytest.mark.skipif(os.geteuid() != 0 and not hasattr(os, "fork"), reason="needs a POSIX system")
def test_closed_streams_full_devices_and_no_home(made: Path) -> None:
    words = [*LISPGPT, "run", str(PROGRAM), "--checkpoint", "m.bin", "--prompt", "hello", "--max-new-tokens", "3"]
    environment = {"LISPGPT_CACHE": str(made / "cache"), "PYTHONPATH": str(PROGRAM.parent.parent)}
    command = " ".join(f"'{w}'" for w in words)

    def shell(text: str) -> int:
        return subprocess.run(["bash", "-c", text], cwd=made, env=environment, check=False, timeout=300).returncode

    assert shell(f"{command} >&- 2>&- <&-") == 0
    assert shell(f"{command} 2>/dev/null >/dev/full") == 1
    assert shell(f"{command} --max-new-tokens 500 2>/dev/null | head -c 7 >/dev/null") == 0
    assert not (made / "lispgpt-bug.txt").exists()


def test_an_interrupt_ends_it_with_a_word(made: Path) -> None:
    command = [*LISPGPT, "run", str(PROGRAM), "--checkpoint", "m.bin", "--prompt-tokens", "1", "--format", "text"]

    def started(*more: str) -> subprocess.Popen[str]:
        words = [*command, "--max-new-tokens", "100000000", *more]
        return subprocess.Popen(words, cwd=made, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    process = started("--tokenizer", "none")
    process.communicate(timeout=300)
    assert process.returncode == 1
    process = started("--checkpoint", "other.bin")
    assert process.stdout is not None
    assert process.stdout.read(20)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)  # a hundred million tokens would take days
    assert process.returncode == 130
    assert err.splitlines()[-1] == "interrupted"
    assert "Traceback" not in err


@pytest.mark.parametrize(("before", "code", "said"), [("", 130, "interrupted\n"), ("trap '' INT; ", 7, "")])
def test_an_interrupt_while_it_starts_needs_no_traceback(before: str, code: int, said: str, tmp_path: Path) -> None:
    """The interrupt comes as the command line is imported; where the caller ignores them, that goes on."""
    raising = "import os, signal, sys, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(0.1)\nsys.exit(7)\n"
    (tmp_path / "click.py").write_text(raising)
    command = f"{before}exec {shlex.join([*LISPGPT, 'targets'])}"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (code, "", said)


def test_an_interrupt_while_python_makes_a_class_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python 3.11 has a RuntimeError of whatever a descriptor's `__set_name__` raises."""

    class Late:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyboardInterrupt

    def interrupted(*_: object, **__: object) -> None:
        type("Made", (), {"late": Late()})

    monkeypatch.setattr(main.main_group, "main", interrupted)
    with pytest.raises(SystemExit) as ended:
        main.main([])
    assert ended.value.code == 130 and capsys.readouterr().err == "interrupted\n"


def test_an_interrupt_at_any_moment_is_one_word(tmp_path: Path) -> None:
    """Of the installed command, also while Python itself starts; before that the signal simply ends the shell."""
    command, rng = Path(sys.executable).with_name("lispgpt"), seeded.rng()
    assert command.read_text().startswith("#!/bin/sh")
    (tmp_path / "loop.lisp").write_text(LOOP)
    for moment in [*rng.uniform(0, 0.07, 10), *rng.uniform(0, 0.5, 6)]:
        process = subprocess.Popen([command, "run", "loop.lisp"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        time.sleep(moment)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=300)[1]
        assert process.returncode in (130, -signal.SIGINT), (moment, process.returncode, said)
        assert "Traceback" not in said and "Error" not in said, (moment, said)
