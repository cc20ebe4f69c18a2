"""Every launch knows the forms of the program that it computes, from MLIR's locations to the artifact's file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from compiled_models import compile_model, random_weights
from test_cli import Call, call, made

from lispgpt.base.errors import UserError
from lispgpt.compiler.kernel_report import kernel_table
from lispgpt.ir.mlir import ir, new_context
from lispgpt.ir.places import forms_of, together
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.plan import Plan
from lispgpt.runtime.profile import profile_entry, table
from lispgpt.runtime.session import Session

__all__ = ["call", "made"]

ODD = 'we"ird, [\\x(é.lisp'


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    program = Path(__file__).resolve().parent.parent / "examples" / "gpt2.lisp"
    sizes = {"layers": 2, "heads": 2, "width": 32, "vocab": 50, "context": 8}
    return compile_model(program, entries=("logits",), sizes=[{"batch": 1, "positions": 1}], **sizes)


def test_a_location_is_the_users_form_in_it() -> None:
    with new_context():
        library, own = ir.Location.file("lib/nn.lisp", 25, 3), ir.Location.file("/x/gpt2.lisp", 28, 13)
        chain = ir.Location.callsite(library, [own, ir.Location.file("/x/gpt2.lisp", 43, 1)])
        assert forms_of(chain) == ("gpt2.lisp:28:13",) and forms_of(library) == ("lib/nn.lisp:25:3",)
        odd = ir.Location.name("a name, [of", ir.Location.file(f"/x/{ODD}", 3, 4))
        both = ir.Location.fused([chain, odd, library, chain])
        assert forms_of(both) == ("gpt2.lisp:28:13", f"{ODD}:3:4", "lib/nn.lisp:25:3")
        assert forms_of(ir.Location.unknown()) == ()
        # a file of the user's in a folder that is called as the library's is
        assert forms_of(ir.Location.callsite(library, [ir.Location.file("lib/mine.lisp", 2, 1)])) == ("mine.lisp:2:1",)


def test_what_is_made_of_several_ops_is_of_each_form_once() -> None:
    with new_context() as context:
        context.allow_unregistered_dialects = True
        places = ('loc("f":1:1)', 'loc("g":2:1)', 'loc("f":1:1)', "loc(unknown)")
        module = ir.Module.parse("".join(f'"a.b"() : () -> () {place}\n' for place in places))
        ops = [op.operation for op in module.body]
        assert forms_of(together(ops)) == ("f:1:1", "g:2:1") and forms_of(together(ops[:1])) == ("f:1:1",)
        assert forms_of(together(ops[3:])) == ()


def test_launches_name_the_forms_that_they_are_made_of(artifact: Artifact) -> None:
    (entry,) = artifact.plan.entries
    text = (Path(__file__).resolve().parent.parent / "examples" / "gpt2.lisp").read_text().splitlines()
    for launch in entry.launches:
        assert launch.forms, launch.kernel
        for form in launch.forms:
            name, line, column = re.fullmatch(r"(.*):(\d+):(\d+)", form).groups()  # type: ignore[union-attr]
            assert name == "gpt2.lisp" and text[int(line) - 1][int(column) - 1] in "([", form
    attention = next(launch for launch in entry.launches if launch.kernel.startswith("attention"))
    line = next(number for number, text in enumerate(text, 1) if "(attention qkv" in text)
    assert attention.label == f"{attention.kernel}@gpt2.lisp:{line}"


def test_a_file_has_each_form_once_and_costs_little_for_it(artifact: Artifact, tmp_path: Path) -> None:
    artifact.save(tmp_path / "a.lgpt")
    stored = json.loads(artifact.manifest())["plan"]
    assert len(set(stored["forms"])) == len(stored["forms"])
    assert Plan.from_json(stored) == artifact.plan
    bare = json.loads(artifact.manifest())["plan"]
    del bare["forms"]
    for step in bare["entries"][0]["steps"]:
        del step["forms"]
    assert all(launch.forms == () for launch in Plan.from_json(bare).entries[0].launches)
    assert len(json.dumps(stored)) - len(json.dumps(bare)) < 0.03 * (tmp_path / "a.lgpt").stat().st_size
    stored["entries"][0]["steps"][0]["forms"] = [len(stored["forms"])]
    with pytest.raises(UserError, match="the artifact's plan is damaged"):
        Plan.from_json(stored)


def test_reports_and_profiles_name_lines(artifact: Artifact) -> None:
    first = {launch.kernel: launch.label for launch in reversed(artifact.plan.entries[0].launches)}
    labels = set(first.values())
    rows = [line.split()[0] for line in kernel_table(artifact, "").splitlines()]
    assert labels <= set(rows)
    with Session(artifact, CpuDevice(1), random_weights(artifact)) as session:  # type: ignore[arg-type]
        entry = session.artifact.plan.entries[0]
        profile = profile_entry(session, entry, [[0]], {"tokens": [[3]], "positions": [[0]]}, alone=True)
    assert labels == {row.label for row in profile.rows}
    assert labels <= {line.split()[0] for line in table(profile, None).splitlines()}


def test_dumps_say_where_ops_are_from_and_go_on(tmp_path: Path, call: Call) -> None:
    program = tmp_path / "small.lisp"
    program.write_text("(require nn)\n(config context 8)\n(weights (w [16 32]))\n"
                       "(entry product [(x [4 32])]\n  (gelu (linear x w)))\n")  # fmt: skip
    dumps = tmp_path / "dumps"
    done = call("compile", program, "--dump-dir", dumps, "--dump-locations", "-o", tmp_path / "a.lgpt")
    assert done.code == 0, done
    for dump in sorted(dumps.glob("*.mlir")):
        text = dump.read_text()
        named = dict(re.findall(r"^(#loc\d*) = loc\((.*)\)$", text, re.MULTILINE))
        products = re.findall(
            r"(?:linalg\.contract|arith\.mulf|vector\.fma|math\.fma|llvm\.fmul|fmuladd).* loc\((.*)\)$",
            text,
            re.MULTILINE,
        )
        assert products, dump
        assert all("small.lisp" in _spelled(place, named) for place in products), dump
    last = max(dumps.glob("*.mlir"))
    number = int(last.name.partition("-")[0]) - 3
    before = next(dumps.glob(f"{number:02d}-*.mlir"))
    done = call("opt", before, "--skip", number, "--dump-locations", "-o", tmp_path / "again.mlir")
    assert done.code == 0, done
    assert "small.lisp" in (tmp_path / "again.mlir").read_text()


def _spelled(place: str, named: dict[str, str]) -> str:
    """A location without its abbreviations."""
    while "#loc" in place:
        place = re.sub(r"#loc\d*", lambda found: named[found[0]], place)
    return place
