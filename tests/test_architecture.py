"""Which way imports point, who names MLIR, and who reads the environment."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"lispgpt": ROOT / "lispgpt", "lispgpt.passes": ROOT / "passes", "lispgpt.runtime": ROOT / "runtime"}
MLIR = {"mlir", "flydsl"}

# What a part may import of this package; a part is a folder, or a module right under `lispgpt`.
ARROWS = {
    "base": set(),
    "ir": {"base"},
    "language": {"base", "ir"},
    "passes": {"base", "ir"},
    "pipelines": {"base", "language", "passes"},
    "programs": {"base", "ir", "language", "passes", "pipelines", "runtime"},
    "runtime": {"base"},
    "compiler": {"base", "ir", "language", "passes", "pipelines", "programs", "runtime"},
    "execution": {"base", "compiler", "runtime"},
    "api": {"base", "compiler", "execution", "runtime"},
    "checking": {"base", "compiler", "execution", "runtime"},
    "editor": {"base", "compiler", "ir", "language", "passes", "reference"},
    "reference": {"base", "compiler", "ir", "language", "passes", "pipelines", "runtime"},
    "bench": {"base", "execution", "passes", "runtime"},
    "training": {"base", "compiler", "execution", "runtime"},
    "chat": {"base", "runtime"},
    "explore": {"base", "compiler", "execution", "ir", "language", "passes", "pipelines", "reference", "runtime"},
    "notebook": {"api", "base", "cli", "ir", "training"},
    "serve": {"api", "base", "chat", "runtime"},
}


@cache
def sources() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found: dict[str, Path] = {}
    for package, folder in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            if package == "lispgpt" and path.relative_to(folder).parts[0] in ("passes", "runtime"):
                continue
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join([package, *(p for p in parts if p != "__init__")])] = path
    return found


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[str]:
    """The dotted names that a file imports, wherever in it and for type checking too: modules and what is in them."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_modules(path: Path) -> set[str]:
    """The modules of this package that a file imports."""
    known = sources()
    names = set(imports(path))
    return {name if name in known else name.rpartition(".")[0] for name in names} & set(known)


def folder_of(module: str) -> str:
    """The folder of a module; one right in a package's own folder stands for itself."""
    path = sources()[module]
    return module if path.parent in FOLDERS.values() else str(path.parent.relative_to(ROOT))


def circle_in(arrows: dict[str, set[str]]) -> list[str]:
    """A path along the arrows that ends where it began; empty where there is none."""
    done: set[str] = set()

    def walk(node: str, above: tuple[str, ...]) -> list[str]:
        if node in above:
            return [*above[above.index(node) :], node]
        if node in done:
            return []
        for following in sorted(arrows.get(node, ())):
            if found := walk(following, (*above, node)):
                return found
        done.add(node)
        return []

    return next((found for node in sorted(arrows) if (found := walk(node, ()))), [])


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize("part", ARROWS)
def test_imports_point_one_way(part: str) -> None:
    bad = []
    for module, path in sources().items():
        if part_of(module) != part:
            continue
        for imported in imports(path):
            there = part_of(imported) if imported.startswith("lispgpt.") else part
            if there != part and there not in ARROWS[part] and not imported.startswith("lispgpt.__"):
                bad.append(f"{module} imports {imported}")
    assert not bad


def test_no_files_import_each_other_in_a_circle() -> None:
    arrows = {module: imported_modules(path) - {module} for module, path in sources().items()}
    circle = circle_in(arrows)
    assert not circle, " → ".join(circle)


def test_folders_import_one_way() -> None:
    arrows: dict[str, set[str]] = {}
    for module, path in sources().items():
        here = folder_of(module)
        arrows.setdefault(here, set()).update(folder_of(there) for there in imported_modules(path))
    circle = circle_in({here: there - {here} for here, there in arrows.items()})
    assert not circle, " → ".join(circle)


def test_a_circle_is_found() -> None:
    assert circle_in({"a": {"b"}, "b": {"c", "d"}, "c": {"d"}, "d": {"b"}}) == ["b", "c", "d", "b"]
    assert circle_in({"a": {"b", "c"}, "b": {"c"}}) == []


def test_every_part_is_covered_or_a_command() -> None:
    parts = {part_of(module) for module in sources()} - {"", "__main__", "cli", "lib"}
    assert parts == set(ARROWS)


def test_only_one_module_names_an_mlir_distribution_and_none_of_the_runtime_lark() -> None:
    for module, path in sources().items():
        roots = {name.split(".")[0] for name in imports(path)}
        assert module == "lispgpt.ir.mlir" or not roots & MLIR, module
        assert not (module.startswith("lispgpt.runtime") and "lark" in roots), module


def test_the_runtime_imports_with_the_compiler_blocked() -> None:
    names = [n for n in sources() if n.startswith("lispgpt.runtime")]
    code = (
        "import sys\n"
        "for name in ('lark', 'mlir', 'flydsl', 'lispgpt.ir.mlir', 'lispgpt.language', 'lispgpt.passes'):\n"
        "    sys.modules[name] = None\n"
        f"import importlib\nfor name in {names!r}: importlib.import_module(name)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_only_the_command_line_reads_the_environment() -> None:
    """`lispgpt.base.scratch` sets a variable for LLVM, which reads it, and puts it back.  `lispgpt.base.folders` finds
    the command's cache for Python programs, and `lispgpt.base.fork_server` gives its forks what their caller has."""
    allowed = ("lispgpt.cli.main", "lispgpt.base.scratch", "lispgpt.base.folders", "lispgpt.base.fork_server")
    bad = []
    for module, path in sources().items():
        for node in ast.walk(tree(path)):
            text = ast.unparse(node) if isinstance(node, ast.Attribute | ast.Name) else ""
            if text in ("os.environ", "os.getenv", "environ", "getenv") and module not in allowed:
                bad.append(f"{module}:{node.lineno}")
    assert not bad


def test_commands_print_by_what_minds_terminals() -> None:
    """A name of a file, too, may hold what terminals take for commands."""
    for module, path in sources().items():
        if module.startswith("lispgpt.cli.") and path.name not in ("terminal.py", "main.py"):
            called = {ast.unparse(node.func) for node in ast.walk(tree(path)) if isinstance(node, ast.Call)}
            bare = {"click.echo", "click.secho", "print", "sys.stderr.write"} & called
            assert not bare, f"{path.name} calls {bare}: see terminal.py"


def test_every_folder_with_code_is_a_package_that_the_wheel_takes() -> None:
    suffixes = (".py", ".lisp", ".lark", ".mlir")
    for folder in FOLDERS.values():
        for path in folder.rglob("*"):
            if path.suffix in suffixes and "__pycache__" not in path.parts:
                assert (path.parent / "__init__.py").is_file(), path.parent


def test_links_are_relative() -> None:
    for name in ("passes", "runtime"):
        link = ROOT / "lispgpt" / name
        assert link.is_symlink()
        assert str(link.readlink()) == f"../{name}"


def test_random_numbers_of_tests_can_be_repeated() -> None:
    """They come from tests/seeded.py, whose seed a failing test prints."""
    unseeded = "default_rng" + "()"
    found = [str(path) for path in (ROOT / "tests").rglob("*.py") if unseeded in path.read_text()]
    assert found == [], "draw from seeded.rng()"
