"""Kernels' times beside their floors, and the table of kernels that a compilation prints."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import compile_model, random_weights

from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import Observer, Request, compile_request, emit
from lispgpt.compiler.kernel_report import kernel_facts, kernel_table
from lispgpt.passes.targets import GPU_CHIPS
from lispgpt.runtime import profile
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.devices.null import NullDevice
from lispgpt.runtime.plan.artifact import Artifact, load_artifact
from lispgpt.runtime.plan.plan import Entry, Plan
from lispgpt.runtime.plan.steps import Argument, Launch
from lispgpt.runtime.plan.work import Amount, Rates, Work
from lispgpt.runtime.profile import KernelTime, Profile, measured_rates, profile_entry, table
from lispgpt.runtime.session import Session

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "gpt2_generate.lisp"
SIZES = {"layers": 2, "heads": 2, "width": 16, "vocab": 30, "padded-vocab": 32, "context": 24}
RATE = Rates("a part", bandwidth=1e9, matrix=4e9, vector=2e9)


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return compile_model(EXAMPLE, batch=2, **{name.replace("-", "_"): value for name, value in SIZES.items()})


def test_a_floor_is_what_takes_longer() -> None:
    assert RATE.floor(Amount(1000, 1000, matrix=False)) == 1e-6
    assert RATE.floor(Amount(1000, 3000, matrix=False)) == 1.5e-6
    assert RATE.floor(Amount(1000, 3000, matrix=True)) == 1e-6
    assert RATE.floor(Amount(1000, 8000, matrix=True)) == 2e-6


def test_every_gpu_has_rates() -> None:
    known = [target.rates for vendor in GPU_CHIPS.values() for target in vendor.values()]
    assert all(rates and rates.bandwidth < rates.vector < rates.matrix for rates in known)


def columns(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_the_table_has_each_kernels_floor_and_its_share_and_their_sums() -> None:
    rows = (
        KernelTime("first_4", 3, 2.0, Amount(1000, 500, matrix=False)),
        KernelTime("second_4", 2, 5.0, Amount(500, 8000, matrix=True)),
        KernelTime("unknown_4", 1, 4.0, None),
        KernelTime("hidden_4", 1, 0.0, Amount(1000, 0, matrix=False)),
    )
    text = table(Profile((*rows[:3], replace(rows[3], apart=True)), 16.0), RATE)
    assert text.splitlines()[-1].startswith("all at once, not advancing ")
    assert columns(text)[-1][-7:] == ["6", "16.0", "0.00", "0.02", "0", "7.00", "44%"]
    text = table(Profile(rows, 16.0), RATE)
    first, second, unknown, hidden, total, whole = columns(text)[1:]
    assert first == ["first_4", "3", "2.00", "6.0", "0.00", "0.00", "0", "1.00", "50%"]
    assert second == ["second_4", "2", "5.00", "10.0", "0.00", "0.01", "0", "2.00", "40%"]
    assert unknown == ["unknown_4", "1", "4.00", "4.0", "-", "-", "-", "-", "-"]
    assert hidden == ["hidden_4", "1", "0.00", "0.0", "0.00", "0.00", "-", "1.00", "-"]
    assert total == ["sum", "7", "20.0", "0.01", "0.02", "0", "8.00", "40%"]
    assert whole == ["all", "at", "once", "7", "16.0", "0.01", "0.02", "0", "8.00", "50%"]
    assert max(map(len, text.splitlines())) <= 140
    assert columns(table(Profile(rows, 16.0), None))[1][-2:] == ["-", "-"]
    assert columns(table(Profile(rows[2:3], 4.0), RATE))[-2] == ["sum", "1", "4.0", "-", "-", "-", "-", "-"]


@pytest.mark.parametrize("device", [NullDevice, CpuDevice])
def test_profiling_counts_every_launch_at_the_positions_given(device: type, artifact: Artifact) -> None:
    with Session(artifact, device(), random_weights(artifact)) as session:  # type: ignore[arg-type]
        entry = session.entry("decode-greedy", batch=2)
        positions = seeded.rng().integers(0, 24, (2, 1)).tolist()
        profiled = profile_entry(session, entry, positions, {"tokens": [[1], [2]], "positions": positions})
        np.testing.assert_array_equal(session.read(entry.inputs["positions"]), positions)
        assert measured_rates(session) is None
    rows = profiled.rows
    assert profiled.microseconds > 0
    assert sum(row.launches for row in rows) == len(entry.launches)
    assert [row.kernel for row in rows] == list(dict.fromkeys(launch.kernel for launch in entry.launches))
    for row in rows:
        counted = Work.of(artifact.kernels[row.kernel])
        assert counted is not None and row.amount == counted.at(positions)
        assert row.microseconds > 0
    (attention,) = [row.amount for row in rows if row.kernel.startswith("attention")]
    looked = sum(row[0] + 1 for row in positions)
    # queries, keys, values, result and the cache's row; positions; the keys and values looked at
    assert attention == Amount(2 * 4 * 6 * 16 + 2 * 4 + looked * 2 * 4 * 16, looked * 2 * (4 * 8 + 6), matrix=False)


class Clock:
    """Time that passes only as devices here say; in place of the module `time`."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(profile, "time", made)
    return made


