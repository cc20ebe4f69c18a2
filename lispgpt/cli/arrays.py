"""Inputs and results of entries on the command line: numpy's files, and JSON."""

from __future__ import annotations

import json
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any

import click
import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing
from lispgpt.base.reading import LARGEST, check_ordinary
from lispgpt.cli.terminal import echo

DAMAGED = (
    ValueError,
    TypeError,
    EOFError,
    RuntimeError,
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What numpy and the libraries under it raise for files that are not as they should be."""

MOST_PACKED = 64
"""Bytes that one of a file stands for at most, of arrays larger than LARGEST."""

MOST_SHOWN = 64
"""Numbers of a result that are printed."""


def read_inputs(given: tuple[str, ...]) -> dict[str, np.ndarray]:
    """`x=FILE.npy`, `x=FILE.npz` (its array x, or its only one) and `x=JSON` options as arrays."""
    found: dict[str, np.ndarray] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"--input wants NAME=FILE.npy or NAME=VALUE, not {text!r}")
        if name.strip() in found:
            raise click.UsageError(f"--input gives {name.strip()} twice")
        found[name.strip()] = _read(name.strip(), value.strip())
    return found


def _read(name: str, value: str) -> np.ndarray:
    if not value.endswith((".npy", ".npz")):
        return _from_json(name, value)
    path = Path(value)
    check_ordinary(path)
    try:
        loaded: Any = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            if name in loaded.files or len(loaded.files) == 1:
                member = name if name in loaded.files else loaded.files[0]
                _check_size(path, loaded.zip, member)
                array: np.ndarray = loaded[member]
                return array
            raise UserError(f"{path} has no array {name!r}; it has {', '.join(loaded.files) or 'none'}")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except DAMAGED as error:
        raise UserError(f"{path} is no numpy file: {error}") from error


def _check_size(path: Path, archive: zipfile.ZipFile, name: str) -> None:
    """UserError for an array that is packed into much less than it is."""
    info = next(found for found in archive.infolist() if found.filename in (name, f"{name}.npy"))
    if info.file_size > max(LARGEST, MOST_PACKED * path.stat().st_size):
        raise UserError(f"{path}: its array {name!r} has {info.file_size:,} bytes, which the file is too small for")


def _from_json(name: str, value: str) -> np.ndarray:
    try:
        array = np.array(json.loads(value))
    except (ValueError, RecursionError):
        raise UserError(f"--input {name}={value}: neither a .npy or .npz file nor a number or list in JSON") from None
    if array.dtype.kind not in "iufb":
        raise UserError(f"--input {name}={value}: not numbers, or not as many in each row")
    return array


def write_results(results: dict[str, np.ndarray], path: Path | None, as_json: bool = False) -> None:
    """All results in one .npz file, the only one in a .npy file, or on standard output as far as that is readable;
    as_json: there, all of them as lists by their names."""
    if path is None and as_json:
        echo(json.dumps({name: array.tolist() for name, array in results.items()}))
    elif path is None:
        for name, array in results.items():
            shape = " ".join(map(str, array.shape))
            shown = np.array2string(array, threshold=MOST_SHOWN, max_line_width=100)
            echo(f"{name} {array.dtype} [{shape}]\n{shown}")
    elif path.suffix == ".npy" and len(results) > 1:
        raise UserError(f"the entry has {len(results)} results ({', '.join(results)}): give --output FILE.npz")
    elif path.suffix not in (".npy", ".npz"):
        raise UserError(f"--output {path}: results go to a file .npz, or .npy where there is one only")
    else:
        with replacing(path) as file:
            if path.suffix == ".npy":
                np.save(file, next(iter(results.values())), allow_pickle=False)
            else:
                np.savez(file, **results)  # type: ignore[arg-type]
