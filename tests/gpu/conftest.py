"""The GPU of this machine, for tests that have it alone: all of them are marked `gpu`, and skip where there is none.

    bash tools/test -m gpu                  with lint and types; --slow for what takes minutes
    python -m pytest -m gpu tests/gpu       where nothing can be installed: PYTHONPATH has what lispgpt requires
    … --gpu emulated:sm_90a -k NAME         on the CPU, to see that a test itself is right

What things take stands in a table at the end, and with --gpu-json FILE in a file.
"""

from __future__ import annotations

import faulthandler
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest
from gpu.chips import Chip, emulated_cuda_opener, find_chip
from gpu.decoding import References
from gpu.timings import Timings

from lispgpt.base.errors import UserError
from lispgpt.compiler import compiled
from lispgpt.runtime.devices import cuda

TIMINGS = pytest.StashKey[Timings]()
STANDARD_ERROR = pytest.StashKey[TextIO]()
MOST_SECONDS, MOST_SECONDS_SLOW = 300.0, 1800.0
HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TIMINGS] = Timings()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.gpu)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    timings = config.stash[TIMINGS]
    if timings.chip:
        terminalreporter.section(timings.chip)
        for line in timings.table():
            terminalreporter.line(line)
    if timings.chip and (path := config.getoption("--gpu-json")):
        timings.write(Path(path))


@pytest.fixture(autouse=True, scope="session")
def chip(request: pytest.FixtureRequest, home: Path) -> Iterator[Chip]:
    """The GPU that `--gpu` says, or the first that a driver is here for; without one all tests skip."""
    if hasattr(request.config, "workerinput"):
        pytest.skip("a GPU is one process's: run these alone, with -m gpu")
    try:
        found = find_chip(request.config.getoption("--gpu"))
    except UserError as error:
        pytest.skip(error.message)
    with pytest.MonkeyPatch.context() as patch:
        if found.emulated:
            patch.setattr(cuda, "open_device", emulated_cuda_opener)
        # by this process, which knows in what tests keep keys and values, also behind the first use of a driver
        patch.setattr(compiled, "call_ready", lambda function, *given: function(*given))
        request.config.stash[TIMINGS].chip = found.says()
        yield found


@pytest.fixture(autouse=True)
def ended_where_it_hangs(request: pytest.FixtureRequest, chip: Chip) -> Iterator[None]:
    """Blocks of a GPU that wait for each other for ever end the run, with the test's name and what called them."""
    if chip.emulated:
        yield
        return
    limit, error = MOST_SECONDS_SLOW if "slow" in request.keywords else MOST_SECONDS, _standard_error(request.config)
    saying = threading.Timer(limit, print, [f"\n{request.node.nodeid} hangs"], {"file": error, "flush": True})
    saying.daemon = True
    saying.start()
    faulthandler.dump_traceback_later(limit + 2, exit=True, file=error)
    yield
    faulthandler.cancel_dump_traceback_later()
    saying.cancel()


def _standard_error(config: pytest.Config) -> TextIO:
    """The process's own, which pytest captures."""
    if STANDARD_ERROR not in config.stash:
        capture = config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            config.stash[STANDARD_ERROR] = os.fdopen(os.dup(2), "w")
    return config.stash[STANDARD_ERROR]


@pytest.fixture
def timings(request: pytest.FixtureRequest) -> Timings:
    """The table that the run ends with."""
    return request.config.stash[TIMINGS]


@pytest.fixture(scope="session")
def references(chip: Chip, tmp_path_factory: pytest.TempPathFactory) -> References:
    """What the CPU says, by models."""
    return References(chip, tmp_path_factory.mktemp("references"))


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of programs, and of what was compiled of them."""
    return tmp_path_factory.mktemp("shared")
