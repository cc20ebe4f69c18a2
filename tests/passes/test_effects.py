"""Pipelines are data: what would write files or start programs is refused, wherever it stands in one."""

from __future__ import annotations

from pathlib import Path

import pytest

from lispgpt.base.errors import UserError
from lispgpt.ir.mlir import ir, new_context
from lispgpt.passes.effects import refuse_linked
from lispgpt.passes.pipeline import parse_calls
from lispgpt.passes.targets.binary import linker_toolkit
from lispgpt.pipelines.pipeline_file import read_pipeline

REFUSED = [
    ("snapshot-op-locations", {"filename": "FILE"}),
    ("snapshot-op-locations", {}),
    ("gpu-module-to-binary", {"toolkit": "FOLDER", "format": "bin"}),
    ("gpu-module-to-binary", {"opts": "-o"}),
    ("nvvm-attach-target", {"chip": "sm_90", "l": "FILE"}),
    ("nvvm-attach-target", {"cmd-options": "-o"}),
    ("inline", {"default-pipeline": "builtin.module(snapshot-op-locations)"}),
    ("inline", {"default-pipeline": "gpu-module-to-binary"}),
    ("transform-preload-library", {"transform-library-paths": "FOLDER"}),
    ("transform-interpreter", {}),
]


@pytest.mark.parametrize("name, options", REFUSED)
def test_passes_that_reach_beyond_the_module_are_refused(tmp_path: Path, name: str, options: dict[str, str]) -> None:
    text = name + ("{" + " ".join(f"{key}={value}" for key, value in options.items()) + "}" if options else "")
    with pytest.raises(UserError, match="pipelines are data"):
        parse_calls(f"cse,{text}")
    path = tmp_path / "mine.lisp"
    said = " ".join(f':{key} "{value}"' for key, value in options.items())
    path.write_text(f"(pipeline mine (stage one (pass cse) (pass {name} {{{said}}})))")
    with pytest.raises(UserError, match="pipelines are data") as error:
        read_pipeline(path)
    assert "mine.lisp:1:" in str(error.value)
    assert list(tmp_path.iterdir()) == [path]


def test_what_the_compiler_itself_asks_for_can_be_asked_again() -> None:
    (call,) = parse_calls(f"gpu-module-to-binary{{format=bin toolkit={linker_toolkit()}}}")
    assert dict(call.options)["format"] == "bin"
    parse_calls("nvvm-attach-target{chip=sm_90 O=3},inline{inlining-threshold=3}")


@pytest.mark.parametrize("told", ['flags = {"ptxas-cmd-options" = ["-o"]}', 'link = ["FILE"]'])
def test_a_module_names_no_files_to_link(told: str) -> None:
    with new_context(), ir.Location.unknown():
        refuse_linked(ir.Module.parse('gpu.module @m [#nvvm.target<chip = "sm_90">] {}'))
        with pytest.raises(UserError, match="names files to link"):
            refuse_linked(ir.Module.parse(f'gpu.module @m [#nvvm.target<chip = "sm_90", {told}>] {{}}'))
