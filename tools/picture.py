"""Draw README's picture, a terminal with what three commands print.

The file is given: python tools/picture.py lispgpt/reference/terminal.svg
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = (
    'lispgpt run examples/models/austen --prompt "My dear Mr. Bennet," --max-new-tokens 48 --temperature 0.7 --seed 3',
    "lispgpt compile mine.lisp --emit mlir",
    "lispgpt doc relu",
)
WIDTH = 116


def place(folder: Path) -> None:
    """Put what the commands name into a folder: the examples, and README's first model with a letter too many."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```lisp\n(; mine\.lisp\n.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    (folder / "mine.lisp").write_text(block.replace("(relu ", "(rellu "))
    (folder / "examples").symlink_to(ROOT / "examples")


def printed(command: str, folder: Path) -> str:
    """What a command prints, on both of its streams."""
    words = f"{sys.executable} -m {command}"
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    done = subprocess.run(
        words, shell=True, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.stdout.rstrip()


def picture(folder: Path) -> str:
    """The SVG."""
    console = Console(record=True, width=WIDTH, file=open("/dev/null", "w"), highlight=False)  # noqa: SIM115
    for command in COMMANDS:
        console.print(Text.assemble(("$ ", "green"), (command, "bold")))
        for line in printed(command, folder).splitlines():
            if not line.startswith("running on"):
                console.print(Text(line, "red" if "error:" in line or set(line) <= set(" ^") else ""))
        console.print()
    drawn = console.export_svg(title="lispgpt", unique_id="lispgpt")
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)  # which would be fetched from elsewhere


if __name__ == "__main__":
    place_of_commands = Path(tempfile.mkdtemp())
    place(place_of_commands)
    Path(sys.argv[1]).write_text(picture(place_of_commands), encoding="utf-8")
    shutil.rmtree(place_of_commands)
