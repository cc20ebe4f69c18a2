"""What the page holds, as data: names, numbers and texts for its modules in `page/`, and streams of bytes.

Keys are short words, as JavaScript reads them; see `page/model.js`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from lispgpt.base.errors import InternalError
from lispgpt.explore.packed import Packed, PackedMachine
from lispgpt.explore.recording import Recording
from lispgpt.explore.running import Sentence, Times
from lispgpt.explore.sources import Meant, SourceFile, source_files
from lispgpt.passes.base import find_pass
from lispgpt.reference.machinery import passes as pass_entries
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.plan.steps import Launch
from lispgpt.runtime.plan.work import Work

Data = dict[str, Any]


def document(
    recording: Recording, command: str, seen: Sentence | None = None, times: Sequence[Times] = ()
) -> tuple[Data, dict[str, bytes]]:
    """(data for JSON, streams by their names).  command: the line that made the page.  seen: the tensors of a prompt.
    times: of the plan's entries, in order, where they were measured."""
    files = source_files(recording.request.program, recording.places)
    packed, machine = Packed(recording.history.steps), PackedMachine(recording.machine)
    data = {
        "program": str(recording.request.program),
        "target": str(recording.target),
        "about": recording.target.describe(),
        "command": command,
        "files": [_file(recording, file) for file in files],
        **_locations(recording, files),
        "passes": _passes(recording, command),
        "functions": packed.functions,
        "machine": machine.functions,
        "remark": recording.remark,
        "kernels": _kernels(recording),
        "plan": None if recording.artifact is None else _plan(recording.artifact),
        "failure": _failure(recording),
        "times": [asdict(each) for each in times],
        "sentence": None if seen is None else _sentence(seen),
    }
    streams = {name: bytes(stream) for name, stream in packed.streams.items()}
    streams |= {f"machine-{name}": bytes(stream) for name, stream in machine.streams.items()}
    streams |= {"texts": _texts(packed.texts), "machine-texts": _texts(machine.texts)}
    if seen is not None:
        streams["pictures"] = b"".join(picture.planes.tobytes() for picture in seen.pictures)
    return data, streams


def _sentence(seen: Sentence) -> Data:
    """The tokens, and of each picture what it is of and where in the stream its cells begin."""
    pictures, at = [], 0
    for picture in seen.pictures:
        known = {f.name: getattr(picture, f.name) for f in fields(picture) if f.name != "planes"}
        known |= {name: float(f"{known[name]:.5g}") for name in ("low", "high", "mean")}
        pictures.append({**known, "size": picture.planes.shape, "at": at})
        at += picture.planes.size
    return {"tokens": seen.tokens, "probable": seen.probable, "pictures": pictures}


def _file(recording: Recording, file: SourceFile) -> Data:
    """Its text, its forms, and by where a macro call begins what it becomes."""
    macros = {span.start: text for span, text in recording.expansions.items() if span.source.name == file.name}
    return {"name": file.name, "text": file.text, "library": file.library, "forms": file.forms, "macros": macros}


def _texts(texts: list[str]) -> bytes:
    return "\n".join(texts).encode()


def _locations(recording: Recording, files: list[SourceFile]) -> Data:
    """places: (file, offset of the form), or (-1, 0) where the text is not there.  chains: of places.  locations: the
    chains that each stands for.  machine: from which on they are those of machine code."""
    places, meant = recording.places, Meant(recording.places)
    numbers = {file.name: number for number, file in enumerate(files)}
    starts = {file.name: _line_starts(file.text) for file in files}
    found = []
    for name, line, column in places.places:
        known = name in numbers and line <= len(starts[name])
        found.append((numbers[name], starts[name][line - 1] + max(column, 1) - 1) if known else (-1, 0))
    machine = {line.location for lines in recording.machine.values() for line in lines}
    chains = [meant.chains(numbers_, number in machine) for number, numbers_ in enumerate(places.locations)]
    return {"places": found, "chains": list(places.chains), "locations": chains}


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    return starts[:-1]


