"""What all tests share: the `--slow`, `--seed` and `--update-golden` flags, random numbers that a failure tells how to
repeat, the example programs' folder, and machine code that several of them want."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import fresh_forks
import pytest
import ready
import seeded

from lispgpt.base import child, fresh
from lispgpt.compiler import kernel_code
from lispgpt.language.reader import reader
from lispgpt.passes.targets import Gpu, cpu

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

NOTHING_RAN = pytest.StashKey[bool]()
DRAWN = 5
"""Of the cases of a test that is marked `drawn` one in so many runs, and one at least."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run tests that take more than a few seconds each")
    parser.addoption("--update-golden", action="store_true", help="write what passes make to their golden files")
    parser.addoption("--seed", type=int, help="the run's random numbers, as a failing test prints it")
    of_gpus = parser.getgroup("tests of a GPU (-m gpu)")
    of_gpus.addoption("--gpu", default="auto", metavar="TARGET", help="cuda, rocm, emulated:gfx1151, emulated:sm_90a")
    of_gpus.addoption("--gpu-programs", type=int, default=20, metavar="N", help="how many random programs run")
    of_gpus.addoption("--gpu-json", metavar="FILE", help="also write the table of times to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Models that are held to float64 keep keys and values in F32 on GPUs, too, unless a test says otherwise."""
    Gpu.narrow_caches = False
    seeded.run_seed(getattr(config, "workerinput", {}).get("seed", config.getoption("--seed")))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """A GPU is one process's: its times are of a machine that does nothing else, and its blocks wait for each other."""
    return 0 if asks_for_a_gpu(config) else None


def asks_for_a_gpu(config: pytest.Config) -> bool:
    """Whether `-m gpu` was said: tests of a GPU were what the run was for."""
    return config.getoption("markexpr").split()[:1] == ["gpu"]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run for a GPU in which every test was skipped has shown nothing, and fails."""
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput") or not asks_for_a_gpu(session.config):
        return
    ran = any(reporter.stats.get(outcome) for outcome in ("passed", "failed", "error", "xfailed", "xpassed"))
    if reporter.stats.get("skipped") and not ran and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        session.config.stash[NOTHING_RAN] = True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.stash.get(NOTHING_RAN, False):
        reasons = {str(report.longrepr[2]).removeprefix("Skipped: ") for report in terminalreporter.stats["skipped"]}
        terminalreporter.line(f"failed: -m gpu ran no test at all, every one was skipped: {'; '.join(sorted(reasons))}")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Processes of pytest-xdist have one seed: each draws the parameters of all tests."""
    node.workerinput["seed"] = seeded.run_seed()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    seeded.begin(item.nodeid)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Iterator[None]:
    """What several tests share does not depend on which of them is first."""
    if fixturedef.scope == "function":
        return (yield)
    before = seeded.begin(f"{fixturedef.baseid} {fixturedef.argname}")
    try:
        return (yield)
    finally:
        seeded.resume(before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[Any]:
    report = yield
    if report.failed:
        report.sections.append(("Random numbers", f"repeat them with: pytest --seed {seeded.run_seed()}"))
    return report


FIRST = ("test_readme.py", "test_guide.py", "test_package.py")
"""Whose tests share what takes a minute to make: those that come first are one process's."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in FIRST)
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="slow: run with --slow")
    drawn = dict[str, list[pytest.Item]]()
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)
        elif "drawn" in item.keywords:
            drawn.setdefault(item.nodeid.partition("[")[0], []).append(item)
    not_drawn = pytest.mark.skip(reason="another case was drawn by this run's seed: all run with --slow")
    for name, cases in drawn.items():
        for item in seeded.left_out(name, cases, max(1, len(cases) // DRAWN)):
            item.add_marker(not_drawn)


@pytest.fixture(autouse=True, scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home of the tests' own, where what they compile is noted."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("HOME", str(folder))
        yield folder


@pytest.fixture(autouse=True, scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """LLVM makes one object of a module for a CPU in a run of tests, however many of them compile the module."""
    base = tmp_path_factory.getbasetemp()
    folder, make = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "objects", cpu._object
    folder.mkdir(exist_ok=True)

    def make_once(module: Any, *how: Any) -> bytes:
        place = folder / hashlib.sha256(f"{how}\n{module}".encode()).hexdigest()
        if place.exists():
            return place.read_bytes()
        code = make(module, *how)
        with suppress(OSError):  # where a test leaves no room
            own = place.with_suffix(f".{os.getpid()}")
            own.write_bytes(code)
            own.replace(place)
        return code

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "_object", make_once)
        yield


FEW = 20
"""Tests for which getting ready to compile would take longer than it saves."""


@pytest.fixture(autouse=True, scope="session")
def ready_to_compile(request: pytest.FixtureRequest, objects: None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_read", ready.read_library_once)
        if len(request.session.items) > FEW:
            ready.compile_once()
            patch.setattr(fresh, "_Fresh", fresh_forks.begin)
            patch.setattr(child, "_wait", fresh_forks.wait)
        yield


@pytest.fixture
def interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh processes are interpreters of their own, as they are for users."""
    monkeypatch.setattr(fresh, "_Fresh", fresh_forks.INTERPRETER)


@pytest.fixture(autouse=True, scope="session")
def processes() -> Iterator[None]:
    """Kernels are compiled in the tests' own process: others are at work beside it, and each fork of one that holds so
    much takes time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_code, "MOST_PROCESSES", 1)
        yield


@pytest.fixture
def examples() -> Path:
    return EXAMPLES


@pytest.fixture
def fresh_seed() -> int:
    """A seed of this test's own, for what takes one."""
    return seeded.fresh_seed()


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written rather than compared with."""
    return bool(request.config.getoption("--update-golden"))
