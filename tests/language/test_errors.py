"""What beginners get wrong, and what they are told: mistakes.txt holds each program with its message.

`python tests/language/test_errors.py` writes the messages anew; read the difference before committing it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lispgpt.base.errors import UserError
from lispgpt.base.source import Source
from lispgpt.ir.mlir import new_context
from lispgpt.language.model.sizes import Wanted
from lispgpt.language.program import evaluate

MISTAKES = Path(__file__).parent / "mistakes.txt"


def mistakes() -> list[tuple[str, str, str]]:
    """(what, program, message) of each section."""
    found = []
    for section in MISTAKES.read_text().split("\n=== ")[1:]:
        what, _, rest = section.partition("\n")
        program, _, message = rest.partition("\n---\n")
        found.append((what, program, message.rstrip("\n")))
    return found


def message_of(program: str) -> str:
    with new_context():
        try:
            source, wanted = Source("program.lisp", program), Wanted([(1, 2)])
            evaluate(source, overrides={}, checkpoint_config={}, wanted=wanted, root=Path("/none"))
        except UserError as error:
            return error.render()
    return "no error"


@pytest.mark.parametrize(("what", "program", "message"), mistakes(), ids=[what for what, _, _ in mistakes()])
def test_mistake(what: str, program: str, message: str) -> None:
    assert message_of(program) == message


def test_there_are_enough_mistakes() -> None:
    assert len(mistakes()) >= 40
    assert all("program.lisp:" in message or "--set" in message for _, _, message in mistakes())


def test_a_million_brackets_are_one_error() -> None:
    for text in ("(" * 1_000_000, "[(" * 500_000, ")" * 1_000_000, "'" * 1_000_000 + "x"):
        message = message_of(text)
        assert "error:" in message
        assert len(message) < 1000


if __name__ == "__main__":
    sections = [f"\n=== {what}\n{program}\n---\n{message_of(program)}\n" for what, program, _ in mistakes()]
    MISTAKES.write_text("Programs with one mistake each, and the message for it.\n" + "".join(sections))