def _passes(recording: Recording, command: str) -> list[Data]:
    """Each pass with its stage, its seconds where it ran, the lines that it changed, its own text, and what runs it
    again on the dump before it."""
    about = {entry.name: entry.text for entry in pass_entries()}
    found: list[Data] = []
    before = "input"
    for stage in recording.pipeline.stages:
        for call in stage.calls:
            number = len(found) + 1
            ran = number <= len(recording.seconds)
            dump = f"dumps/{number - 1:02d}-{before}.mlir"
            again = ["lispgpt", "opt", dump, "--target", str(recording.target), "--pipeline", str(call)]
            found.append(
                {
                    "name": call.name,
                    "call": str(call),
                    "stage": stage.name,
                    "seconds": round(recording.seconds[number - 1], 4) if ran else None,
                    "changed": recording.history.changed.get(number, 0),
                    "text": about.get(call.name, ""),
                    "ours": find_pass(call.name) is not None,
                    "again": shlex.join(again),
                }
            )
            before = call.name
    return found


def _kernels(recording: Recording) -> dict[str, Data]:
    """Facts by kernel: of its first launch, of the back end, and of the pass that scheduled it."""
    artifact = recording.artifact
    if artifact is None:
        return {}
    found: dict[str, Data] = {}
    for entry in artifact.plan.every:
        for launch in entry.launches:
            facts = found.setdefault(launch.kernel, _kernel(recording, artifact, launch, entry))
            facts["launches"] += 1
    return found


def _kernel(recording: Recording, artifact: Artifact, launch: Launch, entry: Entry) -> Data:
    known = artifact.kernels[launch.kernel]
    back = recording.facts.get(launch.kernel)
    work = Work.of(known)
    amount = None if work is None else work.at_most(entry)
    floor = artifact.rates.floor(amount) * 1e6 if amount is not None and artifact.rates is not None else None
    return {
        "label": launch.label,
        "grid": launch.grid,
        "block": launch.block,
        "shared": launch.shared_bytes,
        "forms": launch.forms,
        "launches": 0,
        "back": None if back is None else asdict(back),
        "bytes": amount and amount.nbytes,
        "operations": amount and amount.operations,
        "floor": floor,
        "schedule": known.get("schedule"),
        "offers": known.get("offers", []),
        "chosen": known.get("chosen"),
        "refused": known.get("refused", []),
        "tiles": known.get("tiles"),
        "means": known.get("means"),
    }


def _plan(artifact: Artifact) -> Data:
    """Buffers, and of each entry its steps with what they read and write of them."""
    numbers = {buffer.name: number for number, buffer in enumerate(artifact.plan.buffers)}
    buffers = [
        {"name": b.name, "kind": b.kind, "shape": b.shape, "dtype": b.dtype, "bytes": b.nbytes}
        for b in artifact.plan.buffers
    ]
    making = artifact.plan.making
    entries = [_entry(entry, numbers, entry.label) for entry in artifact.plan.entries]
    if making is not None:
        entries.append(_entry(making, numbers, "made once of weights"))
    rates = None if artifact.rates is None else str(artifact.rates)
    return {"buffers": buffers, "entries": entries, "rates": rates}


def _entry(entry: Entry, buffers: Mapping[str, int], label: str) -> Data:
    steps = [
        {
            "kernel": step.kernel if isinstance(step, Launch) else None,
            "label": step.label,
            "forms": step.forms if isinstance(step, Launch) else (),
            "arguments": [(buffers[a.buffer], a.offset, a.nbytes, a.access) for a in step.arguments],
        }
        for step in entry.steps
    ]
    inputs, results = (
        {name: buffers[place] for name, place in ports.items()} for ports in (entry.inputs, entry.results)
    )
    return {"label": label, "inputs": inputs, "results": results, "steps": steps, "remarks": entry.remarks}


def _failure(recording: Recording) -> Data | None:
    """The pass that failed, by its number, what it said, and where in the program."""
    error = recording.failure
    if error is None:
        return None
    number = len(recording.seconds) + 1
    if isinstance(error, InternalError):
        return {"pass": number, "message": str(error), "place": None, "text": f"this is a bug in lispgpt: {error}"}
    span = error.span
    place = None if span is None else (span.source.name, span.start, span.end)
    return {"pass": number, "message": error.message, "place": place, "text": error.render()}