def advances(entry: Entry) -> Launch:
    """A launch that leaves the token for the next run."""
    tokens = Argument(entry.inputs["tokens"], 0, 4, "read_write")
    return Launch("advance", (1, 1, 1), (1, 1, 1), 0, (tokens,))


def test_where_floors_are_known_a_kernel_takes_what_a_run_takes_more_with_it(artifact: Artifact, clock: Clock) -> None:
    class Timed(NullDevice):
        """A launch takes a microsecond for each letter of its kernel's name; the clock gets slower meanwhile."""

        runs = 0

        def launch(self, executable: Entry) -> None:
            super().launch(executable)
            self.runs += 1
            run_kernels.append({x.kernel for x in executable.launches})
            clock.now += sum(len(x.kernel) for x in executable.launches) * 1e-6 * (1 + self.runs * 1e-5)

    run_kernels: list[set[str]] = []
    decode = next(entry for entry in artifact.plan.entries if entry.name == "decode-greedy")
    first, second = (launch.kernel for launch in decode.launches[:2])
    idle = {**artifact.kernels[first], "work": {**artifact.kernels[first]["work"], "operations": 0}}
    with Session(
        replace(artifact, rates=RATE, kernels={**artifact.kernels, first: idle, "advance": {}}),
        Timed(),
        random_weights(artifact),  # type: ignore[arg-type]
    ) as session:
        entry = session.entry("decode-greedy", batch=1)
        entry = replace(entry, steps=(*entry.steps, advances(entry)))
        profiled = profile_entry(session, entry, [[5]], {"tokens": [[1]], "positions": [[5]]})
    assert [row.kernel for row in profiled.rows] == list(dict.fromkeys(x.kernel for x in entry.launches))
    for row in profiled.rows:
        assert row.microseconds == pytest.approx(len(row.kernel), rel=0.05)
    assert [row.apart for row in profiled.rows] == [row.kernel == "advance" for row in profiled.rows]
    assert profiled.microseconds == pytest.approx(sum(len(x.kernel) for x in entry.launches[:-1]), rel=0.05)
    steps = [kernels for kernels in run_kernels if "advance" not in kernels]
    assert all(first in kernels for kernels in steps), "what a kernel without arithmetic writes may be addresses"
    assert any(second not in kernels for kernels in steps)


def test_an_entry_that_is_one_launch_is_measured_whole_and_goes_no_further_than_it_may(
    artifact: Artifact, clock: Clock
) -> None:
    class Timed(NullDevice):
        """A launch takes a microsecond."""

        def launch(self, executable: Entry) -> None:
            super().launch(executable)
            launches.append(len(executable.launches))
            clock.now += len(executable.launches) * 1e-6

        def copy_in(self, buffer: Any, array: np.ndarray, offset: int = 0) -> None:
            super().copy_in(buffer, array, offset)
            launches.append(0)

    launches: list[int] = []
    kernels = {**artifact.kernels, "advance": {}}
    with Session(replace(artifact, rates=RATE, kernels=kernels), Timed(), random_weights(artifact)) as session:  # type: ignore[arg-type]
        entry = session.entry("decode-greedy", batch=1)
        step = advances(entry)
        places = Argument(entry.inputs["positions"], 0, 4, "read_write")
        entry = replace(entry, steps=(replace(step, arguments=(*step.arguments, places)),))
        launches.clear()
        profiled = profile_entry(session, entry, [[21]], {"tokens": [[1]], "positions": [[21]]})
        assert session.read(entry.inputs["positions"]) == 21
    (row,) = profiled.rows
    assert row.microseconds == pytest.approx(1) and profiled.microseconds == pytest.approx(1) and not row.apart
    gone = [sum(part) for put, part in itertools.groupby(launches, key=bool) if put]
    assert gone and max(gone) == SIZES["context"] - 21, "positions 21, 22 and 23 are the last that there are"


