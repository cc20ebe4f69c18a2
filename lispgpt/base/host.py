"""Facts about the machine that this process runs on."""

from __future__ import annotations

import functools
import platform
from pathlib import Path


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


def vector_bytes() -> int:
    """Bytes of the widest vector registers that code for this processor should use."""
    features = cpu_features()
    if {"avx512f", "avx512bw", "avx512vl"} <= features:
        return 64
    return 32 if {"avx2", "fma"} <= features else 16


def cpu_signature() -> str:
    """What machine code made for this very processor depends on."""
    processor = _processor()
    flags = " ".join(sorted(cpu_features()))
    return f"{platform.machine()} {processor.get('vendor_id', '')} {processor.get('model', '')} {flags}"


V2 = ("cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3")
V3 = (*V2, "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave")
V4 = (*V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
ZEN4 = (*V4, "avx512_bf16", "avx512_vnni", "vaes")
FEATURES = {
    "x86-64": (),
    "x86-64-v2": V2,
    "x86-64-v3": V3,
    "x86-64-v4": V4,
    "znver3": (*V3, "vaes"),
    "znver4": ZEN4,
    "znver5": (*ZEN4, "avx_vnni"),
}
"""What code for a level or core may use, by Linux's names.  Source: "x86-64 psABI", micro-architecture levels."""


def missing_features(target: str) -> list[str]:
    """What code for a target such as "cpu:x86-64-v4" may use and this CPU lacks, as far as the system tells."""
    kind, _, chip = target.partition(":")
    have = cpu_features()
    return [name for name in FEATURES.get(chip, ()) if name not in have] if kind == "cpu" and have else []
