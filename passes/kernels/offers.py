"""What schedules say of a kernel: the time that each should take, or why it leaves the kernel; `--report` shows it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.ir.mlir import attribute, ir

OFFERS = "offers"
"""A kernel's attribute: for each schedule {schedule, own} with nanoseconds, where they are known, or refused."""

IDENTITY = "identity"
"""Of such a kernel: what it has in common with all that compute the same of operands of the same sizes and types."""

TUNED = "tuned"
"""Of such a kernel: that its schedule was chosen by measured times."""


@dataclass(frozen=True)
class Offer:
    """schedule: its name.  seconds: that it should take; None: not known, or it leaves the kernel.  refused: why it
    does; "": it does not.  own: whether it is the user's, which is asked before the library's."""

    schedule: str
    seconds: float | None = None
    refused: str = ""
    own: bool = False

    def facts(self) -> dict[str, int | str | bool]:
        known = {} if self.seconds is None else {"nanoseconds": round(1e9 * self.seconds)}
        return {
            "schedule": self.schedule,
            **known,
            **({"refused": self.refused} if self.refused else {}),
            **({"own": True} if self.own else {}),
        }


def offers_of(kernel: ir.Operation) -> list[Offer]:
    """All that have been noted, the user's first."""
    return [_offer(one) for one in kernel.attributes[OFFERS]] if OFFERS in kernel.attributes else []


def _offer(facts: ir.DictAttr) -> Offer:
    known = {one.name: one.attr for one in facts}
    refused = ir.StringAttr(known["refused"]).value if "refused" in known else ""
    seconds = ir.IntegerAttr(known["nanoseconds"]).value * 1e-9 if "nanoseconds" in known else None
    return Offer(ir.StringAttr(known["schedule"]).value, seconds, refused, "own" in known)


def note_offers(kernel: ir.Operation, offers: Sequence[Offer]) -> None:
    """Keep these in place of what the same schedules have said of the kernel before."""
    found = {(one.own, one.schedule): one for one in [*offers_of(kernel), *offers]}
    kept = sorted(found.values(), key=lambda one: not one.own)
    kernel.attributes[OFFERS] = ir.ArrayAttr.get([attribute(one.facts()) for one in kept])


def note_identity(kernel: ir.Operation) -> str:
    """Before any schedule has written to its body; the identity."""
    text = kernel.get_asm(use_local_scope=True, assume_verified=True)
    found = hashlib.sha256(text[text.index("\n") :].encode()).hexdigest()[:16]  # without its name and attributes
    kernel.attributes[IDENTITY] = attribute(found)
    return found


def has_left(kernel: ir.Operation, schedule: str, own: bool) -> str:
    """Why a schedule has left the kernel before; "" where it has not, or was not asked."""
    return next((one.refused for one in offers_of(kernel) if (one.schedule, one.own) == (schedule, own)), "")
