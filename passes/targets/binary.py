"""Machine code out of gpu.module ops, with no vendor's SDK: LLVM makes it.

What CPUs and AMD's GPUs need is linked by LLD, where it is installed, or by `lispgpt.base.linking`; NVIDIA's assembler
compiles its code further, where it is installed.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lispgpt.base import scratch
from lispgpt.base.errors import InternalError, UserError
from lispgpt.base.linking import linker
from lispgpt.base.linking.relocatable import Unlinkable
from lispgpt.base.machine import why_it_gave_up
from lispgpt.ir.diagnostics import mlir_message
from lispgpt.ir.mlir import ir, passmanager

FATAL = ("no libcall available", "undefined symbol", "undefined reference")


def serialized_objects(module: ir.Module, format_: str) -> bytes:
    """The code of the module's one gpu.module, which `gpu-module-to-binary` replaces by a gpu.binary.

    format_: "isa" for assembly text, "bin" for an object that LLD links.
    An external function that lowering has left behind is an InternalError: there is nothing to link it with.
    """
    _check_resolved(module)
    for holder in module.operation.regions[0].blocks[0].operations:
        if holder.operation.name == "gpu.module":
            check_lowered(holder.operation, "llvm.", "rocdl.", "nvvm.")
    with scratch.kept_to(), _BackEndOutput() as said:
        options = f"format={format_}" + (f" toolkit={linker_toolkit()}" if format_ == "bin" else "")
        try:
            passmanager.PassManager.parse(f"builtin.module(gpu-module-to-binary{{{options}}})").run(module.operation)
        except ir.MLIRError as error:
            limit = why_it_gave_up()
            said_so = UserError(f"no code could be made: {limit}") if limit else InternalError(mlir_message(error))
            raise said_so from error
    text = said.text()
    if any(sign in text for sign in FATAL):
        raise InternalError(f"the back end could not resolve a call: {text.strip().splitlines()[0]}")
    for op in module.operation.regions[0].blocks[0].operations:
        if op.operation.name == "gpu.binary":
            return object_bytes(str(op.operation.attributes["objects"][0]))
    raise UserError("no kernel is left to make code of: the pipeline lacks collect-gpu-kernels, or lowers none")


def check_lowered(holder: ir.Operation, *dialects: str) -> None:
    """UserError where a pipeline has left ops of which LLVM knows nothing in a module.  dialects: those that it
    knows."""
    left: list[str] = []

    def look(op: Any) -> ir.WalkResult:
        name = op.operation.name
        if not name.startswith(dialects) and op.operation != holder:
            left.append(name)
        return ir.WalkResult.ADVANCE

    holder.walk(look)
    if left:
        names = ", ".join(dict.fromkeys(left[:5]))
        raise UserError(f"the pipeline leaves {len(left)} ops that are not LLVM's: {names}; it lacks a pass for these")


def _check_resolved(module: ir.Module) -> None:
    for top in module.operation.regions[0].blocks[0].operations:
        if top.operation.name != "gpu.module":
            continue
        for op in top.operation.regions[0].blocks[0].operations:
            body = op.operation.regions[0] if len(op.operation.regions) else None
            if op.operation.name == "llvm.func" and body is not None and not list(body.blocks):
                name = ir.StringAttr(op.operation.attributes["sym_name"]).value
                raise InternalError(f"kernels call {name}, which needs a device library: expand it before lowering")


def object_bytes(attribute: str) -> bytes:
    """The payload of a printed #gpu.object: the last quoted string, with \\XX escapes."""
    end = attribute.rindex('"')
    start = attribute.rindex(' = "', 0, end) + 4
    out, i, data = bytearray(), 0, attribute[start:end].encode("utf-8", "surrogateescape")
    while True:
        j = data.find(b"\\", i)
        if j < 0:
            return bytes(out + data[i:])
        out += data[i:j]
        if data[j + 1 : j + 2] == b"\\":
            out += b"\\"
            i = j + 2
        else:
            out.append(int(data[j + 1 : j + 3], 16))
            i = j + 3


class _BackEndOutput:
    """Catches what LLVM prints to the process's standard error while it makes code; shows the rest again."""

    def __enter__(self) -> _BackEndOutput:
        sys.stderr.flush()
        self._file = tempfile.TemporaryFile()
        self._saved = os.dup(2)
        os.dup2(self._file.fileno(), 2)
        return self

    def __exit__(self, *exception: object) -> None:
        os.dup2(self._saved, 2)
        os.close(self._saved)
        self._file.seek(0)
        self._text = self._file.read().decode(errors="replace")
        self._file.close()
        if self._text:
            sys.stderr.write(self._text)

    def text(self) -> str:
        return self._text


