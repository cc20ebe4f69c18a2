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
"""What a command may take for one hostile file: seconds of processors, or of standing still, however busy the machine
is with other work."""

PATIENCE = 20 * SECONDS
"""Seconds on the clock after which a command is ended that neither works nor stands still."""

STILL = 0.01
"""The part of a processor below which a command stands still; one among fifty others gets more than that."""

BUSY = f"it took more than {SECONDS:.0f} s of processors"
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
    """How a command ended: its exit code, or minus the signal's number; seconds of processors; bytes of memory at the
    most; what it said; what it has left in the folder for temporary files, whether processes of it were left, and why
    it was ended before its time."""

    code: int
    seconds: float
    nbytes: int
    out: str
    err: str
    left: tuple[str, ...] = ()
    alive: bool = False
    ended: str = ""

    def problems(self) -> list[str]:
        """What may not be, whatever the file holds."""
        found = [what for what, pattern in STRANGE if pattern.search(self.err)]
        if self.ended or self.seconds > SECONDS:
            found.append(self.ended or BUSY)
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
        child = os.fork()
        if child == 0:
            _be(words, folder, cache, temporary, (standard, out, err))
        code, used, ended = _watched(child)
        alive = _end_group(child)
        left = tuple(path.name for path in temporary.iterdir() if not path.name.startswith("lispgpt-lld-"))
        said = [path.read_text(errors="replace") if path.exists() else "" for path in (out, err)]
        return End(code, used.ru_utime + used.ru_stime, used.ru_maxrss << 10, *said, left, alive, ended)


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


def _watched(child: int) -> tuple[int, resource.struct_rusage, str]:
    """The exit code of a process, or minus its signal, what it and its children used, and why it was killed, if so."""
    clock, pause, ended = _Clock(child), 0.002, ""
    while True:
        process, status, used = os.wait4(child, os.WNOHANG)
        if process:
            return os.waitstatus_to_exitcode(status), used, ended
        if not ended and (ended := clock.over()):
            os.killpg(child, signal.SIGKILL)
        time.sleep(pause)
        pause = min(0.05, pause * 1.3)


class _Clock:
    """Says when a session of processes has had its time."""

    def __init__(self, session: int) -> None:
        self.session = session
        self.began = self.looked = self.moved = time.monotonic()
        self.worked = 0.0

    def over(self) -> str:
        """Why it is to be ended, looked up once a second; "" where it may go on."""
        now = time.monotonic()
        if now - self.looked < 1:
            return ""
        self.looked = now
        seconds = _processor_seconds(self.session)
        if seconds > self.worked + STILL * (now - self.moved):
            self.worked, self.moved = seconds, now
        if seconds > SECONDS:
            return BUSY
        if now - self.moved > SECONDS:
            return f"it stood still for {SECONDS:.0f} s"
        return f"it was not done after {PATIENCE:.0f} s" if now - self.began > PATIENCE else ""


def _processor_seconds(session: int) -> float:
    """What all processes of a session, and the children that they have waited for, have used."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _end_group(group: int) -> bool:
    """End what a command has left; whether there was anything."""
    try:
        time.sleep(0.01)
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
