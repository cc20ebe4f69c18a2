"""Every launch knows the forms of the program that it computes, from MLIR's locations to the artifact's file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from compiled_models import compile_model

from lispgpt.base.errors import UserError
from lispgpt.ir.mlir import ir, new_context
from lispgpt.ir.places import forms_of, together
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.plan import Plan

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
