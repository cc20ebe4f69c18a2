"""Full disks, pipes and devices for files, and other ends of what a machine gives: one sentence, and no bug of ours."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import lispgpt
from lispgpt.base.child import Outcome, Reporter, compile_in_child, run_in_child
from lispgpt.base.errors import InternalError, UserError
from lispgpt.cli import main
from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.ir.mlir import ir
from lispgpt.passes.targets.binary import linker_toolkit
from lispgpt.programs import launch
from lispgpt.runtime.checkpoints.mapped_file import MappedFile
from lispgpt.runtime.checkpoints.safetensors_file import read_safetensors, write_safetensors
from lispgpt.runtime.gguf.header import read_header
from lispgpt.runtime.tokenizers.huggingface import open_tokenizer
from lispgpt.runtime.training.run_folder import RunFolder

pytestmark = pytest.mark.drawn

ROOT = Path(__file__).resolve().parent.parent
TOUR = ROOT / "examples" / "tour" / "01-constants.lisp"
LISPGPT = f"{sys.executable} -m lispgpt"


def shell(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    given = os.environ | {"PYTHONPATH": str(ROOT), "LISPGPT_CACHE": str(folder / "cache")} | environment
    words = ["bash", "-c", command.replace("lispgpt", LISPGPT, 1)]
    return subprocess.run(words, cwd=folder, env=given, capture_output=True, text=True, timeout=300, check=False)


def assert_refused(done: subprocess.CompletedProcess[str], *words: str, code: int = 1) -> None:
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr and "bug" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_output_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    assert_refused(shell(f"lispgpt run {TOUR} >/dev/full", tmp_path), "standard output: ")
    (tmp_path / "leaves.lisp").write_text(
        '(extern-fn exit (-> [i32] []))\n(defn main [] (println "x") (exit (: 0 i32)))'
    )
    assert_refused(shell("lispgpt run leaves.lisp >/dev/full", tmp_path), "standard output: ")


@pytest.mark.parametrize(
    "command",
    ["run {}", "compile {}", "fmt {}", "opt {}", "run x.lisp --pipeline {}", "run {}.lgpt", "run x.lisp --entry logits "
     "--input tokens={}.npy"],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["fifo", "/dev/zero"])
def test_pipes_and_devices_are_no_files(command: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "x.lisp").write_text("(entry logits [tokens positions] tokens)")
    place = kind
    if kind == "fifo":
        os.mkfifo(tmp_path / "pipe.lisp")
        place = "pipe.lisp"
    if "{}." in command:  # where the ending says what it is
        ending = command.partition("{}")[2]
        (tmp_path / f"link{ending}").symlink_to(place)
        place = "link"
    assert_refused(shell(f"lispgpt {command.format(place)}", tmp_path), "a pipe or a device")


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "model.safetensors", "tokenizer_config.json", "generation_config.json"]
)
def test_a_pipe_in_place_of_a_checkpoints_file_is_named(name: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "models" / "austen", tmp_path / "hf")
    (tmp_path / "hf" / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / "hf" / name)
    with pytest.raises(UserError, match=f"cannot read .*{name}: it is a pipe or a device"):
        lispgpt.load(tmp_path / "hf").prompt("Hi")


@pytest.mark.parametrize("read", [read_header, MappedFile, read_safetensors])
def test_a_pipe_in_place_of_a_part_of_weights_is_named(read: Callable[[Path], object], tmp_path: Path) -> None:
    """The second file of two of GGUF, or of safetensors: the first alone is named by a user."""
    os.mkfifo(tmp_path / "part")
    with pytest.raises(UserError, match=r"cannot read .*part: it is a pipe or a device"):
        read(tmp_path / "part")


def test_a_pipe_in_place_of_a_runs_lock_is_said(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(UserError, match=f"cannot train in {tmp_path}: .*it is no ordinary file"):
        RunFolder(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="pipe: it is a pipe or a device, and no ordinary file"):
        lispgpt.load(tmp_path / "pipe")


def test_letters_that_the_terminal_lacks_are_spelled(tmp_path: Path) -> None:
    (tmp_path / "e.lisp").write_text('(defn main [] (printlm "é"))')
    assert_refused(shell("lispgpt run e.lisp", tmp_path, PYTHONIOENCODING="ascii"), "\\xe9")


def test_more_than_the_machine_has_is_refused(tmp_path: Path) -> None:
    sizes = "--layers 900 --heads 64 --width 65536 --vocab 500 --context 64"
    assert_refused(shell(f"lispgpt checkpoint make big.bin {sizes}", tmp_path), "the disk has")
    assert not list(tmp_path.glob("*big*"))
    assert_refused(shell(f"lispgpt run {TOUR} --threads 1000000000", tmp_path), "--threads", code=2)


@pytest.mark.parametrize(("limit", "words"), [("-S -t 1", "SIGXCPU: the time"), ("-f 1", "too large")])
def test_limits_of_the_shell_are_named(limit: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "long.lisp").write_text("(defn main [] " + "".join(f"(def x{i} (+ {i} 1))" for i in range(60000)) + ")")
    command = "checkpoint make m.bin --layers 2 --heads 2 --width 64 --vocab 500 --context 64"
    command = "compile long.lisp" if "-t" in limit else command
    assert_refused(shell(f"ulimit {limit}; exec lispgpt {command}", tmp_path), words)


def test_a_tokenizers_panic_is_an_error_of_its_file(tmp_path: Path) -> None:
    library = Tokenizer(models.BPE({"a": 0}, []))
    library.decoder = decoders.ByteLevel()
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = open_tokenizer(tmp_path / "tokenizer.json")

    class PanicException(BaseException):
        """As the library's own, which is no Exception."""

    class Panicking:
        def encode(self, *_: object, **__: object) -> None:
            raise PanicException("called `Result::unwrap()` on an `Err` value: RegexError")

    tokenizer._library = Panicking()  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"cannot encode this text: .*RegexError"):
        tokenizer.encode_valid("aaa")


