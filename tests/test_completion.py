"""What shells and the repl complete by the tab key."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from lispgpt.cli.main import COMMANDS, main_group

PROGRAM = str(Path(__file__).parent.parent / "examples" / "gpt2_generate.lisp")


def completed(*words: str) -> list[str]:
    """What the last word may become, given those before it."""
    shell = BashComplete(main_group, {"obj": {"environment": {}}}, "lispgpt", "_LISPGPT_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


def test_commands_flags_targets_entries_names_and_files() -> None:
    assert completed("") == list(COMMANDS)
    assert completed("co") == ["compile", "completion"]
    assert completed("run", "--ta") == ["--target"]
    assert completed("run", "--target", "emulated:gfx11") == ["emulated:gfx1100", "emulated:gfx1151"]
    assert {"auto", "cpu", "rocm:gfx1151", "cuda:sm_90"} <= set(completed("compile", PROGRAM, "--target", ""))
    assert completed("run", PROGRAM, "--entry", "lo") == ["logits"]
    assert completed("run", "missing.lisp", "--entry", "") == []
    assert "layer-norm" in completed("doc", "layer-")
    assert completed("checkpoint", "in") == ["info"]
    shell = BashComplete(main_group, {}, "lispgpt", "_LISPGPT_COMPLETE")
    assert [item.type for item in shell.get_completions(["fmt"], "exam")] == ["file"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_shells_read(shell: str) -> None:
    done = CliRunner().invoke(main_group, ["completion", shell], obj={})
    assert done.exit_code == 0 and f"_LISPGPT_COMPLETE={shell}_complete" in done.output
