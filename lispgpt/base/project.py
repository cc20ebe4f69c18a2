"""The folder that a program's project starts at."""

from __future__ import annotations

from pathlib import Path

PROJECT_MARKS = ("lispier.toml", "pyproject.toml", "Cargo.toml", ".git")
"""What the root folder of a project has one of."""


def project_root(program: Path) -> Path:
    """Where `@path` requires start: the nearest folder above the program with a project's marks, else its own."""
    folder = program.resolve().parent
    for candidate in (folder, *folder.parents):
        if any((candidate / mark).exists() for mark in PROJECT_MARKS):
            return candidate
    return folder
