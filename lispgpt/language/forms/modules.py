"""Files: what a program requires, and the dialects that it declares."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.reading import read_text
from lispgpt.base.source import Source
from lispgpt.language.core.environment import Dialects, Environment, did_you_mean
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.library import LIBRARY
from lispgpt.language.core.registry import special
from lispgpt.language.core.values import Alias
from lispgpt.language.forms import functions
from lispgpt.language.ops.op_names import DIALECTS
from lispgpt.language.reader.forms import Form, Keyword, List, Literal, Symbol, Vector, show
from lispgpt.language.reader.reader import read, read_library


@dataclass
class Files:
    """root: where `(require "@path")` starts.  prelude: the names that every file starts with.  loaded: the top-level
    names of the files that were required.  loading: the files that are being evaluated, innermost last."""

    root: Path = field(default_factory=Path)
    prelude: Environment = field(default_factory=Environment)
    loaded: dict[Path, Environment] = field(default_factory=dict)
    loading: list[Path] = field(default_factory=list)


@special("require-dialect", 1, None)
def _require_dialect(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    for item in form.items[1:]:
        parts = item.items if isinstance(item, Vector) else (item,)
        name = parts[0] if parts else None
        aliased = len(parts) == 3 and isinstance(parts[1], Keyword) and parts[1].name == "as"
        if not isinstance(name, Symbol) or not (len(parts) == 1 or aliased):
            evaluator.site.fail(f"`{show(item)}` is not a dialect's name or [name :as alias]", item)
        try:
            evaluator.builder.context.get_dialect_descriptor(name.name)
        except ValueError:
            evaluator.site.fail(f"there is no dialect `{name.name}`{did_you_mean(name.name, DIALECTS)}", name)
        dialects = environment.dialects
        assert dialects is not None
        dialects.declare(name.name, name.name)
        if aliased:
            alias = parts[2]
            if not isinstance(alias, Symbol):
                evaluator.site.fail(f"`{show(alias)}` is not a name", alias)
            dialects.declare(alias.name, name.name)
    return None


special("use-dialect", 1, None)(_require_dialect)


@special("require", 1, None)
def _require(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    for item in form.items[1:]:
        parts = item.items if isinstance(item, Vector) else (item,)
        aliased = len(parts) == 3 and isinstance(parts[1], Keyword) and parts[1].name == "as"
        if not parts or not (len(parts) == 1 or aliased):
            evaluator.site.fail(f'`{show(item)}` is not a file, a library or ["file.lisp" :as name]', item)
        required = load(evaluator, path_of(evaluator, parts[0]), item)
        if aliased:
            alias = parts[2]
            if not isinstance(alias, Symbol):
                evaluator.site.fail(f"`{show(alias)}` is not a name", alias)
            environment.define(alias, Alias(required))
        else:
            environment.top().names.update(required.names)
            if isinstance(parts[0], Literal) and environment.dialects and required.dialects:
                for used, name in required.dialects.names.items():
                    environment.dialects.declare(used, name)
    return None


def path_of(evaluator: Evaluator, form: Form) -> Path:
    """The file that a library's name, `"file"` or `"@path"` stands for."""
    if isinstance(form, Symbol):
        path = LIBRARY / f"{form.name}.lisp"
        if not path.is_file():
            libraries = sorted(p.stem for p in LIBRARY.glob("*.lisp"))
            hint = did_you_mean(form.name, libraries, f"; there are {', '.join(libraries)}")
            evaluator.site.fail(
                f'there is no library `{form.name}`{hint} (a file is a string: (require "{form.name}.lisp"))', form
            )
        return path
    name = form.value if isinstance(form, Literal) else None
    if not isinstance(name, str) or not name or "\0" in name:
        evaluator.site.fail(f"`{show(form)}` is neither a file nor a library", form)
    if name.startswith("@"):
        return evaluator.states.of(Files).root / name[1:].lstrip("/")
    loading = evaluator.states.of(Files).loading
    if loading and loading[-1].is_relative_to(LIBRARY):
        return loading[-1].parent / name
    return Path(form.span.source.name).parent / name


def source_name(path: Path) -> str:
    """What messages and locations call a file: those of the library by their place in the package."""
    return path.relative_to(LIBRARY.parent).as_posix() if path.is_relative_to(LIBRARY) else str(path)


def load(evaluator: Evaluator, path: Path, form: Form) -> Environment:
    """The names that a file defines; each file is evaluated once."""
    files, key = evaluator.states.of(Files), path.resolve()
    if key in files.loaded:
        return files.loaded[key]
    names = [p.name for p in files.loading]
    if key in files.loading:
        cycle = " → ".join([*names[files.loading.index(key) :], key.name])
        evaluator.site.fail(f"these files require each other in a circle: {cycle}", form)
    try:
        text = read_text(path)
    except UserError as error:
        evaluator.site.fail(error.message, form)
    source = Source(source_name(path), text)
    files.loading.append(key)
    environment = Environment(files.prelude, Dialects())
    known = read_library(source.name, text) if path.is_relative_to(LIBRARY) else read(source)
    run(evaluator, known, environment)
    files.loading.pop()
    files.loaded[key] = environment
    return environment


def is_library(evaluator: Evaluator, environment: Environment) -> bool:
    """Whether what has this environment stands in a file of the language's library."""
    loaded, top = evaluator.states.of(Files).loaded, environment.top()
    return any(found is top for path, found in loaded.items() if path.is_relative_to(LIBRARY))


def run(evaluator: Evaluator, forms: tuple[Form, ...], environment: Environment) -> None:
    """Evaluate all forms of a file, in order."""
    functions.declare_ahead(evaluator, forms, environment)
    for form in forms:
        try:
            evaluator.evaluate(form, environment)
        except RecursionError:
            raise UserError("this is nested too deeply to evaluate", form.span) from None