def test_a_kernel_that_a_run_does_not_miss_is_measured_alone(artifact: Artifact, clock: Clock) -> None:
    class Noisy(NullDevice):
        """A run of several kernels takes as long with fewer of them; a launch alone takes a microsecond."""

        def launch(self, executable: Entry) -> None:
            super().launch(executable)
            several = len({x.kernel for x in executable.launches}) > 1
            clock.now += 1e-3 if several else len(executable.launches) * 1e-6

    with Session(replace(artifact, rates=RATE), Noisy(), random_weights(artifact)) as session:  # type: ignore[arg-type]
        entry = session.entry("decode-greedy", batch=1)
        profiled = profile_entry(session, entry, [[5]], {"tokens": [[1]], "positions": [[5]]})
    assert [row.microseconds for row in profiled.rows] == [pytest.approx(1)] * len(profiled.rows)


def test_kernels_of_long_entries_run_alone_also_where_floors_are_known(artifact: Artifact, clock: Clock) -> None:
    class Timed(NullDevice):
        """A launch takes a second for each letter of its kernel's name."""

        def launch(self, executable: Entry) -> None:
            super().launch(executable)
            together.append({x.kernel for x in executable.launches})
            clock.now += sum(len(x.kernel) for x in executable.launches)

    together: list[set[str]] = []
    with Session(replace(artifact, rates=RATE), Timed(), random_weights(artifact)) as session:  # type: ignore[arg-type]
        entry = session.entry("decode-greedy", batch=1)
        profiled = profile_entry(session, entry, [[5]], {"tokens": [[1]], "positions": [[5]]}, alone=True)
    assert [row.microseconds for row in profiled.rows] == [len(row.kernel) * 1e6 for row in profiled.rows]
    every = {x.kernel for x in entry.launches}
    assert {len(kernels) for kernels in together} == {1, len(every)}, "a kernel or all of them"


def test_launches_of_long_entries_run_on_what_those_before_them_made(artifact: Artifact) -> None:
    class Ordered(CpuDevice):
        """Keeps the order of launches by which a run is timed in parts."""

        def launch(self, executable: Any) -> None:
            super().launch(executable)
            counts.append(len(executable.launches))

    counts: list[int] = []
    with Session(artifact, Ordered(), random_weights(artifact)) as session:  # type: ignore[arg-type]
        entry = session.entry("decode-greedy", batch=1)
        wanted = session.run("decode-greedy", [[1]], [[5]])["logits"].copy()
        counts.clear()
        profiled = profile_entry(session, entry, [[5]], {"tokens": [[1]], "positions": [[5]]}, alone=True)
        np.testing.assert_array_equal(session.read(entry.results["logits"]), wanted)
    steps = len(entry.launches)
    assert counts[: profile.ROUNDS * steps] == [1] * (profile.ROUNDS * steps)
    assert set(counts[profile.ROUNDS * steps :]) == {steps}
    assert all(row.microseconds > 0 for row in profiled.rows)


