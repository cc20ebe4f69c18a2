"""Artifacts: what is saved is loaded; whatever is damaged, newer or tampered with is refused before it runs."""

from __future__ import annotations

import json
import math
import random
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from compiled_models import compile_model, random_weights

from lispgpt.base import host
from lispgpt.base.errors import UserError
from lispgpt.compiler.present import matching_artifact
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.devices.null import NullDevice
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.plan.artifact import Artifact, attach_signature, load_artifact
from lispgpt.runtime.session import Session

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "gpt2_generate.lisp"


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return compile_model(EXAMPLE, layers=1, heads=2, width=8, vocab=13, padded_vocab=16, context=16)


@pytest.fixture
def saved(artifact: Artifact, tmp_path: Path) -> Path:
    path = tmp_path / "model.lgpt"
    artifact.save(path)
    return path


def test_what_is_saved_is_loaded_from_the_zip_and_from_a_folder(
    artifact: Artifact, saved: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(saved) as archive:
        archive.extractall(tmp_path / "folder")
        assert archive.read("source/gpt2_generate.lisp") == EXAMPLE.read_bytes()
    for path in (saved, tmp_path / "folder"):
        loaded = load_artifact(path)
        assert loaded.plan == artifact.plan
        assert loaded.code == artifact.code
        assert (loaded.target, loaded.config, loaded.generate) == ("cpu", artifact.config, artifact.generate)


def tampered(saved: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The artifact with its manifest changed."""
    with zipfile.ZipFile(saved) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members["manifest.json"])
    change(manifest)
    members["manifest.json"] = json.dumps(manifest).encode()
    path = saved.with_name("tampered.lgpt")
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def set_to(*keys: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(manifest: dict[str, Any]) -> None:
        place: Any = manifest
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


LAUNCH = ("plan", "entries", 0, "steps", 0)
TAMPERED: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "another format": (set_to("format", value="zip"), "not a lispgpt artifact"),
    "a newer version": (set_to("version", value=99), "version 99"),
    "an older version": (set_to("version", value=1), r"an older lispgpt .*version 1; .*compile it again"),
    "no version": (set_to("version", value=None), "version"),
    "a version that is a truth": (set_to("version", value="1"), "version"),
    "no plan": (lambda m: m.pop("plan"), "plan"),
    "a plan that is a list": (set_to("plan", value=[]), "damaged"),
    "an offset past the end": (set_to(*LAUNCH, "arguments", 0, "offset", value=1 << 40), "step 0"),
    "a negative offset": (set_to(*LAUNCH, "arguments", 0, "offset", value=-256), "should be a number from 0"),
    "an uneven offset": (set_to(*LAUNCH, "arguments", 0, "offset", value=1), "step 0"),
    "more bytes than there are": (set_to(*LAUNCH, "arguments", 0, "nbytes", value=1 << 40), "step 0"),
    "an unknown buffer": (set_to(*LAUNCH, "arguments", 0, "buffer", value="none"), "none"),
    "an unknown kernel": (set_to(*LAUNCH, "kernel", value="system"), "system"),
    "no blocks": (set_to(*LAUNCH, "grid", value=[0, 1, 1]), "empty grid"),
    "a huge grid": (set_to(*LAUNCH, "grid", value=[1 << 31, 1 << 31, 4]), "grid"),
    "half a block": (set_to(*LAUNCH, "grid", value=[1.5, 1, 1]), "damaged"),
    "other threads": (set_to(*LAUNCH, "block", value=[2, 1, 1]), "its block"),
    "a kernel of which nothing is known": (lambda m: m["kernels"].update({k: {} for k in m["kernels"]}), "its grid"),
    "a temperature of nothing": (set_to("generate", "options", value={"temperature": None}), "generate"),
    "a count of words": (set_to("generate", "options", value={"max-new-tokens": "many"}), "generate"),
    "a count of lists": (set_to("generate", "options", value={"top-k": [1]}), "generate"),
    "a huge count": (set_to("generate", "options", value={"seed": 1 << 63}), "generate"),
    "a grid of two": (set_to(*LAUNCH, "grid", value=[1, 1]), "damaged"),
    "a grid of words": (set_to(*LAUNCH, "grid", value=["a", 1, 1]), "damaged"),
    "too few arguments": (set_to(*LAUNCH, "arguments", value=[]), "step 0"),
    "a smaller buffer": (set_to("plan", "buffers", 2, "shape", value=[1]), "damaged"),
    "a negative shape": (set_to("plan", "buffers", 2, "shape", value=[-1]), "shape"),
    "a shape beyond memory": (set_to("plan", "buffers", 2, "shape", value=[1 << 62]), "shape"),
    "an unknown type": (set_to("plan", "buffers", 2, "dtype", value="f12"), "damaged"),
    "a buffer twice": (lambda m: m["plan"]["buffers"].append(m["plan"]["buffers"][0]), "damaged"),
    "an input that is not there": (set_to("plan", "entries", 0, "inputs", value={"none": "none"}), "none"),
    "inputs that are a list": (set_to("plan", "entries", 0, "inputs", value=["none"]), "damaged"),
    "a negative size": (set_to("plan", "entries", 0, "sizes", value={"batch": -1}), "-1 should be a number"),
    "an unknown step": (set_to(*LAUNCH, "kind", value="leap"), "no step is a 'leap'"),
    "an unknown access": (set_to(*LAUNCH, "arguments", 0, "access", value="guess"), "its access .*should be"),
    "another access": (set_to(*LAUNCH, "arguments", 0, "access", value="write"), "its access .*should be"),
    "kernels that are a number": (set_to("kernels", value=3), "damaged"),
    "code outside": (set_to("device_code", value="../../etc/passwd"), "has no"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_manifest_is_refused(name: str, saved: Path) -> None:
    change, word = TAMPERED[name]
    with pytest.raises(UserError, match=word):
        load_artifact(tampered(saved, change))


def test_damaged_files_are_refused(saved: Path, tmp_path: Path) -> None:
    data = saved.read_bytes()
    middle = len(data) // 3
    cases = [b"", b"junk", data[:-100], data[: len(data) // 2], data[:middle] + b"\xff" * 64 + data[middle + 64 :]]
    for damaged in cases:
        path = tmp_path / "damaged.lgpt"
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"damaged\.lgpt"):
            load_artifact(path)
    with pytest.raises(UserError, match="nowhere"):
        load_artifact(tmp_path / "nowhere.lgpt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"manifest\.json"):
        load_artifact(tmp_path / "empty")


def test_code_that_is_no_code_is_refused(artifact: Artifact) -> None:
    for code in (b"", b"junk"):
        with pytest.raises(UserError, match="machine code"):
            CpuDevice(1).load(code, artifact.kernels)
    with pytest.raises(UserError, match="no kernel 'other'"):
        CpuDevice(1).load(artifact.code, {"other": {}})


def test_code_that_is_not_the_manifests_is_refused(artifact: Artifact, saved: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(saved) as archive:
        archive.extractall(tmp_path / "folder")
    (tmp_path / "folder" / artifact.code_name).write_bytes(artifact.code[: len(artifact.code) // 2])
    with pytest.raises(UserError, match=artifact.code_name):
        load_artifact(tmp_path / "folder")


def test_saving_is_all_or_nothing(artifact: Artifact, tmp_path: Path) -> None:
    path = tmp_path / "model.lgpt"
    path.write_text("precious")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="folder"):
        artifact.save(tmp_path / "folder")
    with pytest.raises(UserError, match=r"model\.lgpt"):
        artifact.save(path / "inside.lgpt")
    assert path.read_text() == "precious"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "model.lgpt"]


def test_any_value_of_another_kind_anywhere_is_refused_or_harmless(artifact: Artifact, tmp_path: Path) -> None:
    """Random changes of random fields, run on the null device: an error for users or none, never another exception."""
    folder = tmp_path / "folder"
    artifact.save(tmp_path / "model.lgpt")
    with zipfile.ZipFile(tmp_path / "model.lgpt") as archive:
        archive.extractall(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    places = [place for place in _places(manifest) if place]
    weights: Any = random_weights(artifact)
    for _ in range(300):
        place = random.choice(places)
        value = random.choice([None, -1, 0, 1 << 70, 1.5, "x", [], {}, True, [[]], math.nan])
        changed = json.loads(json.dumps(manifest))
        set_to(*place, value=value)(changed)
        (folder / "manifest.json").write_text(json.dumps(changed))
        try:
            loaded = load_artifact(folder)
            if loaded.generate is None or sum(buffer.nbytes for buffer in loaded.plan.buffers) > 1 << 24:
                continue
            with Session(loaded, NullDevice(), weights) as session:
                list(Generator(session, loaded.generate["entry"]).generate([1, 2], 2))
        except UserError:
            continue
        except Exception as error:
            raise AssertionError(f"{place} = {value!r}") from error


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _places(inner, (*place, key))


def test_a_packed_member_is_refused_before_it_is_unpacked(saved: Path, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.lgpt"
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in old.namelist():
            archive.writestr(name, old.read(name))
    with pytest.raises(UserError, match="is packed, which artifacts are not"):
        load_artifact(bomb)


def test_a_kernel_that_another_library_has_is_none(saved: Path) -> None:
    artifact = load_artifact(saved)
    for name in ("system", "exit"):
        with closing(CpuDevice(1)) as device, pytest.raises(UserError, match=f"has no kernel '{name}'"):
            device.load(artifact.code, {name: {}})


def test_code_for_a_level_wants_a_cpu_of_that_level(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "cpu_features", lambda: frozenset((*host.V3, "avx512f")))
    assert host.missing_features("cpu:x86-64-v3") == [] == host.missing_features("cuda:sm_90")
    lacking = ["avx512bw", "avx512cd", "avx512dq", "avx512vl"]
    assert host.missing_features("cpu:x86-64-v4") == lacking
    with pytest.raises(UserError, match="this CPU has no avx512bw"):
        path = tampered(saved, lambda m: m.update(target="cpu:x86-64-v4", host=""))
        matching_artifact(path, load_artifact(path), None)


def test_equal_artifacts_have_equal_bytes(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = load_artifact(saved)
    artifact.save(tmp_path / "one.lgpt")
    monkeypatch.setattr(time, "localtime", lambda *_: time.gmtime(1_700_000_000))
    artifact.save(tmp_path / "two.lgpt")
    assert (tmp_path / "one.lgpt").read_bytes() == (tmp_path / "two.lgpt").read_bytes()


def test_signing_reads_what_the_artifact_names_alone(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "more.lgpt"
    path.write_bytes(saved.read_bytes())
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", bytes(1 << 26))
    attach_signature(path, b"{}")
    assert path.stat().st_size < saved.stat().st_size + 10_000
    with zipfile.ZipFile(path) as archive:
        assert "bomb" not in archive.namelist() and archive.read("signature.json") == b"{}"
    assert load_artifact(path).code == load_artifact(saved).code


def test_signing_copies_no_more_than_a_file_has(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "again.lgpt"
    path.write_bytes(saved.read_bytes())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("source/a", bytes(1 << 16))
        same = archive.getinfo("source/a")
        for number in range(20):
            again = zipfile.ZipInfo(f"source/{number}")
            again.header_offset, again.CRC = same.header_offset, same.CRC
            again.file_size = again.compress_size = 1 << 16
            archive.filelist.append(again)
        archive._didModify = True  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="its files have more bytes than it has"):
        attach_signature(path, b"{}")
