"""A compiled model in a file: manifest, machine code and the source that it came from, in one zip (or a folder).

`manifest.json` has: format, version, target, device_code (a file's name), code_hash (its SHA-256), config, weights,
states, generate, precision, folder, kernels, plan, and for GPUs rates and objects (name → SHA-256 of the files that
hold the same code compiled for the chip itself).  The version is the oldest whose readers understand all of it;
one that this code does not read is refused, and nothing in the archive is executed before the plan is validated.
`signature.json`, where there is one, says who vouches for the manifest, and with it for the code.
"""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lispgpt.base.dtypes import DTYPES, MOST_DIMENSIONS
from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing
from lispgpt.base.folder_map import FolderMap
from lispgpt.base.json_files import is_number, parse_json
from lispgpt.base.precisions import EXACT, PRECISIONS
from lispgpt.base.reading import check_ordinary
from lispgpt.runtime.plan.plan import Buffer, Plan
from lispgpt.runtime.plan.steps import LARGEST
from lispgpt.runtime.plan.work import Rates, Work

FORMAT, VERSION, OLDEST = "lispgpt-artifact", 4, 2
"""Version 3 has what is made of weights, version 4 what runs say, of which those that read older ones know nothing."""

COUNTS = ("max-new-tokens", "top-k", "seed")
NUMBERS = ("temperature", "top-p", "min-p", "repeat-penalty", "presence-penalty", "frequency-penalty")
"""Options of `generate`, which has `greedy` too."""
MANIFEST, SIGNATURE = "manifest.json", "signature.json"
REQUIRED = ("target", "device_code", "code_hash", "config", "weights", "states", "generate", "kernels", "plan")


@dataclass(frozen=True)
class Artifact:
    """target: such as "cpu" or "cuda:sm_90"; host: what CPU code was made for ("" where any machine will do).

    weights, states: name → {"shape", "dtype"}, and of weights "stacked" where the first dimension counts layers,
    "layers" of a stack that only some have a part of, and "init", what the program has it begin with.  generate:
    {"entry", "options"} or None.  kernels: name → facts that devices and reports read.  rates: what floors are reckoned
    with, where the chip's are known.  folder: what Hugging Face's folders of this model call its weights and config,
    where the program says so.
    objects: the code compiled for the chip itself.  sources: file name → text.
    precision: one of PRECISIONS.
    stored, signature: the bytes of a file's manifest and of its signature, where it was loaded from one that has them.
    """

    target: str
    config: Mapping[str, Any]
    weights: Mapping[str, Mapping[str, Any]]
    states: Mapping[str, Mapping[str, Any]]
    generate: Mapping[str, Any] | None
    kernels: Mapping[str, Mapping[str, Any]]
    plan: Plan
    code: bytes
    code_name: str
    objects: Sequence[bytes] = ()
    host: str = ""
    rates: Rates | None = None
    precision: str = EXACT
    folder: FolderMap | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    stored: bytes = field(default=b"", repr=False, compare=False)
    signature: bytes = field(default=b"", repr=False, compare=False)

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(entry.name for entry in self.plan.entries))
        return f"<Artifact for {self.target}: {names}; {len(self.weights)} weights, {len(self.code):,} bytes of code>"

    def _repr_html_(self) -> str:
        """What notebooks show."""
        about = f"{len(self.weights)} weights, {len(self.kernels)} kernels, {len(self.code):,} bytes of code"
        return self.plan.table(f"Artifact for {self.target}: {about}")

    def manifest(self) -> bytes:
        """The manifest as `save` writes it."""
        manifest = {
            "format": FORMAT,
            "version": VERSION
            if any(e.reports for e in self.plan.entries)
            else OLDEST + (self.plan.making is not None),
            "target": self.target,
            "host": self.host,
            "precision": self.precision,
            "device_code": self.code_name,
            "code_hash": _hash(self.code),
            "config": dict(self.config),
            "weights": dict(self.weights),
            "states": dict(self.states),
            "generate": self.generate,
            "kernels": dict(self.kernels),
            "plan": self.plan.to_json(),
            "rates": asdict(self.rates) if self.rates else None,
            "folder": self.folder.to_json() if self.folder else None,
            "objects": {name: _hash(data) for name, data in self._named_objects().items()},
        }
        return json.dumps(manifest).encode()

    def save(self, path: str | Path) -> None:
        """Write a zip; an existing file is replaced only when all of it is written."""
        with replacing(Path(path)) as file, zipfile.ZipFile(file, "w") as archive:
            members = {MANIFEST: self.manifest(), self.code_name: self.code, **self._named_objects()}
            members |= {f"source/{name}": text.encode() for name, text in self.sources.items()}
            for name, data in members.items():
                archive.writestr(zipfile.ZipInfo(name), data)  # of no time: equal artifacts have equal bytes

    def _named_objects(self) -> dict[str, bytes]:
        return {f"objects/{number}": data for number, data in enumerate(self.objects)}


