"""Which adapter a sequence has, of several that are loaded beside a model.

A program that `several-adapters` (lora.lisp) was added to has the state `adapter`, i32 [batch], in which the runtime
writes a number where a sequence begins: 0 is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.session import Session

STATE = "adapter"


def is_own_adapter(name: str) -> bool:
    """Whether a state is the one that says which adapter sequences have."""
    return name.partition("@")[0] == STATE


def tell_adapters(session: Session, entries: Iterable[Entry], adapters: Sequence[int]) -> None:
    """Write in the states of these entries which adapters the sequences have that begin there; the last stands for
    those behind it."""
    if STATE not in session.artifact.states:
        return
    for name in filter(is_own_adapter, session.held("state", entries)):
        places = session.shape(name)[0]
        session.write(name, np.array([*adapters, *[adapters[-1]] * places][:places], np.int32))