def test_code_that_does_not_fit_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lispgpt.runtime.devices.cpu import CpuDevice

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    device = CpuDevice(1)
    for code in (b"no machine code", b""):
        with pytest.raises(UserError, match="does not load"):
            device.load(code, {})
    device.close()
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN, "a file that grows too large is an OSError"


@pytest.mark.parametrize("files", [5, 6, 8, 11])
def test_too_few_open_files_are_said(files: int, tmp_path: Path) -> None:
    """Whichever file cannot be opened; with more of them programs run."""
    done = shell(f"ulimit -n {files}; exec lispgpt run {TOUR}", tmp_path)
    if done.returncode:
        assert_refused(done, "ulimit -n")
    else:
        assert files > 6 and done.stdout == "42\n"


def test_too_little_memory_is_said(tmp_path: Path) -> None:
    for kilobytes in (300000, 450000):
        assert_refused(shell(f"ulimit -v {kilobytes}; exec lispgpt run {TOUR}", tmp_path), "there is no memory left")


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90", "rocm:gfx1151"])
@pytest.mark.parametrize("blocks", [0, 1])
def test_no_room_for_the_compilers_files_is_said(blocks: int, target: str, tmp_path: Path) -> None:
    (tmp_path / "x.lisp").write_text("(require nn)\n(entry logits [(x [40 50])] (softmax (gelu x)))")
    done = shell(f"ulimit -f {blocks}; exec lispgpt compile x.lisp --target {target}", tmp_path)
    assert_refused(done, "temporary" if blocks == 0 else "large")
    assert [path.name for path in tmp_path.iterdir()] == ["x.lisp"]


@pytest.mark.parametrize("target", ["cpu", pytest.param("rocm:gfx1151", marks=pytest.mark.slow)])
@pytest.mark.parametrize("blocks", [8, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 24, 64))])
def test_temporary_files_go_whatever_the_compilers_end(blocks: int, target: str, tmp_path: Path) -> None:
    """LLVM leaves its own where it gives up, and the folder that TMPDIR names is full until somebody looks."""
    (tmp_path / "temporary").mkdir()
    given = {"TMPDIR": str(tmp_path / "temporary")}
    program = ROOT / "examples" / "gpt2.lisp"
    command = f"compile {program} --set layers=2 --target {target} -o x.lgpt"
    done = shell(f"ulimit -f {blocks}; exec lispgpt {command}", tmp_path, **given)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert_refused(done, "larger than is allowed here (ulimit -f)")


def test_a_linker_of_somebody_elses_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who knows where it would lie may have put another there."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = linker_toolkit()
    assert place.parent == tmp_path and linker_toolkit() == place
    place.chmod(0o777)
    (place / "llvm" / "bin" / "ld.lld").write_text("#!/bin/sh\nexit 1\n")
    other = linker_toolkit()
    assert other != place and "exit 1" not in (other / "llvm" / "bin" / "ld.lld").read_text()
    shutil.rmtree(place)
    place.symlink_to(tmp_path)
    assert linker_toolkit() == other


