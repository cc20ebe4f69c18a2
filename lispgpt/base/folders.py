"""Where a user's own files are kept: what was compiled, and whose artifacts are trusted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

NOWHERE = Path("/nonexistent")
"""The home of a user without one, as in containers."""


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where compiled artifacts are kept: LISPGPT_CACHE, else the user's cache folder."""
    if environment.get("LISPGPT_CACHE"):
        return Path(environment["LISPGPT_CACHE"])
    return Path(environment.get("XDG_CACHE_HOME") or _home() / ".cache") / "lispgpt"


def trusted_keys(environment: Mapping[str, str]) -> Path:
    """The file that lists the keys whose signatures a user trusts: LISPGPT_TRUSTED_KEYS, else among the settings."""
    if environment.get("LISPGPT_TRUSTED_KEYS"):
        return Path(environment["LISPGPT_TRUSTED_KEYS"])
    return Path(environment.get("XDG_CONFIG_HOME") or _home() / ".config") / "lispgpt" / "trusted-keys"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        return NOWHERE
