"""The reference: every name has an entry with all that one has, whose example runs; the commands that show it."""

from __future__ import annotations

import inspect
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import fields
from html import escape
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path

import click
import numpy as np
import pytest
import seeded
from click.core import ParameterSource
from recorded_adapters import small_adapter

import lispgpt
import lispgpt.runtime.devices
from lispgpt.base.errors import UserError
from lispgpt.base.source import Source
from lispgpt.cli.command_examples import LINES, OWN, VALUES
from lispgpt.cli.doc import MOST_LINES, entries, named, shown
from lispgpt.cli.main import COMMANDS, main, main_group
from lispgpt.cli.repl import Session
from lispgpt.compiler.driver import Observer, Request, emit
from lispgpt.compiler.schedules import WORDS
from lispgpt.ir.mlir import ir, new_context
from lispgpt.ir.tile_dialect import ARITIES
from lispgpt.language.model.declarations import DISTRIBUTIONS
from lispgpt.language.model.table import Model
from lispgpt.language.program import LANGUAGE
from lispgpt.language.reader.reader import read
from lispgpt.passes.base import FOLDER, find_pass, make_pass
from lispgpt.passes.targets import CHIPS, find_target
from lispgpt.pipelines.pipeline_file import pass_call
from lispgpt.reference import language
from lispgpt.reference.entry import KINDS, Entry, apropos, find
from lispgpt.reference.guide_words import words
from lispgpt.reference.pages import Said, guide, said_in
from lispgpt.reference.site import TITLES, write_site
from lispgpt.runtime.devices import device_kinds

ROOT = Path(__file__).resolve().parent.parent
FILES = ("forms.md", "declarations.md", "library.md")
EXAMPLES = list({id(said): said for file in FILES for said in said_in(file).values()}.values())


OTHERS = ("tile", "pass", "target", "device")
"""Kinds whose names no form and no function of the library has."""


def names_of(kind: str) -> set[str]:
    return {entry.name for entry in entries() if entry.kind == kind}


def test_every_name_has_an_entry() -> None:
    assert names_of("form") == set(LANGUAGE.names) | set(said_in("declarations.md"))
    assert set(said_in("declarations.md")) > set(DISTRIBUTIONS)
    definition = re.compile(r"^\((?:defn|defmacro|def|kernel|defstruct|schedule) ([^\s()]+)", re.MULTILINE)
    written = {n for path in (ROOT / "lispgpt" / "lib").rglob("*.lisp") for n in definition.findall(path.read_text())}
    assert names_of("library") == written
    stems = [path.stem.replace("_", "-") for path in FOLDER.rglob("*.py")]
    assert names_of("pass") == {stem for stem in stems if find_pass(stem)}
    assert names_of("target") == {str(chip) for chips in CHIPS.values() for chip in chips.values()} | set(CHIPS)
    devices = {f"device {kind}" for kind in device_kinds()} | {"device emulated"}
    assert names_of("device") == devices
    assert names_of("tile") == {f"op tile.{name}" for name in ARITIES} | set(WORDS)
    assert names_of("command") == set(commands())
    flags = {(name, max(p.opts, key=len)) for name, command in commands().items() for p in options_of(command)}
    assert names_of("flag") == {" ".join(flag) for flag in flags}
    assert set(KINDS) == set(TITLES)


def commands() -> dict[str, click.Command]:
    """All there are, those of a command of commands too."""
    found: dict[str, click.Command] = {}
    for name, (module, attribute, _) in COMMANDS.items():
        found[f"lispgpt {name}"] = command = getattr(import_module(module), attribute)
        if isinstance(command, click.Group):
            found |= {f"lispgpt {name} {inner}": each for inner, each in command.commands.items()}
    return found


def options_of(command: click.Command) -> list[click.Option]:
    return [parameter for parameter in command.params if isinstance(parameter, click.Option)]


def test_every_entry_has_what_entries_have() -> None:
    bare = [entry.name for entry in entries() if not (entry.signature and entry.text.strip() and entry.example)]
    assert not bare


