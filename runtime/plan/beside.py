"""A plan beside others in one session: what is its own gets other names, and what they have in common the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lispgpt.base.errors import UserError
from lispgpt.runtime.plan.loops import with_buffers
from lispgpt.runtime.plan.plan import Buffer, Entry, Plan, Repeats


def beside(plan: Plan, there: Mapping[str, tuple[tuple[int, ...], str]], suffix: str) -> Plan:
    """A plan that shares a session with others: its kernels and what is its own get a suffix behind their names.

    there: the shapes and dtypes of the session's buffers.  A weight keeps its name, and so does what is made of
    weights, which is named by what it is; a state gets that of the session's state of that name and shape, whatever
    sizes the session met first.
    """
    names = {buffer.name: _name_beside(buffer, there, suffix) for buffer in plan.buffers}

    def renamed(entry: Entry) -> Entry:
        steps = tuple(with_buffers(step, names, suffix) for step in entry.steps)
        inputs, results = ({k: names[place] for k, place in ports.items()} for ports in (entry.inputs, entry.results))
        again = entry.repeats
        if again is not None:
            again = Repeats(again.most, names[again.more], {k: names[place] for k, place in again.kept.items()})
        grows = {names[place]: axis for place, axis in entry.grows.items()}
        said = tuple(replace(report, values=tuple(names[v] for v in report.values)) for report in entry.reports)
        made = replace(entry, inputs=inputs, results=results, steps=steps, repeats=again, grows=grows)
        up_to = entry.up_to and replace(entry.up_to, size=names[entry.up_to.size])
        return replace(made, reports=said, up_to=up_to)

    buffers = tuple(replace(buffer, name=names[buffer.name]) for buffer in plan.buffers)
    return Plan(buffers, tuple(map(renamed, plan.entries)), None if plan.making is None else renamed(plan.making))


def _name_beside(buffer: Buffer, there: Mapping[str, tuple[tuple[int, ...], str]], suffix: str) -> str:
    if buffer.kind == "weight":
        if there.get(buffer.name, (buffer.shape, buffer.dtype)) != (buffer.shape, buffer.dtype):
            raise UserError(f"weight {buffer.name!r} has another shape or type in the session")
        return buffer.name
    if buffer.kind == "made" and there.get(buffer.name, (buffer.shape, buffer.dtype)) == (buffer.shape, buffer.dtype):
        return buffer.name
    if buffer.kind != "state":
        return buffer.name + suffix
    own = buffer.name.partition("@")[0]
    same = (n for n, facts in there.items() if n.partition("@")[0] == own and facts == (buffer.shape, buffer.dtype))
    spelled = f"{own}@{'x'.join(map(str, buffer.shape))}"
    return next(same, buffer.name if buffer.name not in there else spelled)
