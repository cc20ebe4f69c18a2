"""Other programs that measure the same steps and prompts, each in a process of an interpreter that has it.

A peer's file is started with a JSON object as its argument and says its name on its first line.  Every line that it is
given, `{"what": "decode" or "prompt", "count": tokens, "batch": sequences, "steps": of a decode}`, it answers by
`{"seconds": of one step or of the prompt}`, or `{"failed": why}`.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.bench.measures import STEPS, Measure

HERE = Path(__file__).parent
ANSWERS = frozenset(("name", "seconds", "failed"))
KINDS: tuple[tuple[str, tuple[str, ...], dict[str, Any]], ...] = (
    ("peer_torch.py", ("torch", "transformers"), {"compiled": False}),
    ("peer_torch.py", ("torch", "transformers"), {"compiled": True}),
    ("peer_llamacpp.py", ("llama_cpp", "gguf"), {}),
)
"""Files of peers, what they import, and what they are told beside the model."""


@dataclass(frozen=True)
class Source:
    """What a peer runs.  torch: a Hugging Face folder, or a GPT-2's sizes; gguf: a file, which is made where it is not
    there yet.  None where there is no such thing."""

    torch: str | dict[str, int] | None
    gguf: str | None
    dtype: str
    context: int


@dataclass
class Peer:
    """One that runs.  seconds: by what was measured.  failed: why it was not, by the same."""

    name: str
    process: subprocess.Popen[str]
    seconds: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def measure(self, measure: Measure, rounds: int) -> None:
        """Measure what was measured here, as often."""
        if measure.asked is None or self.process.poll() is not None:
            return
        found: list[float] = []
        for _ in range(rounds):
            answer = self._ask({**measure.asked, "steps": STEPS})
            if "failed" in answer:
                self.failed[measure.what] = answer["failed"]
                return
            found.append(float(answer["seconds"]))
        self.seconds[measure.what] = statistics.median(found)

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return {"failed": "its process has ended"}
        return _said(self.process)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def start(python: str, source: Source, threads: int, gpu: bool) -> list[Peer]:
    """The peers that an interpreter has, each with the model in memory; UserError where there is no interpreter."""
    have, peers = _installed(python), list[Peer]()
    for file, wanted, more in KINDS:
        model = source.gguf if "llama_cpp" in wanted else source.torch
        if model is None or not have.issuperset(wanted):
            continue
        given = {"model": model, "threads": threads, "gpu": gpu, "dtype": source.dtype, "context": source.context}
        process = subprocess.Popen(
            [python, str(HERE / file), json.dumps(given | more)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        peer = Peer(str(_said(process).get("name", f"{wanted[0]} (it does not start)")), process)
        if peer.name in [other.name for other in peers]:
            peer.close()
        else:
            peers.append(peer)
    return peers


def _installed(python: str) -> set[str]:
    """Which of the peers' modules an interpreter finds."""
    modules = sorted({name for _, wanted, _ in KINDS for name in wanted})
    asked = f"from importlib.util import find_spec; print(*[n for n in {modules!r} if find_spec(n)])"
    try:
        ran = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False)
    except OSError as error:
        raise UserError(f"--peer-python {python}: {error.strerror}") from None
    return set(ran.stdout.split())


def _said(process: subprocess.Popen[str]) -> dict[str, Any]:
    """A peer's next line that is one of ours: libraries may print others, JSON too."""
    assert process.stdout is not None
    for line in process.stdout:
        found = _answer(line)
        if found is not None:
            return found
    return {"failed": f"its process ended with code {process.wait()}"}


def _answer(line: str) -> dict[str, Any] | None:
    """What a line says, where it is one of a peer's."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and ANSWERS & found.keys() else None


def table(measures: Sequence[Measure], peers: Sequence[Peer]) -> str:
    """A line for each figure that a peer has too: its microseconds, and this one's time to the peer's."""
    lines = []
    for peer in peers:
        lines.append(f"{peer.name:38}{'us':>12}{'ours us':>12}{'to it':>8}")
        for measure in measures:
            if measure.what in peer.seconds:
                theirs = peer.seconds[measure.what]
                times = f"{theirs * 1e6:12.1f}{measure.seconds * 1e6:12.1f}{measure.seconds / theirs:8.2f}"
                lines.append(f"  {measure.what:36}{times}")
            elif measure.what in peer.failed:
                lines.append(f"  {measure.what:36}{'-':>12}  {peer.failed[measure.what]}")
    return "\n".join(lines)


def described(measures: Sequence[Measure], peers: Sequence[Peer]) -> list[dict[str, Any]]:
    """The same as JSON values.  ratio: this one's time to the peer's."""
    ours = {measure.what: measure.seconds for measure in measures}
    return [
        {
            "name": peer.name,
            "failed": peer.failed,
            "measures": [{"what": w, "seconds": s, "ratio": ours[w] / s} for w, s in peer.seconds.items()],
        }
        for peer in peers
    ]
