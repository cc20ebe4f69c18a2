"""The wheel and the sdist: all is in them, they are the same to the byte each time, and what is installed works."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import recorded_folders
from gguf_files import write_gguf

from lispgpt import __version__
from lispgpt.base.commit import commit

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = (
    ".py",
    ".lisp",
    ".lark",
    ".mlir",
    ".typed",
    ".json",
    ".jsonl",
    ".txt",
    ".safetensors",
    ".md",
    ".html",
    ".css",
    ".js",
)
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
FOLDERS = {folder.name: folder for folder in recorded_folders.folders()}
RUNTIME = ("click", "numpy", "safetensors", "tokenizers")
OPTIONAL = ["flydsl", "mlir", "lark", "rich", "gguf", "hip", "rocm", "huggingface_hub", "matplotlib", "cryptography"]
WITHOUT_LISPGPT = {name: value for name, value in os.environ.items() if not name.startswith(("LISPGPT_", "PYTHON"))}


def backend() -> ModuleType:
    place = ROOT / "tools" / "build_backend.py"
    spec = importlib.util.spec_from_file_location("build_backend", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def expected_members() -> set[str]:
    """What the wheel must have of this checkout."""
    folders = {"lispgpt": ROOT / "lispgpt"}
    folders |= {f"lispgpt/{name}": ROOT / name for name in ("passes", "runtime", "examples")}
    found = set()
    for prefix, folder in folders.items():
        for path in folder.rglob("*"):
            name = f"{prefix}/{path.relative_to(folder).as_posix()}"
            if path.suffix in SUFFIXES and "__pycache__" not in name:
                found.add(name)
    return found


def checked(command: list[Any], **options: Any) -> str:
    """What a command prints; a failure shows all that it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, **options)
    assert done.returncode == 0, f"{command}:\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
    return done.stdout


def build(checkout: Path, place: Path, umask: int) -> tuple[Path, Path]:
    """The sdist of a copy of this checkout, and the wheel of that sdist."""
    for path in backend().project_files(ROOT):
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, checkout / path, follow_symlinks=False)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", place, checkout]
    checked(command, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}, umask=umask)
    (sdist,), (wheel,) = place.glob("*.tar.gz"), place.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("distributions")
    return build(folder / "checkout", folder / "made", 0o022)


@dataclass(frozen=True)
class Installed:
    """An environment with a wheel, and a folder away from the checkout to run its command in."""

    python: Path
    work: Path

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.python.parent}{os.pathsep}/usr/bin{os.pathsep}/bin"
        return {**WITHOUT_LISPGPT, "PATH": path, "LISPGPT_CACHE": str(self.work / "cache")}

    def lispgpt(self, *arguments: Any) -> str:
        command = [self.python.parent / "lispgpt", *map(str, arguments)]
        return checked(command, cwd=self.work, env=self.environment)

    def tokens(self, *arguments: Any) -> list[int]:
        options = ("--greedy", "--max-new-tokens", 3, "--format", "json")
        found: list[int] = json.loads(self.lispgpt("run", *arguments, *options))["tokens"]
        return found

    def evaluate(self, expression: str) -> str:
        command = [self.python, "-c", f"import lispgpt\nprint({expression})"]
        return checked(command, cwd=self.work, env=self.environment).strip()


def install(python: str | Path, folder: Path, wheel: Path, *options: str) -> Installed:
    checked([python, "-m", "venv", "--without-pip", folder / "environment"])
    installed = Installed(folder / "environment" / "bin" / "python", folder / "elsewhere")
    installed.work.mkdir()
    checked([*PIP, "--python", installed.python, "install", *options, wheel], env=WITHOUT_LISPGPT)
    return installed