def test_what_is_said_of_names_is_said_of_names_that_are_there() -> None:
    assert set(said_in("forms.md")) <= names_of("form")
    assert set(said_in("library.md")) <= names_of("library")
    assert set(said_in("tile.md")) == set(WORDS)
    lines = set(LINES) | {f"{name} {flag}" for name, command in commands().items() for flag in flags_of(command)}
    assert set(OWN) | set(LINES) <= lines and set(LINES) == set(commands())
    assert set(VALUES) <= {flag for command in commands().values() for flag in flags_of(command)}


def flags_of(command: click.Command) -> list[str]:
    return [max(option.opts, key=len) for option in options_of(command)]


@pytest.mark.parametrize("said", EXAMPLES, ids=[said.names[0] for said in EXAMPLES])
def test_examples_run_and_give_what_they_say(said: Said, tmp_path: Path) -> None:
    """Forms one by one as in the repl, and then their entries; `; => value` is what the repl shows."""
    told: list[str] = []
    with new_context(), ir.Location.unknown():
        session = Session(tmp_path, told.append)
        for form in read(Source("example", said.example)):
            before = len(told)
            session.enter(said.example[form.span.start : form.span.end])
            wanted = re.match(r"\s*; => (.*)", said.example[form.span.end :].split("\n")[0])
            assert wanted is None or told[before:] == [wanted.group(1).strip()]
        for name in list(session.evaluator.states.of(Model).entries):
            session.enter(f",entry {name} 4")
    assert not [line for line in told if "error:" in line or "bug" in line]


def of_kind(kind: str) -> list[Entry]:
    return [entry for entry in entries() if entry.kind == kind]


def test_examples_of_the_library_can_be_read() -> None:
    """They are parts of programs and of the library, which other tests compile."""
    for entry in of_kind("library"):
        assert read(Source(entry.name, entry.example)), entry.name


def test_examples_of_passes_and_targets_are_understood() -> None:
    for entry in of_kind("pass"):
        (form,) = read(Source(entry.name, entry.example))
        call, found = pass_call(form), find_pass(entry.name)
        assert found is not None and make_pass(found, dict(call.options)).name == call.name == entry.name
        told = inspect.getdoc(found) or ""
        for option in fields(found):
            said = re.search(rf"\b{option.name.replace('_', '[-_]')}\b", told)
            assert said, f"{entry.name} does not say what {option.name} is"
    for entry in of_kind("target"):
        assert find_target(entry.example.split()[4])


@pytest.mark.parametrize("entry", [e for e in entries() if e.kind in ("command", "flag")], ids=lambda entry: entry.name)
def test_examples_of_commands_and_flags_are_understood(entry: Entry) -> None:
    """Each is a command line that names what it is an example of, with values that its options take."""
    words = shlex.split(entry.example)
    context, command = click.Context(main_group), main_group
    given: list[str] = words[1:]
    while isinstance(command, click.Group):
        name = given.pop(0)
        command = command.get_command(context, name)
        assert command is not None, name
    parsed = command.make_context("lispgpt", given, obj={"environment": {}, "started": 0.0})
    if entry.kind == "flag":
        flag = entry.name.rpartition(" ")[2]
        (option,) = (option for option in options_of(command) if flag in option.opts)
        assert parsed.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        assert set(words[words.index(flag) :]) and words.count(flag) == 1


