"""Artifacts are code: those that were not made here run when a listed key signed them, or when they are trusted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
import pytest

import lispgpt
from lispgpt.compiler.signatures import listed_keys, make_key, sign
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.make import make

PROGRAM = Path(__file__).resolve().parent.parent / "examples" / "gpt2_generate.lisp"
GENERATE = ["--checkpoint", "m.bin", "--prompt-tokens", "1,2", "--max-new-tokens", "2", "--greedy"]
Lispgpt = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint, and `own.lgpt` as somebody else compiled and signed it with `theirs.key`."""
    folder = tmp_path_factory.mktemp("trust")
    make(folder / "m.bin", Gpt2Shape.unpadded(vocab=300, context=20, layers=1, heads=3, width=12), "llmc", "f32", 1)
    theirs = command(folder, "their cache")
    assert theirs("compile", str(PROGRAM), "--checkpoint", "m.bin", "-o", "own.lgpt").returncode == 0
    (folder / "unsigned.lgpt").write_bytes((folder / "own.lgpt").read_bytes())
    signed = theirs("sign", "own.lgpt", "--make-key", "theirs.key")
    assert signed.returncode == 0 and "own.lgpt: signed with theirs.key" in signed.stderr
    (folder / "line").write_text(signed.stdout)
    return folder


def command(folder: Path, cache: str) -> Lispgpt:
    """Runs lispgpt in a folder as a user who has that cache and the list of keys `trusted` there."""
    given = {"LISPGPT_CACHE": str(folder / cache), "LISPGPT_TRUSTED_KEYS": str(folder / "trusted")}

    def lispgpt(*words: str) -> subprocess.CompletedProcess[str]:
        return forked.lispgpt(*words, cwd=folder, env=os.environ | given)

    return lispgpt


@pytest.fixture
def mine(made: Path) -> Lispgpt:
    (made / "trusted").unlink(missing_ok=True)
    return command(made, "my cache")


def assert_refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 1 and done.stdout == "", done
    assert "Traceback" not in done.stderr and "bug" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_a_signed_artifact_runs_where_its_key_is_listed(made: Path, mine: Lispgpt) -> None:
    refused = mine("run", "own.lgpt", *GENERATE)
    assert_refused(refused, "does not list", "with your rights", "--trust")
    line = refused.stderr.partition("`")[2].partition("`")[0]
    assert line.split()[:2] == (made / "line").read_text().split()[:2]
    (made / "trusted").write_text(f"# colleagues\n\n{line.replace('NAME', 'Ann  # on the second floor')}\n")
    runs = mine("run", "own.lgpt", *GENERATE)
    assert runs.returncode == 0 and runs.stdout, runs.stderr
    assert_refused(mine("run", "unsigned.lgpt", *GENERATE), "was not made here", "--trust")
    assert mine("run", "unsigned.lgpt", *GENERATE, "--trust").stdout == runs.stdout
    (made / "trusted").write_text("ed25519 nonsense Ann\n")
    assert_refused(mine("run", "own.lgpt", *GENERATE), "trusted:1: this should be `ed25519 BASE64 NAME`")


def rewritten(made: Path, name: str, change: Callable[[dict[str, bytes]], Any]) -> str:
    """A copy of the signed artifact with its members changed; its name."""
    with zipfile.ZipFile(made / "own.lgpt") as old:
        members = {member: old.read(member) for member in old.namelist()}
    change(members)
    with zipfile.ZipFile(made / name, "w") as archive:
        for member, data in members.items():
            archive.writestr(member, data)
    return name


def test_what_was_changed_after_signing_is_refused(made: Path, mine: Lispgpt) -> None:
    (made / "trusted").write_text((made / "line").read_text())

    def warmer(members: dict[str, bytes]) -> None:
        members["manifest.json"] = members["manifest.json"].replace(b'"temperature": 0.8', b'"temperature": 0.9')

    def other_code(members: dict[str, bytes]) -> None:
        name = json.loads(members["manifest.json"])["device_code"]
        members[name] = members[name][:-1] + bytes([members[name][-1] ^ 1])

    def other_kind(members: dict[str, bytes]) -> None:
        members["signature.json"] = members["signature.json"].replace(b"ed25519", b"md5")

    def other_key(members: dict[str, bytes]) -> None:
        make_key(made / "mallory.key")
        members["signature.json"] = sign(members["manifest.json"], made / "mallory.key")

    for change, words in (
        (warmer, "was changed since it was signed"),
        (other_code, "is not the code that was saved"),
        (other_kind, "of which nothing is known here"),
        (other_key, "does not list"),
        (lambda members: members.update({"signature.json": b"{}"}), "its signature is none"),
        (lambda members: members.update({"signature.json": b"x"}), "is damaged"),
    ):
        assert_refused(mine("run", rewritten(made, "changed.lgpt", change), *GENERATE), words)


def test_python_asks_for_trust_as_the_command_does(made: Path, mine: Lispgpt) -> None:
    def tokens(name: str, **given: Any) -> list[int]:
        with lispgpt.load(made / name, made / "m.bin", **given) as model:
            text = model.generate([1, 2], max_new_tokens=2, greedy=True)
            list(text)
            return list(text.tokens)

    for name in ("own.lgpt", "unsigned.lgpt"):
        with pytest.raises(lispgpt.UserError, match="trust=True"):
            tokens(name)
    expected = tokens("unsigned.lgpt", trust=True)
    assert tokens("own.lgpt", keys=made / "line") == expected
    assert tokens("own.lgpt", cache=made / "their cache") == expected
    lispgpt.compile(PROGRAM, checkpoint=made / "m.bin").save(made / "here.lgpt")
    assert tokens("here.lgpt") == expected == tokens("here.lgpt", cache=made / "another")


def test_keys_are_made_once_and_for_their_owner_alone(tmp_path: Path) -> None:
    line = make_key(tmp_path / "ann.key")
    assert line.split()[2] == "ann" and (tmp_path / "ann.key").stat().st_mode & 0o777 == 0o600
    (tmp_path / "keys").write_text(line)
    assert listed_keys(tmp_path / "keys") == [line.split()[1]]
    with pytest.raises(lispgpt.UserError, match="is there already"):
        make_key(tmp_path / "ann.key")
    (tmp_path / "no.key").write_text("hello")
    with pytest.raises(lispgpt.UserError, match="no private key of ed25519"):
        sign(b"", tmp_path / "no.key")


def test_without_the_package_the_message_says_what_to_install(made: Path) -> None:
    text = "import sys; sys.modules['cryptography'] = None; sys.argv[0] = 'lispgpt'; "
    text += "import runpy; runpy.run_module('lispgpt', run_name='__main__')"
    for words in (["sign", "own.lgpt", "--key", "theirs.key"], ["run", "own.lgpt", *GENERATE]):
        given = os.environ | {"LISPGPT_CACHE": str(made / "empty")}
        program = [sys.executable, "-c", text, *words]
        done = subprocess.run(program, cwd=made, env=given, capture_output=True, text=True, check=False)
        assert_refused(done, "pip install 'lispgpt[sign]'")


def test_a_folder_is_signed_as_a_zip_is(made: Path, mine: Lispgpt) -> None:
    with zipfile.ZipFile(made / "unsigned.lgpt") as archive:
        archive.extractall(made / "folder")
    assert_refused(mine("run", "folder", *GENERATE), "was not made here")
    line = mine("sign", "folder", "--key", "theirs.key").stdout
    (made / "trusted").write_text(line)
    assert mine("run", "folder", *GENERATE).returncode == 0
    assert mine("sign", "folder").returncode == 2
