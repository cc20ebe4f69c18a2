"""What a kernel does wrong, and what the emulator cannot do."""

from __future__ import annotations


class KernelFault(Exception):
    """A kernel's mistake: which kernel, which instruction, and which waves."""


class NotModelled(Exception):
    """An instruction or a feature that the emulator does not know; nothing is wrong with the kernel."""
