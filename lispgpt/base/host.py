"""Facts about the machine that this process runs on."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
import resource
from collections.abc import Collection
from pathlib import Path

ARCH_PRCTL, ARCH_GET_XCOMP_SUPP, ARCH_REQ_XCOMP_PERM, XTILEDATA = 158, 0x1021, 0x1023, 18
"""Of Linux on x86-64: the number of a system call, two of its operations, and that of AMX's registers."""

CONTROL_GROUPS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where a container reads how many bytes it may have; "max" for any."""

NODES = Path("/sys/devices/system/node")
"""Where Linux has a folder `nodeN` for each NUMA node: processors, and the memory that is near them."""


@functools.cache
def _processor() -> dict[str, str]:
    """The first processor's fields in /proc/cpuinfo; empty where there is none."""
    fields: dict[str, str] = {}
    path = Path("/proc/cpuinfo")
    for line in path.read_text().splitlines() if path.exists() else []:
        key, _, value = line.partition(":")
        if not line.strip():
            break
        fields[key.strip()] = value.strip()
    return fields


def cpu_name() -> str:
    """What the processor calls itself."""
    return _processor().get("model name") or platform.processor() or platform.machine()


def cpu_features() -> frozenset[str]:
    """The processor's feature flags, by Linux's names."""
    return frozenset(_processor().get("flags", "").split())


def may_use_tiles(ask: bool = False) -> bool:
    """Whether Linux lets this process use AMX's registers.  ask: for the permission, which all of the process's threads
    and those that it forks then have; otherwise whether it would be given, as far as the system tells."""
    if not hasattr(os, "sched_getaffinity") or platform.machine() != "x86_64":
        return False
    system, mask = ctypes.CDLL(None), ctypes.c_uint64()
    if ask:
        return bool(system.syscall(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0)
    found = system.syscall(ARCH_PRCTL, ARCH_GET_XCOMP_SUPP, ctypes.byref(mask)) == 0
    return found and bool(mask.value >> XTILEDATA & 1)


def processors() -> frozenset[int]:
    """The numbers of those that this process may run on."""
    return frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))


def cores() -> int:
    """Processors that this process may run on."""
    return len(processors())


def numa_nodes() -> list[frozenset[int]]:
    """The processors of each NUMA node that this process may run on; one set where the system tells of no nodes."""
    allowed, nodes = processors(), []
    for path in sorted(NODES.glob("node[0-9]*/cpulist")):
        with contextlib.suppress(OSError, ValueError):
            ranges = [list(map(int, each.split("-"))) for each in path.read_text().strip().split(",") if each]
            nodes.append(allowed & {cpu for each in ranges for cpu in range(each[0], each[-1] + 1)})
    return [node for node in nodes if node] or [allowed]


def keep_near(index: int, count: int) -> int:
    """Keep this process, one of so many that share the machine, to NUMA nodes of its own, and so to memory near them,
    where there are several; how many processors that leaves it a thread for.

    Where there are more nodes than processes each has several, where there are fewer some have one in common; nodes
    come in turn, so that what two processes have differs by one at most.
    """
    nodes = numa_nodes()
    if len(nodes) == 1 or count == 1:
        return max(1, cores() // count)
    first = index % len(nodes)
    os.sched_setaffinity(0, frozenset().union(*nodes[first::count]))
    return max(1, cores() // len(range(first, count, len(nodes))))


def memory() -> int | None:
    """Bytes of memory that this process may have at most: the machine's with its swap space, or what a control group or
    `ulimit -v` leaves of it; None where the system does not tell."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        found.append(sum(int(fields[name].split()[0]) << 10 for name in ("MemTotal", "SwapTotal")))
    for path in CONTROL_GROUPS:
        with contextlib.suppress(OSError, ValueError):
            found.append(int(path.read_text()))
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return min(found + [limit] * (limit != resource.RLIM_INFINITY), default=None)


def vector_bytes(features: Collection[str]) -> int:
    """Bytes of the widest vector registers that code for a processor with such features should use."""
    if {"avx512f", "avx512bw", "avx512vl"}.issubset(features):
        return 64
    return 32 if {"avx2", "fma"}.issubset(features) else 16


def cpu_signature() -> str:
    """What machine code made for this very processor depends on."""
    processor = _processor()
    flags = " ".join(sorted(cpu_features()))
    return f"{platform.machine()} {processor.get('vendor_id', '')} {processor.get('model', '')} {flags}"


V2 = ("cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3")
V3 = (*V2, "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave")
V4 = (*V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
ZEN4 = (*V4, "avx512_bf16", "avx512_vnni", "sse4a", "vaes")
SKYLAKE = (*V4, "adx", "aes", "clflushopt", "clwb", "pclmulqdq")
ICELAKE_VECTORS = ("avx512_bitalg", "avx512_vbmi2", "avx512_vpopcntdq", "avx512ifma", "avx512vbmi")
ICELAKE = (*SKYLAKE, *ICELAKE_VECTORS, "avx512_vnni", "gfni", "sha_ni", "vaes", "vpclmulqdq")
SAPPHIRE = (*ICELAKE, "amx_bf16", "amx_int8", "amx_tile", "avx512_bf16", "avx512_fp16", "avx_vnni", "movdir64b")
FEATURES = {
    "x86-64": (),
    "x86-64-v2": V2,
    "x86-64-v3": V3,
    "x86-64-v4": V4,
    "znver3": (*V3, "sse4a", "vaes"),
    "znver4": ZEN4,
    "znver5": (*ZEN4, "avx_vnni"),
    "skylake-avx512": SKYLAKE,
    "cooperlake": (*SKYLAKE, "avx512_bf16", "avx512_vnni"),
    "icelake-server": ICELAKE,
    "sapphirerapids": SAPPHIRE,
    "emeraldrapids": SAPPHIRE,
    "graniterapids": SAPPHIRE,
}
"""What code for a level or core may use, by Linux's names.  Source: "x86-64 psABI", micro-architecture levels."""


def missing_features(target: str) -> list[str]:
    """What code for a target such as "cpu:x86-64-v4" may use and this CPU lacks, as far as the system tells."""
    kind, _, chip = target.partition(":")
    have = cpu_features()
    return [name for name in FEATURES.get(chip, ()) if name not in have] if kind == "cpu" and have else []