def load_artifact(path: Path) -> Artifact:
    """Read and validate a zip or folder; UserError says what is wrong with it."""
    read = _reader(path)
    stored = read(MANIFEST)
    manifest = parse_json(path / MANIFEST, stored)
    if manifest.get("format") != FORMAT:
        raise UserError(f"{path} is not a lispgpt artifact")
    version = manifest.get("version")
    if type(version) is not int or not OLDEST <= version <= VERSION:
        age = "an older" if isinstance(version, int) and version < OLDEST else "another"
        raise UserError(
            f"{path} was made by {age} lispgpt (artifacts of version {version}; this one reads versions {OLDEST} to "
            f"{VERSION}): compile it again"
        )
    missing = [key for key in REQUIRED if key not in manifest]
    if missing:
        raise UserError(f"{path}: the manifest has no {missing[0]!r}")
    wrong = _misshapen(manifest)
    if wrong:
        raise UserError(f"{path} is damaged: {wrong} in its manifest is not what it should be")
    plan = Plan.from_json(manifest["plan"])
    held = [b.as_declared for b in plan.buffers if b.kind == "weight"]
    odd = [b.name for b in held if not _is_held_by(b, manifest["weights"].get(b.name))]
    if odd:
        raise UserError(f"{path} is damaged: weight {odd[0]!r} has another shape or type in its plan than beside it")
    kernels, code = manifest["kernels"], read(manifest["device_code"])
    plan.validate(kernels)
    rates = Rates.of(manifest.get("rates"))
    for facts in kernels.values():
        Work.of(facts)
    hashes = manifest.get("objects", {})
    objects = {name: read(name) for name in hashes}
    for name, data in {manifest["device_code"]: code, **objects}.items():
        if _hash(data) != {**hashes, manifest["device_code"]: manifest["code_hash"]}[name]:
            raise UserError(f"{path} is damaged: {name} is not the code that was saved")
    return Artifact(
        target=manifest["target"],
        config=manifest["config"],
        weights=manifest["weights"],
        states=manifest["states"],
        generate=manifest["generate"],
        kernels=kernels,
        plan=plan,
        code=code,
        code_name=manifest["device_code"],
        objects=tuple(objects.values()),
        host=manifest.get("host", ""),
        precision=manifest.get("precision", EXACT),
        rates=rates,
        folder=None if manifest.get("folder") is None else FolderMap.from_json(manifest["folder"]),
        sources=_sources(path),
        stored=stored,
        signature=read(SIGNATURE, b""),
    )


def _sources(path: Path) -> dict[str, str]:
    """The program that an artifact was made of, which messages quote; none where it has none that can be read."""
    try:
        return dict([read_source(path)])
    except UserError:
        return {}


def read_source(path: Path) -> tuple[str, str]:
    """(name, text) of the program that an artifact in a zip or folder was made of; UserError where it has none."""
    read, start = _reader(path), "source/"
    try:
        if path.is_dir():
            names = [f"{start}{member.name}" for member in sorted((path / "source").iterdir())]
        else:
            with zipfile.ZipFile(path) as archive:
                names = [name for name in archive.namelist() if name.startswith(start)]
        name = names[0]
        return name.removeprefix(start), read(name).decode()
    except (OSError, zipfile.BadZipFile, IndexError, UnicodeDecodeError):
        raise UserError(f"{path} does not hold the program that it was made of") from None


def attach_signature(path: Path, signature: bytes) -> None:
    """Put a signature into an artifact's zip or folder, in place of the one that is there.

    path: of what `load_artifact` has read.  What the artifact does not name goes away.
    """
    if path.is_dir():
        with replacing(path / SIGNATURE) as file:
            file.write(signature)
        return
    with replacing(Path(path)) as file, zipfile.ZipFile(path) as old, zipfile.ZipFile(file, "w") as archive:
        names = {MANIFEST, *_named(parse_json(path / MANIFEST, old.read(MANIFEST)))}
        kept = [info for info in old.infolist() if info.filename in names or info.filename.startswith("source/")]
        if sum(info.file_size for info in kept) > path.stat().st_size:
            raise UserError(f"{path} is damaged: its files have more bytes than it has")
        for info in kept:
            if info.compress_type != zipfile.ZIP_STORED:
                raise UserError(f"{path} is damaged: its {info.filename} is packed, which artifacts are not")
            archive.writestr(zipfile.ZipInfo(info.filename), old.read(info))
        archive.writestr(zipfile.ZipInfo(SIGNATURE), signature)


