"""Programs: files with a `main`, compiled to LLVM and run in a child process.

`run` is what the command line calls.  The parts: `lowering` takes a module down to LLVM, `externals` is what a program
may call, `child` is the process, `execution` makes and calls the machine code.
"""

from lispgpt.programs.execution import run
from lispgpt.programs.lowering import PassForm, run_passes

__all__ = ["PassForm", "run", "run_passes"]
