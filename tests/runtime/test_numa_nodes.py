"""Processes that share a machine's CPU keep to NUMA nodes, whose memory is near: a device each."""

import os

import pytest

from lispgpt.base import host


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A function that makes this machine one of such lists of processors, of which the process may use some; it gives
    what the process may use by then."""
    allowed = set()

    def use(_, processors):
        allowed.intersection_update(processors)

    def made(*lists, usable=None):
        for number, text in enumerate(lists):
            (tmp_path / f"node{number}").mkdir(exist_ok=True)
            (tmp_path / f"node{number}" / "cpulist").write_text(f"{text}\n")
        allowed.clear()
        allowed.update(range(64) if usable is None else usable)
        return allowed

    monkeypatch.setattr(host, "NODES", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(allowed))
    monkeypatch.setattr(os, "sched_setaffinity", use)
    return made


def test_a_process_has_a_node(machine):
    for index, processors in ((0, {0, 1, 2, 8, 9}), (1, {3, 4, 5, 6, 7})):
        allowed = machine("0-2,8-9", "3-7", usable=range(16))
        assert host.keep_near(index, 2) == 5
        assert allowed == processors


def test_two_processes_of_a_node_share_its_threads(machine):
    found = []
    for index in range(3):
        allowed = machine("0-7", "8-15")
        found.append((host.keep_near(index, 3), min(allowed), len(allowed)))
    assert found == [(4, 0, 8), (8, 8, 8), (4, 0, 8)]


def test_a_process_has_several_nodes_where_there_are_more(machine):
    found = []
    for index in range(2):
        allowed = machine("0-3", "4-7", "8-11", "")  # the last has memory alone
        found.append((host.keep_near(index, 2), sorted(allowed)))
    assert found == [(8, [0, 1, 2, 3, 8, 9, 10, 11]), (4, [4, 5, 6, 7])]


def test_one_node_is_divided_by_threads_alone(machine):
    allowed = machine("0-7", usable=range(8))
    assert host.keep_near(1, 2) == 4
    assert allowed == set(range(8))
    allowed = machine("0-7", "8-15", usable=range(8, 12))  # whoever began the process has bound it already
    assert host.keep_near(0, 2) == 2
    assert allowed == set(range(8, 12))
    assert host.keep_near(0, 1) == 4
