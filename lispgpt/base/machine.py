"""What ends a command though neither the program nor lispgpt is wrong: the machine lacks a package, memory, or more."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import tempfile

MLIR = ("mlir", "flydsl")
LIMITS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "this user's share of the disk is used up",
    errno.EFBIG: "the file would be larger than is allowed here (ulimit -f)",
    errno.EMFILE: "this process may not open any more files (ulimit -n)",
    errno.ENFILE: "the system has no room for another open file",
    errno.ENOMEM: "there is no memory left",
    errno.EAGAIN: "the system gives this user no more processes or threads (ulimit -u)",
    errno.EROFS: "that file system is read-only",
    errno.EIO: "the device reports an error",
}
TOLD = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS)
"""Of these, what no message says that is about anything else."""

ENDED_FROM_OUTSIDE = {
    signal.SIGKILL: "the system ended it, most likely for want of memory or of time (ulimit -t)",
    signal.SIGTERM: "it was asked to end",
    signal.SIGINT: "it was interrupted",
    signal.SIGHUP: "its terminal is gone",
    signal.SIGXCPU: "the time that it may use is over (ulimit -t)",
    signal.SIGXFSZ: "a file would be larger than is allowed here (ulimit -f)",
}
OF_NAMES = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.ELOOP, errno.EIO, errno.ESTALE)
"""What a name that somebody gave is wrong in, or where it leads; never a bug."""

SMALL_DISK = 16 << 20
"""Bytes that are left of it."""

SMALL_STACK = 4 << 20
"""Bytes; the usual stack has 8 MiB."""


def complaint(error: BaseException) -> str | None:
    """What to tell a user whose machine an exception is about; None where it is about something else."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return _missing_package(error.name.partition(".")[0])
    if isinstance(error, MemoryError):
        return LIMITS[errno.ENOMEM]
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return LIMITS[errno.EAGAIN]
    if isinstance(error, OSError) and error.errno in LIMITS:
        named = f"{os.fspath(error.filename)!s}: " if error.filename else ""
        return f"{named}{LIMITS[error.errno]}"
    if isinstance(error, OSError) and error.filename is not None and error.errno in OF_NAMES:
        return f"cannot use {os.fspath(error.filename)!s:.200}: {error.strerror}"
    if isinstance(error, FileNotFoundError) and "temporary directory" in str(error):
        return "no folder for temporary files can be written to (TMPDIR names another)"
    return _said_by_others(str(error))


def _said_by_others(text: str) -> str | None:
    """A limit that a library or a tool names in what it says, in the system's words."""
    if "failed to map segment" in text:  # the loader's, for want of address space
        return LIMITS[errno.ENOMEM]
    return next((LIMITS[number] for number in TOLD if os.strerror(number) in text), None)


def why_it_gave_up() -> str | None:
    """The limit that a library most likely ran into which has ended its process with a message of its own, or none."""
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        return f"{LIMITS[errno.EFBIG]}, most likely"
    return LIMITS[errno.ENOSPC] if shutil.disk_usage(tempfile.gettempdir()).free < SMALL_DISK else None


def _missing_package(name: str) -> str | None:
    if name == "lispgpt":
        return None
    if name in MLIR:
        advice = "a compiled artifact (.lgpt) runs without it"
        return f"compiling needs MLIR, which is not installed here: pip install {_requirement('flydsl')} ({advice})"
    return f"the Python package {name} is not installed here: pip install {_requirement(name)}"


def _requirement(name: str) -> str:
    """A package as this one asks for it, with its version; of those that only some need, the extra."""
    from importlib.metadata import PackageNotFoundError, requires  # takes long to import, and is for failures alone

    try:
        wanted = requires("lispgpt") or []
    except PackageNotFoundError:
        return name
    of_name = [text for text in wanted if text.partition("==")[0] == name]
    if plain := [text for text in of_name if ";" not in text]:
        return plain[0]
    extras = [text.partition("extra == ")[2].strip("\"' ") for text in of_name]
    return next((f"'lispgpt[{extra}]'" for extra in extras if extra and extra != "test"), name)


def ended_from_outside(number: int) -> str | None:
    """Why a signal that ended a child is no fault of what ran in it; None where it may be one."""
    if number in ENDED_FROM_OUTSIDE:
        return ENDED_FROM_OUTSIDE[signal.Signals(number)]
    stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
    if number == signal.SIGSEGV and 0 <= stack < SMALL_STACK:
        return f"its stack of {stack >> 10} KiB is small (ulimit -s 8192 is usual)"
    return None
