"""Whether the system gives threads tables of descriptors of their own; containers may forbid it."""

from __future__ import annotations

import ctypes
import threading

import pytest

from lispgpt.base.own_stderr import CLONE_FILES


def need_own_tables() -> None:
    """Skip the test where it does not."""
    allowed: list[int] = []
    thread = threading.Thread(target=lambda: allowed.append(ctypes.CDLL(None).unshare(CLONE_FILES)))
    thread.start()
    thread.join()
    if allowed != [0]:
        pytest.skip("the system gives threads no table of descriptors of their own")
