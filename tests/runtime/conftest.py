"""A device's driver made here, for either vendor."""

from __future__ import annotations

import pytest
from gpu_drivers import StandIn

from lispgpt.runtime.devices import cuda, rocm
from lispgpt.runtime.devices import driver as driver_calls


@pytest.fixture(params=[cuda.API, rocm.API], ids=["cuda", "rocm"])
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn(request.param, {"first": 2, "second": 1})
    monkeypatch.setattr(driver_calls, "load_module", lambda _: made)
    monkeypatch.setattr(driver_calls, "_users", {})
    return made