@pytest.fixture(scope="module")
def installed(distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in an environment of its own, whose other packages are this one's."""
    made = install(sys.executable, tmp_path_factory.mktemp("installed"), distributions[1], "--no-deps")
    (packages,) = made.python.parent.parent.glob("lib/python*/site-packages")
    shared = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    (packages / "shared.pth").write_text("\n".join(sorted(shared)))
    assert made.evaluate("lispgpt.__file__").startswith(str(packages)), "the checkout was imported, not the wheel"
    return made


def use(installed: Installed) -> None:
    """A model's folder, a GGUF file, an artifact and training, each with a model program of the wheel."""
    qwen3 = FOLDERS["qwen3-f32"]
    folder, gguf = qwen3.write(installed.work / "qwen3"), write_gguf(qwen3, installed.work / "qwen3.gguf")
    installed.lispgpt("compile", folder, "-o", "qwen3.lgpt")
    tokens = installed.tokens("qwen3.lgpt", "--checkpoint", folder, "--prompt-tokens", "3,5")
    assert len(tokens) == 3 and installed.tokens(gguf, "--prompt-tokens", "3,5") == tokens
    examples = Path(installed.evaluate("lispgpt.__file__")).parent / "examples"
    data = ("--data", examples / "texts", "--vocab-size", 280, "--run", "run", "--steps", 2, "--batch", 2)
    installed.lispgpt("train", examples / "gpt2_train.lisp", *data, "--length", 16, "--preset", "tiny")


def use_more(installed: Installed) -> None:
    """After `use`: what was trained, a folder run by itself, and bench."""
    assert len(installed.tokens("run", "--prompt", "the")) == 3
    artifact = installed.tokens("qwen3.lgpt", "--checkpoint", "qwen3", "--prompt-tokens", "3,5")
    assert installed.tokens("qwen3", "--prompt-tokens", "3,5") == artifact
    bench = ("--target", "cpu", "--at", 8, "--rounds", 1, "--format", "json")
    assert "decode" in installed.lispgpt("bench", "qwen3", *bench)


def requirements() -> list[str]:
    """What the package depends on, with versions."""
    project: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return project


def size(folder: Path) -> int:
    """Bytes of files as they are installed, without the byte code that Python makes of them."""
    files = (p for p in folder.rglob("*") if p.is_file() and not p.is_symlink() and "__pycache__" not in p.parts)
    return sum(path.stat().st_size for path in files)


def test_all_is_in_the_wheel_and_the_sdist(distributions: tuple[Path, Path]) -> None:
    sdist, wheel = distributions
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert not expected_members() - set(names)
    assert not [name for name in names if "__pycache__" in name or name.startswith(("tests/", "lispgpt/tests/"))]
    with tarfile.open(sdist) as archive:
        members = {member.name.partition("/")[2]: member for member in archive}
    for name in ("passes", "runtime", "examples"):
        assert members[f"lispgpt/{name}"].linkname == f"../{name}"
    if (ROOT / ".git").exists():
        listed = checked(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT).splitlines()
        assert set(members) == {name for name in listed if (ROOT / name).exists()} | {"PKG-INFO"}


def test_distributions_are_the_same_to_the_byte(distributions: tuple[Path, Path], tmp_path: Path) -> None:
    """In another folder, by a user whose files nobody else may read, with other times."""
    again = build(tmp_path / "other", tmp_path / "made", 0o077)
    for one, other in zip(distributions, again, strict=True):
        assert one.name == other.name and one.read_bytes() == other.read_bytes()


def test_the_commit_is_said_by_a_checkout_and_what_is_made_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout's by git; and of what is built there by a file, which the checkout does not keep."""
    checkout, unpacked = tmp_path / "checkout", tmp_path / "unpacked"
    for folder in (checkout, unpacked):
        (folder / "lispgpt").mkdir(parents=True)
        (folder / "lispgpt" / "a.py").write_text("")
    package = checkout / "lispgpt"
    assert commit(package) is None
    for words in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -q -m first"):
        checked(["git", "-C", checkout, *words.split()])
    made = checked(["git", "-C", checkout, "rev-parse", "HEAD"])[:12]
    assert commit(package) == made
    stamp, backing = Path("lispgpt", "commit.txt"), backend()
    monkeypatch.chdir(checkout)
    with backing._stamped():
        assert stamp.read_text() == f"{made}\n"
        shutil.copy(stamp, unpacked / stamp)
    assert not stamp.exists() and commit(unpacked / "lispgpt") == made
    monkeypatch.chdir(unpacked)
    with backing._stamped():
        assert stamp.read_text() == f"{made}\n"
    assert stamp.exists()
    (package / "a.py").write_text("changed")
    assert commit(package) == f"{made} and changes"


def test_a_folder_of_the_same_name_does_not_hide_an_editable_install(
    distributions: tuple[Path, Path], tmp_path: Path
) -> None:
    """As one sees it who starts Python beside the clone, or in a folder whose files are about lispgpt."""
    made = "import sys\nsys.path.insert(0, 'tools')\nimport build_backend\nbuild_backend.build_editable(sys.argv[1])"
    checkout = distributions[0].parent.parent / "checkout"
    checked([sys.executable, "-c", made, tmp_path / "site"], cwd=checkout)
    (wheel,) = (tmp_path / "site").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    (tmp_path / "lispgpt").mkdir()
    code = f"import site\nsite.addsitedir({str(tmp_path / 'site')!r})\nimport lispgpt\nprint(lispgpt.__file__)"
    assert (
        checked([sys.executable, "-S", "-c", code], cwd=tmp_path, env=WITHOUT_LISPGPT)
        == f"{checkout}/lispgpt/__init__.py\n"
    )


def test_what_is_installed_runs_folders_files_artifacts_and_training(installed: Installed) -> None:
    assert installed.lispgpt("--version").startswith(f"lispgpt, version {__version__}")
    use(installed)
    _runs_without_what_only_compilers_need(installed)


def _runs_without_what_only_compilers_need(installed: Installed) -> None:
    """An artifact, in README's small installation: the wheel itself and four packages."""
    words = ["run", "qwen3.lgpt", "--checkpoint", "qwen3", "--prompt-tokens", "3", "--max-new-tokens", "2"]
    code = f"import sys\nfor name in {OPTIONAL}: sys.modules[name] = None\nfrom lispgpt.cli.main import main\n"
    command = [installed.python, "-c", f"{code}main({words})"]
    assert checked(command, cwd=installed.work, env=installed.environment).strip()


def test_tests_of_the_sdist_run(distributions: tuple[Path, Path], tmp_path: Path) -> None:
    """Where it is unpacked; these are tests that read the checkout's own folders and run its programs."""
    with tarfile.open(distributions[0]) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    some = ("tests/test_architecture.py", "tests/test_example_models.py", "-k", "links or classifier and cpu")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *some]
    assert " passed" in checked(command, cwd=unpacked, env=WITHOUT_LISPGPT)


@pytest.mark.slow
def test_the_small_installation_is_small_and_runs_artifacts(
    installed: Installed, distributions: tuple[Path, Path], tmp_path: Path
) -> None:
    wanted = [line for line in requirements() if line.partition("==")[0] in RUNTIME]
    assert len(wanted) == len(RUNTIME)
    small = install(sys.executable, tmp_path, distributions[1], "--no-deps", *wanted)
    folder = FOLDERS["llama-3-f32"].write(tmp_path / "llama")
    installed.lispgpt("compile", folder, "-o", tmp_path / "llama.lgpt")
    trusting = ("--trust", "--prompt-tokens", "3")
    assert len(small.tokens(tmp_path / "llama.lgpt", "--checkpoint", folder, *trusting)) == 3
    assert size(tmp_path / "environment") < 100e6


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_the_wheel_and_all_it_needs_in_an_empty_environment(
    version: str, distributions: tuple[Path, Path], tmp_path: Path
) -> None:
    python = shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "--version"], capture_output=True, check=False).returncode:
        pytest.skip(f"there is no python{version} here")
    made = install(python, tmp_path, distributions[1])
    use(made)
    use_more(made)
    assert size(tmp_path / "environment") < 420e6