def test_a_small_stack_is_named(tmp_path: Path) -> None:
    assert_refused(shell(f"ulimit -s 128; exec lispgpt run {TOUR}", tmp_path), "its stack of 128 KiB is small")


def test_a_library_that_ends_the_compiler_is_told_from_a_program_that_exits() -> None:
    def leaves(_: Reporter) -> int:
        os._exit(7)

    assert run_in_child(leaves) == Outcome(7, 0, "start", None, finished=False)
    assert run_in_child(lambda _: 7).finished
    with pytest.raises(InternalError, match="a library ended the compiler with exit code 7"):
        compile_in_child(leaves)


def test_a_disk_that_is_full_before_a_program_begins_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=0))
    with pytest.raises(UserError, match="gave up: the disk is full"):
        launch._checked(Outcome(1, 0, "pass gpu-module-to-binary", finished=False))
    assert launch._checked(Outcome(1, 0, "run", finished=False)).code == 1, "the program's own exit"


def test_temporary_files_are_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where Python would find no room: what LLVM writes goes there."""
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._get_default_tempdir", lambda *_: "/elsewhere")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    main._keep_to_tmpdir()
    assert tempfile.gettempdir() == str(tmp_path)


def test_standard_input_is_utf8_ends_and_may_be_closed(tmp_path: Path) -> None:
    for before, after, said in (
        ("echo '(+ 1 2) ; é' |", "", "3"),
        ("", "<&-", ""),
        ("printf '\"\\377\"' |", "", '"'),
    ):
        done = shell(f"{before} lispgpt repl {after}", tmp_path, PYTHONIOENCODING="ascii")
        assert done.returncode == 0 and said in done.stdout + done.stderr, done
        assert "bug" not in done.stderr, done
    assert_refused(shell("lispgpt repl </dev/zero", tmp_path), "standard input has a line of more than")


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    for made in ("run", "compile --emit mlir", "fmt"):
        (tmp_path / os.fsdecode(b"n\xff.lisp")).write_text("(defn main [] (: 3 i64))\n")
        done = shell(f"lispgpt {made} $'n\\xff.lisp'", tmp_path)
        assert done.returncode == 0, done
    (tmp_path / os.fsdecode(b"e\xff.lisp")).write_text("(defn main [] (foo))")
    assert_refused(shell("lispgpt run $'e\\xff.lisp'", tmp_path), "e\\udcff.lisp:1:16")


def test_a_pipe_in_place_of_metrics(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    assert_refused(shell("lispgpt plot .", tmp_path), "a pipe or a device")
    assert_refused(shell("lispgpt tokenizer train /dev/zero", tmp_path), "a pipe or a device")


def test_so_few_open_files_that_the_shell_keeps_none_are_said(tmp_path: Path) -> None:
    """The installed command is a shell's script, which has files of its own."""
    command = f"exec {Path(sys.executable).with_name('lispgpt')} repl </dev/null"
    words = ["bash", "-c", f"ulimit -n 12; {command}"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False, timeout=300)
    assert done.returncode == 0 or b"(ulimit -n)" in done.stderr, done


def test_a_compiled_programs_memory_is_given_back(tmp_path: Path) -> None:
    """Of a process that compiles one program after another by itself."""
    (tmp_path / "m.lisp").write_text("(entry logits [(x [8 64] f32)] (tanh x))\n")

    def contexts() -> int:
        gc.collect()
        return sum(isinstance(one, ir.Context) for one in gc.get_objects())

    before = contexts()
    for _ in range(3):
        compile_request(Request(tmp_path / "m.lisp", "cpu"), Observer())
    assert contexts() == before


SIDES = "[" + "1 " * 72 + "]"


@pytest.mark.parametrize(
    "text",
    [f"(weights (w {SIDES}))", f"(state (s {SIDES}))", f"(entry f [(x {SIDES} f32)] x)",
     f"(entry f [(x [1] f32)] (reshape x {SIDES}))"],
)  # fmt: skip
def test_a_tensor_of_more_dimensions_than_arrays_have_is_refused_at_its_form(text: str, tmp_path: Path) -> None:
    path = tmp_path / "p.lisp"
    path.write_text(f"(require nn)\n{text}")
    with pytest.raises(UserError, match=r"at most 3[12] dimensions") as caught:
        compile_request(Request(path), Observer())
    assert caught.value.span is not None


def test_a_files_tensor_of_more_dimensions_is_damage(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "m.safetensors", [("w", (1,) * 40, "f32")], [np.ones(1, np.float32)])
    with pytest.raises(UserError, match="is damaged: tensor 'w' has 40 dimensions"):
        read_safetensors(tmp_path / "m.safetensors")