def _named(manifest: Mapping[str, Any]) -> list[str]:
    """The members that a manifest, which was read before, says are code."""
    return [manifest["device_code"], *manifest.get("objects", {})]


def _misshapen(manifest: Mapping[str, Any]) -> str | None:
    """The first field whose value has another form than `Artifact.save` gives it."""
    for key in ("target", "device_code"):
        if not isinstance(manifest[key], str):
            return key
    for key in ("config", "weights", "states", "kernels", "objects"):
        if not isinstance(manifest.get(key, {}), dict):
            return key
    for key in ("weights", "states", "kernels"):
        if not all(isinstance(facts, dict) for facts in manifest[key].values()):
            return key
    if not all(map(_is_declaration, manifest["weights"].values())):
        return "weights"
    if manifest.get("precision", EXACT) not in PRECISIONS:
        return "precision"
    generate = manifest["generate"]
    if generate is None:
        return None
    if not isinstance(generate, dict) or not isinstance(generate.get("options"), dict):
        return "generate"
    if not all(map(_is_option, generate["options"].items())):
        return "generate"
    sizes = [manifest["config"].get(name) for name in ("vocab", "context")]
    if not isinstance(generate.get("entry"), str):
        return "generate"
    return None if all(size is None or (type(size) is int and size > 0) for size in sizes) else "config"


def _is_declaration(facts: Mapping[str, Any]) -> bool:
    shape, dtype, layers = facts.get("shape"), facts.get("dtype"), facts.get("layers")
    whole = (
        isinstance(shape, list)
        and len(shape) <= MOST_DIMENSIONS
        and all(type(n) is int and 0 <= n <= LARGEST for n in shape)
    )
    if layers is not None and not (isinstance(layers, list) and whole and [len(layers)] == list(shape or [])[:1]):
        return False
    begins, stacked = facts.get("init", ["constant", 0.0]), facts.get("stacked", False)
    if type(stacked) is not bool or (stacked and not shape) or not _is_beginning(begins):
        return False
    return whole and isinstance(dtype, str) and dtype in DTYPES


def _is_beginning(value: Any) -> bool:
    """Whether it is what weights begin with, such as ["normal", 0.02]."""
    pair = isinstance(value, list) and len(value) == 2
    return pair and value[0] in ("constant", "normal", "uniform") and is_number(value[1])


def _is_held_by(buffer: Buffer, declared: Mapping[str, Any] | None) -> bool:
    """Whether a plan's buffer has room for a weight as it is declared; one in blocks is bytes to the kernels."""
    if declared is None:
        return False
    dtype = DTYPES[declared["dtype"]]
    if dtype.block == 1:
        return (list(buffer.shape), buffer.dtype) == (declared["shape"], dtype.name)
    shape = declared["shape"]
    whole = len(shape) > 0 and shape[-1] % dtype.block == 0
    return whole and dtype.nbytes(math.prod(shape)) == buffer.nbytes


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _is_option(option: tuple[str, Any]) -> bool:
    """Whether an option of `generate` has a value of its kind; what they mean is checked where they are used."""
    name, value = option
    if name in COUNTS:
        return type(value) is int and abs(value) <= LARGEST
    return is_number(value) if name in NUMBERS else name == "greedy" and isinstance(value, bool | int | float)


def _reader(path: Path) -> Any:
    """A function from a member's name, and what stands for it where it is missing, to its bytes."""
    check_ordinary(path)

    def from_folder(name: str, absent: bytes | None = None) -> bytes:
        member = path / name
        if absent is not None and not member.exists():
            return absent
        if "\0" in name or not member.is_file() or path.resolve() not in member.resolve().parents:
            raise UserError(f"{path}: the artifact has no {name}")
        return member.read_bytes()

    def from_zip(name: str, absent: bytes | None = None) -> bytes:
        try:
            with zipfile.ZipFile(path) as archive:
                member = archive.getinfo(name)
                if member.compress_type != zipfile.ZIP_STORED or member.file_size > path.stat().st_size:
                    raise UserError(f"{path} is damaged: its {name} is packed, which artifacts are not")
                return archive.read(member)
        except KeyError:
            if absent is not None:
                return absent
            raise UserError(f"{path}: the artifact has no {name}") from None
        except (OSError, zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError) as error:
            raise UserError(f"{path} cannot be read as an artifact: {error}") from None

    return from_folder if path.is_dir() else from_zip
