"""Imported by a server of forks alone: it is ready to compile from then on."""

from __future__ import annotations

import ready

from lispgpt.compiler import kernel_code
from lispgpt.language.reader import reader

reader._read = ready.read_library_once  # type: ignore[assignment]
kernel_code.MOST_PROCESSES = 1
ready.compile_once()