def linker_toolkit() -> Path:
    """A folder T with T/llvm/bin/ld.lld, which links as LLD does; it stays for the next time."""
    return _shim(f"#!/bin/sh\n{linker_command()}\n")


def linker_command() -> str:
    """How a shell links what it was given: with the LLD on PATH, and without one, or where that does not link it, with
    this package's own linker."""
    root = Path(linker.__file__).resolve().parents[3]
    start = f"import sys; sys.path.insert(0, {str(root)!r}); from lispgpt.base.linking.linker import main"
    own = f'exec {shlex.quote(sys.executable)} -I -S -c {shlex.quote(f"{start}; sys.exit(main(sys.argv[1:]))")} "$@"'
    found = shutil.which("ld.lld")
    return own if found is None else f'{shlex.quote(found)} "$@" 2>/dev/null && exit 0\n{own}'


def shared_object(pieces: Sequence[bytes]) -> bytes:
    """The shared object of relocatable ones of CPUs, linked by LLD or GNU's ld, where one is installed and links them,
    else by this package's own linker; InternalError where none does."""
    for name in ("ld.lld", "ld"):
        if (found := shutil.which(name)) and (made := _linked_by(found, pieces)):
            return made
    try:
        return linker.link(pieces)
    except Unlinkable as error:
        raise InternalError(f"the linker failed: {error.message}") from error


def _linked_by(program: str, pieces: Sequence[bytes]) -> bytes | None:
    """What an installed linker makes of objects; None where it does not link them.

    UserError where the machine gives it no room.
    """
    with scratch.kept_to(), tempfile.TemporaryDirectory() as folder:
        objects = [Path(folder) / f"{number}.o" for number in range(len(pieces))]
        for path, piece in zip(objects, pieces, strict=True):
            path.write_bytes(piece)
        whole = Path(folder) / "kernels.so"
        command = [program, "-shared", "-o", str(whole), *map(str, objects)]
        try:
            done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
        except OSError:
            return None
        if done.returncode and (limit := why_it_gave_up()):
            raise UserError(f"the linker failed: {limit}")
        return whole.read_bytes() if done.returncode == 0 and whole.exists() else None


def _shim(script: str) -> Path:
    key = hashlib.sha256(script.encode()).hexdigest()[:16]
    root = Path(tempfile.gettempdir()) / f"lispgpt-linker-{os.getuid()}-{key}"
    if not _is_own(root):
        root = scratch.folder() / "toolkit"
    program = root / "llvm" / "bin" / "ld.lld"
    if not program.exists() or program.read_text() != script:
        program.parent.mkdir(parents=True, exist_ok=True)
        temporary = program.with_name(f"ld.lld.{os.getpid()}")
        temporary.write_text(script)
        temporary.chmod(0o700)
        temporary.replace(program)
    return root


def _is_own(folder: Path) -> bool:
    """Whether a folder, which is made where it is not there, is this user's, and nobody else may write to it."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(0o700)
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def find_ptxas() -> str | None:
    """NVIDIA's assembler: on PATH, or of a Python package such as nvidia-cuda-nvcc; None where there is none."""
    found = shutil.which("ptxas")
    if found is None and (packages := importlib.util.find_spec("nvidia")) is not None:
        folders = [Path(folder) for folder in packages.submodule_search_locations or ()]
        installed = sorted(path for folder in folders for path in folder.glob("*/bin/ptxas"))
        found = shutil.which(installed[-1]) if installed else None
    return found


def cubin(ptxas: str, ptx: bytes, chip: str) -> bytes:
    """A chip's own machine code of a module of PTX; UserError says what the assembler has against it.

    Without its lines, which would bring all of PTX's text with them: those are for what compiles PTX anew.
    """
    with scratch.kept_to(), tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "kernels.ptx", Path(folder) / "kernels.cubin"
        source.write_bytes(ptx)
        command = [ptxas, f"-arch={chip}", str(source), "-o", str(target), "--suppress-debug-info"]
        try:
            done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
            made = target.read_bytes() if done.returncode == 0 and target.exists() else b""
        except OSError as error:
            raise UserError(f"{ptxas} does not run: {error.strerror or error}") from error
    if not made:
        said = (done.stderr or done.stdout).decode(errors="replace").strip() or f"exit code {done.returncode}"
        raise UserError(f"{ptxas} does not take it for {chip}: {said.splitlines()[0][:200]}")
    return made
