"""Where `lispgpt` and `python -m lispgpt` start: from here on an interrupt ends the process with a word and code 130.

While the command line is imported, and while the interpreter shuts down, nothing else would catch it.
"""

import os
import signal
from importlib import import_module
from types import FrameType

INTERRUPTED = 130


def main() -> None:
    """Run the command line; an interrupt reaches it as KeyboardInterrupt, unless the caller has it ignored."""
    caught = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if caught:
        signal.signal(signal.SIGINT, _end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # which tools/lispgpt has blocked
    try:
        command_line = import_module("lispgpt.cli.main")
    except OSError as error:  # such as no more open files: a traceback could not be made either
        os.write(2, f"error: Python cannot start lispgpt: {error}\n".encode(errors="replace"))
        os._exit(1)
    except ModuleNotFoundError as error:
        from lispgpt.base.machine import complaint

        os.write(2, f"error: {complaint(error) or error}\n".encode(errors="replace"))
        os._exit(1)

    try:
        if caught:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command_line.main()
    except KeyboardInterrupt:
        _end()
    finally:
        if caught:
            signal.signal(signal.SIGINT, _end)


def _end(number: int = signal.SIGINT, frame: FrameType | None = None) -> None:
    try:
        os.write(2, b"interrupted\n")
    finally:
        os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