def test_bandwidth_is_that_of_a_copy_that_reads_and_writes(
    artifact: Artifact, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Copying(NullDevice):
        def copy(self, source: np.ndarray, target: np.ndarray, nbytes: int, *offsets: int) -> None:
            assert source.any() and source is not target and source.size == target.size == nbytes
            clock.now += 3.0

    monkeypatch.setattr(profile, "COPIED_BYTES", 1 << 16)
    with Session(replace(artifact, rates=RATE), Copying(), random_weights(artifact)) as session:  # type: ignore[arg-type]
        measured = measured_rates(session)
    assert measured is not None and "copied here" in measured.part
    assert measured == replace(RATE, bandwidth=pytest.approx(2 * (1 << 16) / 3), part=measured.part)


def test_an_artifact_made_before_work_was_counted_still_runs(artifact: Artifact, tmp_path: Path) -> None:
    kernels = {name: {k: v for k, v in facts.items() if k != "work"} for name, facts in artifact.kernels.items()}
    replace(artifact, kernels=kernels).save(tmp_path / "old.lgpt")
    old = load_artifact(tmp_path / "old.lgpt")
    assert old.rates is None
    with Session(old, NullDevice(), random_weights(old)) as session:  # type: ignore[arg-type]
        entry = session.entry("decode-greedy", batch=1)
        profiled = profile_entry(session, entry, [[0]], {"tokens": [[1]], "positions": [[0]]})
    assert {row.amount for row in profiled.rows} == {None}
    assert columns(table(profiled, None))[-1][-5:] == ["-"] * 5


@pytest.mark.parametrize(
    "work",
    [3, {}, {"bytes": 1}, "all", {"bytes": 1.5}, {"bytes": -1}, {"matrix": 1}, {"more": 1}],
)
def test_damaged_work_is_refused(work: object, artifact: Artifact, tmp_path: Path) -> None:
    name, facts = next(iter(artifact.kernels.items()))
    whole = {**facts["work"], **work} if isinstance(work, dict) and work else work
    if work == {"bytes": 1}:
        del whole["context"]  # type: ignore[attr-defined]
    replace(artifact, kernels={**artifact.kernels, name: {**facts, "work": whole}}).save(tmp_path / "bad.lgpt")
    with pytest.raises(UserError, match="damaged: its work"):
        load_artifact(tmp_path / "bad.lgpt")


def test_rates_are_kept_and_refused_where_no_chip_can_have_them(artifact: Artifact, tmp_path: Path) -> None:
    replace(artifact, rates=RATE).save(tmp_path / "good.lgpt")
    assert load_artifact(tmp_path / "good.lgpt").rates == RATE
    for bad in (replace(RATE, bandwidth=0.0), replace(RATE, matrix=float("nan")), replace(RATE, part=3)):  # type: ignore[arg-type]
        replace(artifact, rates=bad).save(tmp_path / "bad.lgpt")
        with pytest.raises(UserError, match="damaged: its rates"):
            load_artifact(tmp_path / "bad.lgpt")


@pytest.fixture(scope="module")
def compiled() -> tuple[Artifact, str]:
    request = Request(EXAMPLE, "rocm:gfx1151", overrides=SIZES)
    return compile_request(request, Observer())[0], emit(request, "asm", Observer())


def test_the_report_has_every_kernels_work_and_floor_and_each_entrys_sum(compiled: tuple[Artifact, str]) -> None:
    artifact, assembly = compiled
    entries = [replace(entry, remarks=("what a pass says of it",)) for entry in artifact.plan.entries]
    artifact = replace(artifact, plan=replace(artifact.plan, entries=entries))
    head, *rows = kernel_table(artifact, assembly).splitlines()
    offers = {line.partition(" could be by: ")[0] for line in rows if " could be by: " in line}
    assert offers == {name for name, facts in artifact.kernels.items() if "offers" in facts} != set()
    tiled = {line.partition(" is written by ")[0] for line in rows if " is written by the schedule " in line}
    assert tiled == {name for name, facts in artifact.kernels.items() if facts.get("tiles")}
    rows = [row for row in rows if " could be by: " not in row and " is written by the schedule " not in row]
    assert "rocm:gfx1151" in head and "256 GB/s" in head and "Ryzen AI Max+ 395" in head and "full context" in head
    assert rows[0].split()[-5:] == ["load", "MB", "Mflop", "floor", "us"]
    kernels, sums = rows[1 : len(artifact.kernels) + 1], rows[len(artifact.kernels) + 1 :]
    sums, remarks = sums[: len(artifact.plan.entries)], sums[len(artifact.plan.entries) :]
    assert remarks == [f"{entry.label}: {remark}" for entry in artifact.plan.entries for remark in entry.remarks] != []
    assert {line.split()[0].partition("@gpt2")[0] for line in kernels} == set(artifact.kernels)
    assert max(map(len, rows)) <= 160
    for line, entry in zip(sums, artifact.plan.entries, strict=True):
        name, _, figures = line.partition(": ")
        assert name == f"{entry.name} (batch {entry.sizes['batch']}, positions {entry.sizes['positions']})"
        found = re.fullmatch(r"(\d+) launches, ([\d.]+) MB, ([\d.]+) Mflop, floor ([\d.]+) us", figures)
        assert found is not None and int(found[1]) == len(entry.launches)
        counted = [w.at_most(entry) for x in entry.launches if (w := Work.of(artifact.kernels[x.kernel]))]
        seconds = sum(max(a.nbytes / 256e9, a.operations / (59.4e12 if a.matrix else 29.7e12)) for a in counted)
        assert float(found[4]) == pytest.approx(seconds * 1e6, abs=0.06)


def test_the_widest_load_may_be_a_copy_to_shared_memory() -> None:
    ptx = ".visible .entry k(){ ld.global.v2.b32 {%r1, %r2}, [%rd1]; cp.async.cg.shared.global [%r3+64], [%rd4], 16; }"
    assert kernel_facts(ptx)["k"].widest_load == 16
    assert kernel_facts(ptx.replace("cp.async.cg.shared.global", "st.shared"))["k"].widest_load == 8


def test_the_report_adds_dynamic_to_static_shared_memory(compiled: tuple[Artifact, str]) -> None:
    artifact, assembly = compiled
    entries = [replace(e, steps=tuple(replace(x, shared_bytes=512) for x in e.launches)) for e in artifact.plan.entries]
    dynamic = replace(artifact, plan=Plan(artifact.plan.buffers, tuple(entries)))
    static = kernel_facts(assembly)
    for line in kernel_table(dynamic, assembly).splitlines()[2 : 2 + len(artifact.kernels)]:
        name, _, _, _, shared, *_ = line.split()
        assert int(shared) == (static[name.partition("@")[0]].shared or 0) + 512
