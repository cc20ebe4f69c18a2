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
