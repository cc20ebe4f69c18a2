"""Runs commands of lispgpt's in forks of one process that has all of it loaded, and watches what becomes of them."""

from __future__ import annotations

import importlib
import os
import re
import resource
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SECONDS, MOST_BYTES = 30.0, 4 << 30
"""What a command may take for one hostile file, where each process has a core of its own."""


def patience() -> float:
    """Those seconds on this machine, as busy as it is."""
    return SECONDS * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


LIMIT = 6 << 30
"""Bytes of a command's data at which the system refuses it more, so that the machine lives on."""

STRANGE = (
    ("a traceback", re.compile(r"Traceback \(most recent call last\)|^\s+File \".*\", line \d+", re.MULTILINE)),
    ("a panic of a library", re.compile(r"panicked at|terminate called|core dumped|LLVM ERROR|Assertion .* failed")),
    ("a raw warning", re.compile(r"\b\w+Warning: ")),
    ("a bug of ours", re.compile(r"bug in lispgpt")),
    ("an escape for terminals", re.compile("\x1b|\x9b")),
)


@dataclass(frozen=True)
class End:
    """How a command ended: its exit code, or minus the signal's number; seconds; bytes of memory at the most; what it
    said; what it has left in the folder for temporary files, and whether processes of it were left."""

    code: int
    seconds: float
    nbytes: int
    out: str
    err: str
    left: tuple[str, ...] = ()
    alive: bool = False
    patience: float = SECONDS

    def problems(self) -> list[str]:
        """What may not be, whatever the file holds."""
        found = [what for what, pattern in STRANGE if pattern.search(self.err)]
        if self.seconds > self.patience:
            found.append(f"it took more than {self.patience:.0f} s")
        elif self.code < 0:
            found.append(f"{signal.Signals(-self.code).name} ended it")
        elif self.code not in (0, 1, 2):
            found.append(f"exit code {self.code}")
        elif self.code and not self.err.strip():
            found.append("it says nothing")
        if self.nbytes > MOST_BYTES or "no memory left" in self.err:
            found.append(f"it took {self.nbytes >> 20:,} MiB")
        if self.left:
            found.append(f"it left {', '.join(self.left[:3])} among temporary files")
        return found + ["it left processes"] * self.alive


def load_all() -> None:
    """Import every command, so that forks need not."""
    from lispgpt.cli.main import COMMANDS

    for module, _, _ in COMMANDS.values():
        importlib.import_module(module)
    for module in ("lispgpt.compiler.driver", "lispgpt.programs.launch", "lispgpt.runtime.checkpoints", "tokenizers"):
        importlib.import_module(module)


def run(words: list[str], folder: Path, cache: Path, given: bytes = b"") -> End:
    """One command in a folder; given: its standard input."""
    with tempfile.TemporaryDirectory() as place:
        temporary, out, err, standard = (Path(place) / name for name in ("tmp", "out", "err", "in"))
        temporary.mkdir()
        standard.write_bytes(given)
        began, most = time.monotonic(), patience()
        child = os.fork()
        if child == 0:
            _be(words, folder, cache, temporary, (standard, out, err))
        code, nbytes = _watched(child, began + most)
        seconds = time.monotonic() - began
        alive = _end_group(child)
        left = tuple(path.name for path in temporary.iterdir() if not path.name.startswith("lispgpt-lld-"))
        said = [path.read_text(errors="replace") if path.exists() else "" for path in (out, err)]
        return End(code, seconds, nbytes, *said, left, alive, most)


def _be(words: list[str], folder: Path, cache: Path, temporary: Path, streams: tuple[Path, Path, Path]) -> None:
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        home = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "COLUMNS": "100", "NO_COLOR": "1"}
        os.environ.update(home | {"LISPGPT_CACHE": str(cache), "TMPDIR": str(temporary)})
        tempfile.tempdir = None
        for number, path in enumerate(streams):
            os.dup2(os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT, 0o600), number)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from lispgpt.cli.main import main

        try:
            main(words)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException as error:
        os.write(2, f"Traceback (most recent call last): {error!r}\n".encode())
    finally:
        os._exit(code)


def _watched(child: int, until: float) -> tuple[int, int]:
    """The exit code of a process, or minus its signal, and its memory at the most; it is killed when its time is up."""
    pause = 0.002
    while True:
        process, status, used = os.wait4(child, os.WNOHANG)
        if process:
            return os.waitstatus_to_exitcode(status), used.ru_maxrss << 10
        if time.monotonic() > until:
            os.killpg(child, signal.SIGKILL)
            until += 60
        time.sleep(pause)
        pause = min(0.05, pause * 1.3)


def _end_group(group: int) -> bool:
    """End what a command has left; whether there was anything."""
    try:
        time.sleep(0.01)
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
