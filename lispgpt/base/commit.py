"""Of which commit this package is, where that is known."""

from __future__ import annotations

import subprocess
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
STAMP = "commit.txt"
"""The file in the package that its wheel and its sdist have of a checkout."""


def commit(package: Path = PACKAGE) -> str | None:
    """The commit's first 12 digits, of a checkout with `and changes` where files differ from it; None where neither a
    checkout nor the wheel says it."""
    checkout = package.parent
    if (checkout / ".git").exists():
        found = _git(checkout, "rev-parse", "--short=12", "HEAD")
        changed = found and _git(checkout, "status", "--porcelain", "--untracked-files=no")
        return f"{found} and changes" if changed else found
    try:
        return (package / STAMP).read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def with_commit(version: str) -> str:
    """A version of this package, and the commit where it is known."""
    found = commit()
    return f"{version}, commit {found}" if found else version


def _git(checkout: Path, *words: str) -> str | None:
    """What git says; None where there is no git, or it will not look there."""
    try:
        done = subprocess.run(["git", "-C", checkout, *words], capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
