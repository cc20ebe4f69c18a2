"""Tensor maps of a plan: what is wrong with one is said on loading, and a device encodes them for each launch."""

from __future__ import annotations

import re
from typing import Any

import pytest
from gpu_drivers import StandIn, opened

from lispgpt.base.errors import UserError
from lispgpt.runtime.devices import cuda, driver
from lispgpt.runtime.plan.plan import Buffer, Entry, Plan
from lispgpt.runtime.plan.steps import Argument, Launch

MAP = {"argument": 0, "offset": 64, "dtype": "bf16", "extents": [96, 20], "strides": [256], "box": [64, 8]}
"""20 rows of 96 elements, 128 apart, of a tensor that starts 64 bytes into the argument."""


def launch(offset: int = 512) -> Launch:
    arguments = (Argument("x", offset, 64 + 20 * 256, "read"), Argument("y", 0, 64, "write"))
    return Launch("product", (1, 1, 1), (128, 1, 1), 0, arguments)


def plan(step: Launch) -> Plan:
    buffers = (Buffer("x", "weight", (4096,), "bf16"), Buffer("y", "arena", (64,), "i8"))
    return Plan(buffers, (Entry("e", {}, {}, {}, (step,)),))


def facts(step: Launch, maps: Any) -> dict[str, dict[str, Any]]:
    return {"product": {**step.facts(), "tensor_maps": maps}}


def test_a_right_map_passes() -> None:
    plan(launch()).validate(facts(launch(), [MAP]))


FAULTS = {
    "no such argument": ({"argument": 2}, "has no such argument"),
    "a dtype that is none": ({"dtype": "bf17"}, "has no such argument or element type"),
    "a dimension without a stride": ({"extents": [96, 20, 2]}, "rank is wrong"),
    "one dimension": ({"extents": [96], "strides": [], "box": [64]}, "rank is wrong"),
    "no elements": ({"extents": [96, 0]}, "extents are wrong"),
    "a box that is too large": ({"box": [64, 257]}, "extents are wrong"),
    "a box of half a line": ({"box": [32, 8]}, "is not aligned"),
    "a stride between pieces": ({"strides": [200]}, "is not aligned"),
    "an offset between pieces": ({"offset": 8}, "is not aligned"),
    "more rows than there are": ({"extents": [96, 22]}, "is for an argument of 5184"),
    "a negative stride": ({"strides": [-256]}, "should be a number"),
    "a number for a list": ({"box": 64}, "TypeError"),
    "a missing field": ({"extents": None}, "TypeError"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_map_is_refused(name: str) -> None:
    fields, words = FAULTS[name]
    with pytest.raises(UserError, match=rf"step 0 of entry 'e' \(product\): .*{re.escape(words)}"):
        plan(launch()).validate(facts(launch(), [MAP | fields]))


def test_a_tensor_that_is_not_aligned_is_refused() -> None:
    step = launch(offset=520)
    with pytest.raises(UserError, match="is not aligned"):
        plan(step).validate(facts(step, [MAP]))


def test_a_device_encodes_maps_for_each_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    library = StandIn(cuda.API, {"product": 2})
    monkeypatch.setattr(driver, "load_module", lambda name: library)
    device = opened(library)
    device.load(b"code", facts(launch(), [MAP]))
    buffers = {"x": device.alloc(8192), "y": device.alloc(64)}
    steps = (launch(), launch(1024))
    device.prepare(Entry("e", {}, {}, {}, steps), buffers)
    encoded = library.made("EncodeTensorMap")
    assert [given.address for given in encoded] == [buffers["x"] + 576, buffers["x"] + 1088]
    assert {(given.dtype, given.rank) for given in encoded} == {("CU_TENSOR_MAP_DATA_TYPE_BFLOAT16", 2)}
    assert [encoded[0].extents, encoded[0].strides, encoded[0].box] == [[96, 20], [256], [64, 8]]
    assert [len(given.maps) for given in library.made("LaunchKernelEx")] == [1, 1]
    device.close()
