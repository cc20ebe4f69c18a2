"""Commands in forks of the tests' process, which has imported and read what an interpreter would spend a second on.

What the start of an interpreter itself does, and what a command does when it is interrupted, is for real ones to show.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from lispgpt import __main__

MOST_SECONDS = 300


def lispgpt(
    *words: object,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    input: str | None = None,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """What subprocess.run says of `python -m lispgpt …` where it captures text; without input there is nothing to read.

    It is ended after MOST_SECONDS, by SIGALRM.
    """
    command = ["lispgpt", *map(str, words)]
    with _giving(input) as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            _be_the_command(command, cwd, os.environ if env is None else env, (given, out, err))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said = [_text(file) for file in (out, err)]
    done = subprocess.CompletedProcess(command, code, *said)
    if check:
        done.check_returncode()
    return done


def _giving(text: str | None) -> BinaryIO:
    """A pipe from which a text is read that has room in it."""
    if text is None:
        return open(os.devnull, "rb")
    end, start = os.pipe()
    os.set_blocking(start, False)
    with open(start, "wb") as pipe:
        pipe.write(text.encode())
    return open(end, "rb")


def _text(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n")


def _be_the_command(command: list[str], cwd: Path | None, env: Mapping[str, str], files: Any) -> None:
    """Ends the process as an interpreter does."""
    code = 1
    try:
        atexit._clear()
        faulthandler.disable()
        warnings.resetwarnings()
        signal.alarm(MOST_SECONDS)
        environment = dict(env)
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None
        os.chdir(cwd or ".")
        for descriptor, file in enumerate(files):
            os.dup2(file.fileno(), descriptor)
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
        sys.argv = command
        __main__.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
