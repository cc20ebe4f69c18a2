"""The wheel: everything that a compilation needs is in it, and it compiles and generates away from the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = (".py", ".lisp", ".lark", ".mlir", ".typed")


def expected_members() -> set[str]:
    folders = {"lispgpt": ROOT / "lispgpt", "lispgpt/passes": ROOT / "passes", "lispgpt/runtime": ROOT / "runtime"}
    found = set()
    for prefix, folder in folders.items():
        for path in folder.rglob("*"):
            name = f"{prefix}/{path.relative_to(folder).as_posix()}"
            if path.suffix in SUFFIXES and "__pycache__" not in name:
                found.add(name)
    return found


@pytest.mark.slow
def test_the_wheel_is_whole_and_works_elsewhere(tmp_path: Path) -> None:
    copy = tmp_path / "checkout"
    files = subprocess.run(["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    names = b"\n".join(name for name in files.stdout.split(b"\0") if name and (ROOT / name.decode()).exists())
    subprocess.run(["tar", "-cf", tmp_path / "files.tar", "-T", "-"], cwd=ROOT, input=names, check=True)
    copy.mkdir()
    subprocess.run(["tar", "-xf", tmp_path / "files.tar", "-C", copy], check=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", ".", "--no-deps", "--wheel-dir", tmp_path], cwd=copy, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        missing = expected_members() - set(archive.namelist())
    assert not missing
    place = tmp_path / "installed"
    subprocess.run([*pip, "install", "--no-deps", "--target", place, wheel], check=True)
    (tmp_path / "gpt2.lisp").write_bytes((ROOT / "examples" / "gpt2.lisp").read_bytes())
    (tmp_path / "gpt2_generate.lisp").write_bytes((ROOT / "examples" / "gpt2_generate.lisp").read_bytes())
    environment = {**os.environ, "PYTHONPATH": str(place), "LISPGPT_CACHE": str(tmp_path / "cache")}

    def lispgpt(*arguments: str) -> str:
        command = [sys.executable, "-m", "lispgpt", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout

    where = subprocess.run(
        [sys.executable, "-c", "import lispgpt.passes.pipeline as p; print(p.__file__)"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(place)), "the checkout was imported, not the wheel"
    sizes = ["--layers", "1", "--heads", "2", "--width", "8", "--vocab", "300", "--context", "20"]
    lispgpt("checkpoint", "make", "small.bin", *sizes)
    run = ["run", "gpt2_generate.lisp", "--checkpoint", "small.bin", "--prompt", "hi", "--format", "json"]
    assert len(json.loads(lispgpt(*run, "--max-new-tokens", "3"))["tokens"]) == 3
    installed = subprocess.run(
        [place / "bin" / "lispgpt", "--version"], env=environment, capture_output=True, text=True
    )
    assert installed.stdout.startswith("lispgpt, version"), installed.stderr