RUN_SLOWLY = (
    "run",
    "compile",
    "evaluate",
    "train",
    "checkpoint",
    "tokenizer",
    "opt",
    "sign",
    "chat",
    "check",
    "doc",
    "fmt",
    "plot",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with what the examples of commands name."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "examples").symlink_to(ROOT / "examples")
    page = (ROOT / "lispgpt" / "reference" / "guide" / "15-first-schedule.md").read_text()
    for block in re.findall(r"^```lisp\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        (folder / block.split()[1]).write_text(block)
    shutil.copy(ROOT / "passes" / "pipelines" / "cpu.lisp", folder / "mine.lisp")
    shutil.copy(ROOT / "passes" / "pipelines" / "gpu.lisp", folder)
    (folder / "mine.jinja").write_text("{{ messages[-1].content }}")
    small_adapter(folder / "adapter")
    rng = seeded.rng()
    for name, shape in (("x", (2, 784)), ("a", (96, 64)), ("b", (80, 64))):
        np.save(folder / f"{name}.npy", rng.standard_normal(shape, np.float32))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("LISPGPT_CACHE", str(folder / "cache"))
        for line in (
            "checkpoint make classes.safetensors --for examples/classifier.lisp",
            "compile examples/classifier.lisp -o classifier.lgpt --dump-dir dumps",
            "sign --make-key mine.pem",
        ):
            done(line)
        yield folder


def done(line: str) -> None:
    """Run a command line, which has to end well."""
    shutil.rmtree("merged", ignore_errors=True)
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(line))
    assert ended.value.code == 0, line


def test_some_examples_of_flags_run(place: Path) -> None:
    """Others each time; all of them with --slow."""
    quick = [e for e in of_kind("flag") if e.name.split()[1] in ("run", "checkpoint", "doc", "fmt")]
    for number in seeded.rng().permutation(len(quick))[:3]:
        if "austen.lgpt" in quick[number].example:
            prepare("run", place)
        done(quick[number].example.removeprefix("lispgpt "))


@pytest.mark.slow
@pytest.mark.parametrize("command", RUN_SLOWLY)
def test_examples_of_flags_run(command: str, place: Path) -> None:
    """Run it after a change of lispgpt/cli/."""
    if command in ("run", "chat", "check", "plot", "tokenizer"):
        prepare(command, place)
    for entry in of_kind("flag") + of_kind("command"):
        if entry.name.split()[1] == command:
            if command in ("train", "sign"):
                forget(entry, place)
            done(entry.example.removeprefix("lispgpt "))


def prepare(command: str, place: Path) -> None:
    """Make what the examples of a command take."""
    austen = "examples/models/austen"
    artifact = f"compile examples/gpt2_generate.lisp --checkpoint {austen} -o austen.lgpt"
    lines = {
        "run": [artifact],
        "chat": [artifact],
        "check": [artifact.replace("austen.lgpt", "gfx1151.lgpt --target emulated:gfx1151")],
        "plot": ["" if (place / "runs").exists() else of_name("lispgpt train").example.removeprefix("lispgpt ")],
        "tokenizer": [f"tokenizer encode examples/texts --tokenizer {austen}/tokenizer.json -o tokens.bin"],
    }
    (place / "talk.json").write_text('[{"role": "user", "content": "My dear"}]')
    for line in filter(None, lines[command]):
        done(line)


def forget(entry: Entry, place: Path) -> None:
    """Remove what the example makes, which would be in its way."""
    if "--resume" not in entry.name:
        shutil.rmtree(place / "runs", ignore_errors=True)
    if entry.name.endswith("--make-key"):
        (place / "mine.pem").unlink()


def of_name(name: str) -> Entry:
    return next(entry for entry in entries() if entry.name == name)


@pytest.mark.parametrize("name", [e.name for e in entries() if e.kind == "device"])
def test_examples_of_devices_run_or_say_what_is_missing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    try:
        opened = eval(of_name(name).example, {"lispgpt": lispgpt})
    except UserError as error:
        assert name in ("device rocm", "device cuda") and re.search("GPU|package|driver", error.message)
    else:
        opened.close()


SHOWN = {
    "rocm:gfx1151": ["mine", "a-team-a-share"],
    "cuda:sm_80": ["ahead", "a-team-a-row"],
    "cuda:sm_90a": ["by-warpgroups", "in-lines"],
}
SHOWN |= {
    "rocm:gfx942": ["few-columns", "sums-of-sixteen"],
    "rocm:gfx1201": ["rows-of-sixteen"],
    "cuda:sm_90": ["by-lanes"],
}
PRODUCT = "(require nn)\n(entry product [(a [128 256] bf16) (b [128 256] bf16)] (matmul-transposed a b))\n"
OF_A_NORM = """(require nn)
(weights (w [128 256] bf16) (g [256] f32))
(entry product [(a [8 256] f32)] (linear (rms-norm a g 1e-5) w))
"""

ATTENTION = """(require nn)
(weights (q [2 70 64]) (k [2 70 64]) (v [2 70 64]))
(entry attend [tokens positions]
  (let [scores (contract [h s t] q [h s e] k [h t e])
        seen (tensor [h 2 s 70 t 70] (select (<= t s) (* 0.125 (at scores h s t)) -inf))]
    (contract [h s d] (softmax seen) [h s t] v [h t d])))
"""

ATTENTION_GRADIENTS = """(require attention)
(entry train [(q [1 40 1 32] f32) (k [1 40 1 32] f32) (v [1 40 1 32] f32) (o [1 40 1 32] f32)]
  (let [y (causal-attention q k v (fn [score head t position] score))
        [dq dk dv] (gradients (reduce + 0.0 (reshape (* y o) [1280])) [q k v])]
    {:y y :dq dq :dk dk :dv dv}))
"""

BELOW = """(require nn)
(entry below [(x [300 20000] f32)]
  (let [most (maximum x)] (tensor [r 300 c 20000] (- (at x r c) (at most r)))))
"""
GRADIENTS = """(require gradients)
(require nn)
(entry slopes [(x [8192 288] f32) (g [288] f32) (b [288] f32) (t [8192 288] f32)]
  (let [loss (sum (sum (* t (layer-norm x g b 1e-5))))
        [dx dg] (gradients loss [x g])]
    {:dx dx :dg dg}))
"""


@pytest.mark.parametrize("target", SHOWN)
def test_examples_of_schedules_are_taken_and_become_the_ops_that_are_shown(target: str, tmp_path: Path) -> None:
    programs = {"few-columns": OF_A_NORM, "by-lanes": OF_A_NORM, "rows-of-sixteen": ATTENTION}
    programs |= {"sums-of-sixteen": ATTENTION_GRADIENTS}
    programs |= {"in-lines": ATTENTION.replace("64])", "64] bf16)")}
    programs |= {"a-team-a-row": BELOW, "a-team-a-share": GRADIENTS}
    text = ""
    for name in SHOWN[target]:
        examples = [said.example for said in said_in("tile.md").values()]
        text += programs.get(name, PRODUCT) + next(one for one in examples if f"(schedule {name} " in one)
    (tmp_path / "product.lisp").write_text(text)
    shown: list[str] = []
    observer = Observer(print_after=("choose-tiles",), show=shown.append)
    emit(Request(tmp_path / "product.lisp", target), "schedule", observer)
    assert all(f'tiles = "{name}"' in "".join(shown) for name in SHOWN[target])
    for entry in of_kind("tile"):
        if entry.name.startswith("op ") and f"--target {target} " in entry.example:
            assert f'"{entry.name.removeprefix("op ")}"' in "".join(shown), entry.name


def test_a_name_a_flag_and_words_are_found() -> None:
    assert shown(("contract",)).startswith("(contract [n o] x [n k] w [o k])    (form)")
    assert "(rms-norm x weight epsilon)" in shown(("rms-norm",))
    assert shown(("--min-p",)).count("(flag)") >= 1
    assert "plan-arena" in shown(("arena", "bytes"), about=True)
    with pytest.raises(UserError, match="has no `rms-nrom`; did you mean `rms-norm`"):
        shown(("rms-nrom",))


def test_words_of_the_guide_are_explained() -> None:
    assert len(words()) > 35
    for word in words():
        assert shown((word,)).startswith(f"{word}: "), word
    assert "which changes the IR of a whole program" in shown(("passes",))
    assert shown(("run",)).count("lispgpt run") >= 1  # beside the command of that name
    with pytest.raises(UserError, match="has no `wordless`"):
        shown(("wordless",))


def test_words_are_found_in_few_lines() -> None:
    for word in ("norm", "heads", "activation", "tile"):
        lines = shown((word,), about=True).splitlines()
        assert len(lines) <= MOST_LINES + 2 and len(set(lines)) == len(lines), word
    assert "norm: it is (vector-norm x 1)" in shown(("norm",), about=True)
    assert " more, less about it" in shown(("tile",), about=True)


def test_a_name_of_the_usual_library_says_that_it_is_there() -> None:
    assert "Library: (require attention); (require nn) brings it, too." in shown(("attend",))
    assert "Library: (require nn)." in shown(("linear",)) and "brings it, too" not in shown(("softplus",))
    assert str(ROOT / "lispgpt" / "lib" / "nn.lisp") in shown(("linear",))


def test_a_name_is_found_without_making_all_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is found among all, by reading little of the library and loading no pass and no other command."""
    of_language = names_of("form") | names_of("library")
    assert not of_language & {entry.name for entry in entries() if entry.kind in OTHERS}
    drawn = [entries()[number].name for number in seeded.rng().permutation(len(entries()))[:12]]
    for name in [*drawn, "train", "--min-p", "tile.fill"]:
        assert named(name) == find(entries(), name), name
    for kept in (language._parts, language._definitions, language._searched):
        kept.cache_clear()
    read_texts: list[str] = []
    monkeypatch.setattr(language, "read", lambda source: read_texts.append(source.text) or read(source))
    monkeypatch.setattr("lispgpt.cli.doc.commands", None)
    monkeypatch.setattr("lispgpt.cli.doc.entries", None)
    shown(("reduced-along",))
    assert read_texts and sum(map(len, read_texts)) < 10_000


def test_forms_of_the_library_begin_their_lines() -> None:
    """What the reference takes for one form of a file is one."""
    for path in (ROOT / "lispgpt" / "lib").rglob("*.lisp"):
        whole = read(Source(path.name, path.read_text()))
        starts = [part.start for part in language._parts(path)]
        assert [form.span.start for form in whole] == starts, path


def test_related_names_have_entries() -> None:
    """And none is a word that a definition uses for itself."""
    known = {entry.name for entry in entries()}
    for entry in entries():
        assert set(entry.related) <= known and entry.name not in entry.related, entry.name


class Links(HTMLParser):
    """The anchors of a page, and where its links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.places |= {given["id"] or ""} if "id" in given else set()
        self.links += [given[name] or "" for name in ("href", "src") if name in given]


def test_words_find_first_what_programs_use() -> None:
    found = [entry.name for entry in apropos(entries(), ["norm"])]
    assert found[0] in ("rms-norm", "layer-norm") and found.index("rms-norm") < 3 < found.index("defer-norms")
    with pytest.raises(
        UserError, match=r"the reference has no `kv`; it is spoken of under `state`, `attend`, `attention`"
    ):
        find(entries(), "kv")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site's first page."""
    return write_site(tmp_path_factory.mktemp("pages") / "site", entries())


def test_the_site_says_once_what_names_share(site: Path) -> None:
    for page, file in (("form", "forms.md"), ("tile", "tile.md")):
        text, shared = site.with_name(f"{page}.html").read_text(), said_in(file)
        for said in {id(said): said for said in shared.values() if len(said.names) > 1 and said.example}.values():
            assert text.count(f"<code>{escape(said.example)}</code>") == 1, said.names


def test_the_site_is_whole(site: Path) -> None:
    pages = {path.name: Links(path.read_text()) for path in site.parent.glob("*.html")}
    assert {f"{kind}.html" for kind in KINDS} | {f"{name}.html" for name in guide()} | {"index.html"} == set(pages)
    for name, page in pages.items():
        for link in page.links:
            file, _, anchor = link.partition("#")
            if file.startswith("https://"):
                continue
            assert (site.parent / (file or name)).is_file(), (name, link)
            assert not anchor or anchor in pages[file or name].places, (name, link)
    named = re.findall(r'"(\w+\.html)#([^"]+)"', (site.parent / "names.js").read_text())
    assert len(named) == len(entries()) and all(anchor in pages[file].places for file, anchor in named)
    with pytest.raises(UserError, match="cannot write"):
        write_site(site, entries())


def test_what_is_said_of_a_definition_stands_by_itself() -> None:
    """In the source it may follow another; in the reference nothing stands before it."""
    hanging = [e.name for e in of_kind("library") if re.match(r"(the same\b|likewise|as above)", e.text, re.IGNORECASE)]
    assert not hanging
    assert not [entry.name for entry in of_kind("library") if " Library: (require" in entry.summary]
