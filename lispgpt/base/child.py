"""A child process in which programs are compiled and run, so that whatever happens to it the parent lives to tell.

The child is a fork: it has what the parent has loaded, and the parent's standard output.  It sends the parent one
message when it starts each step and one when it fails.
"""

from __future__ import annotations

import errno
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from lispgpt.base import scratch
from lispgpt.base.asked import ASKED, Ended, begun
from lispgpt.base.bugs import summary
from lispgpt.base.descendants import ORPHANED, die_with, keeping
from lispgpt.base.errors import InternalError, UserError
from lispgpt.base.machine import complaint, ended_from_outside, why_it_gave_up

CRASHES = {
    signal.SIGSEGV: "it read or wrote memory that is not its own, or its stack ran out",
    signal.SIGBUS: "it read or wrote memory that does not exist",
    signal.SIGFPE: "an integer was divided by zero, or the quotient does not fit",
    signal.SIGILL: "it reached an instruction that is none, such as llvm.unreachable",
    signal.SIGABRT: "it called abort, or a check in a library failed",
    signal.SIGTRAP: "it reached a trap",
    signal.SIGKILL: "the system ended it, most likely for want of memory",
}


PATIENCE = 2.0
"""Seconds that a child has to end when it is asked to."""


@dataclass(frozen=True)
class Outcome:
    """How the child ended: `code` is what it passed to exit; or `signal_number` ended it during `step`.

    value: what it sent with Reporter.give.  finished: whether its work came to an end, and nothing in it called exit.
    """

    code: int
    signal_number: int
    step: str
    value: Any = None
    finished: bool = True

    @property
    def reason(self) -> str:
        """The signal's name and what it mostly means."""
        number = signal.Signals(self.signal_number)
        return f"{number.name}: {CRASHES.get(number, 'it was stopped from outside')}"


class Reporter:
    """The child's end of the pipe."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def step(self, name: str) -> None:
        """Say what comes next; the last step is named when the child dies in it."""
        self._send(("step", name))

    def give(self, value: Any) -> None:
        """Hand the parent a value that can be pickled."""
        self._send(("value", value))

    def tell(self, value: Any) -> None:
        """Hand the parent a value at once, where it listens (see `together`)."""
        self._send(("told", value))

    def finish(self) -> None:
        """Say that all is done."""
        self._send(("finished", None))

    def _send(self, message: tuple[str, Any]) -> None:
        pickle.dump(message, self._stream)
        self._stream.flush()

    def fail(self, error: BaseException) -> None:
        if isinstance(error, UserError):
            self._send(("user error", (error.message, error.span, error.expanded_from)))
        elif isinstance(error, BrokenPipeError):
            self._send(("broken pipe", ()))
        elif (said := complaint(error)) is not None:
            self._send(("user error", (said, None, ())))
        else:
            self._send(("bug", (summary(error), _report(error))))

    def give_up(self, error: UserError) -> NoReturn:
        """End the child with an error, from wherever it is."""
        self.fail(error)
        os._exit(1)


def run_in_child(work: Callable[[Reporter], int]) -> Outcome:
    """Call work in a forked child; its result is the child's exit code.

    A UserError that work raises is raised here; any other exception is an InternalError with the child's traceback.
    """
    return Child(work).kept_outcome()


def in_children(works: Sequence[Callable[[Reporter], int]]) -> list[Outcome]:
    """Call each work in a child of its own, all at once; the first failure is raised, once all have ended."""
    children: list[Child] = []
    ended: list[Outcome | Exception] = []
    try:
        for work in works:
            children.append(Child(work))
        for child in children:
            try:
                ended.append(compiled(child.outcome()))
            except Exception as error:
                ended.append(error)
    except BaseException:  # it was interrupted, in one of them
        for child in children[len(ended) :]:
            child.end()
        raise
    for each in ended:
        if isinstance(each, Exception):
            raise each
    return [each for each in ended if isinstance(each, Outcome)]


class Child:
    """A child at work."""

    def __init__(self, work: Callable[[Reporter], int]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        read_end, write_end = os.pipe()
        self._read_end, parent, self._scratch = read_end, os.getpid(), scratch.chosen_for_child()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, *ASKED])
        try:  # what libraries have Python do around a fork would swallow an interrupt
            self._process = os.fork()
            if self._process == 0:
                die_with(parent)
                os.close(read_end)
                be_the_child(work, write_end, before, self._scratch)
            begun.append(self.end)
            os.close(write_end)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def ask(self, number: int) -> None:
        """Send it a signal."""
        with suppress(ProcessLookupError):
            os.kill(self._process, number)

    def kill(self) -> None:
        """End it, whatever it does."""
        self.ask(signal.SIGKILL)

    def end(self) -> None:
        """End it and what it waits for, and remove its files."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self.ask(ORPHANED)
            deadline = time.monotonic() + PATIENCE
            with suppress(ChildProcessError):  # it was waited for
                while os.waitpid(self._process, os.WNOHANG)[0] == 0:
                    if time.monotonic() > deadline:
                        self.kill()
                    time.sleep(0.01)
            self._forget()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _forget(self) -> None:
        """Remove what it has left: it has ended."""
        scratch.end(self._scratch)
        if self.end in begun:
            begun.remove(self.end)

    def kept_outcome(self) -> Outcome:
        """Its outcome, where it is the only child: processes that it has forked end with it when a signal ends it, and
        when this process loses its parent."""
        with keeping(self._process):
            return self.outcome()

    def outcome(self, hear: Callable[[Any], None] = lambda _: None) -> Outcome:
        """Hear what it says until it ends; where this is interrupted, it is ended."""
        try:
            return self._outcome(hear)
        except (KeyboardInterrupt, Ended):
            self.end()
            raise

    def _wait(self) -> int:
        """The status with which it has ended."""
        return _wait(self._process)

    def _outcome(self, hear: Callable[[Any], None]) -> Outcome:
        step, failure, value, finished = "start", None, None, False
        with os.fdopen(self._read_end, "rb") as stream:
            for kind, content in _messages(stream):
                if kind == "step":
                    step = content
                elif kind == "value":
                    value = content
                elif kind == "told":
                    hear(content)
                elif kind == "finished":
                    finished = True
                else:
                    failure = (kind, content)
        status = self._wait()
        self._forget()
        if failure is not None:
            raise _error_of(*failure)
        if os.WIFSIGNALED(status):
            return Outcome(0, os.WTERMSIG(status), step, value, finished)
        return Outcome(os.WEXITSTATUS(status), 0, step, value, finished)


@contextmanager
def passed_on(asks: Sequence[Callable[[int], None]]) -> Iterator[None]:
    """Pass on that this process is asked to end, and do not end."""
    numbers = (signal.SIGINT, signal.SIGTERM)

    def pass_on(number: int, _: Any) -> None:
        for ask in asks:
            ask(number)

    before = [signal.signal(number, pass_on) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _error_of(kind: str, content: Any) -> Exception:
    """What Reporter.fail sent, as an exception."""
    if kind == "user error":
        return UserError(*content)
    if kind == "broken pipe":
        return BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
    return InternalError(*content)


def _report(error: BaseException) -> str:
    own = getattr(error, "report", "")
    return own or "".join(traceback.format_exception(error))


def be_the_child(work: Callable[[Reporter], int], write_end: int, mask: Iterable[int], place: Path | None) -> None:
    """Never returns: the parent's handlers and exit functions are not the child's.  mask: the signals to hold back.
    place: chosen for its temporary files."""
    code = 1
    try:
        scratch.begin(place)
        begun.clear()
        for number in (signal.SIGINT, *ASKED):
            if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGINT:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        with os.fdopen(write_end, "wb") as stream:
            reporter = Reporter(stream)
            try:
                code = work(reporter)
                sys.stdout.flush()
                reporter.finish()
            except BaseException as error:
                reporter.fail(error)
    finally:
        os._exit(code)


def _messages(stream: BinaryIO) -> Any:
    while True:
        try:
            yield pickle.load(stream)
        except (EOFError, pickle.UnpicklingError):  # the end, or a message cut short by the child's death
            return


def _wait(child: int) -> int:
    while True:
        try:
            return os.waitpid(child, 0)[1]
        except KeyboardInterrupt:  # the terminal sends it to the child as well, which ends by it
            continue


def generate_in_child(work: Callable[[Reporter], int], ends_itself: bool = False) -> int:
    """run_in_child for a model's machine code: a UserError where a signal ends it.

    ends_itself: whether it is for the child to end when this process is asked to (SIGINT, SIGTERM).
    """
    child = Child(work)
    with passed_on([child.ask]) if ends_itself else nullcontext():
        outcome = child.kept_outcome()
    number = outcome.signal_number
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    if number:
        outside = ended_from_outside(number)
        hint = ": was the checkpoint or the artifact changed or cut short meanwhile?" if number == signal.SIGBUS else ""
        what = f"{signal.Signals(number).name}: {outside}" if outside else f"{outcome.reason}{hint}"
        raise UserError(f"running the model was ended by {what}")
    return outcome.code


def compile_in_child(work: Callable[[Reporter], int], meanwhile: Callable[[], None] | None = None) -> Outcome:
    """run_in_child for the compiler itself: InternalError where MLIR or LLVM ends the process.

    meanwhile: what a thread of this process does until then, such as waking a device; it raises nothing.
    """
    child = Child(work)
    if meanwhile is None:
        return compiled(child.kept_outcome())
    thread = threading.Thread(target=meanwhile, daemon=True)
    thread.start()
    outcome = compiled(child.kept_outcome())
    thread.join()
    return outcome


def compiled(outcome: Outcome) -> Outcome:
    """The outcome of compiling, where no signal ended it."""
    if outcome.signal_number == signal.SIGINT:
        raise KeyboardInterrupt
    outside = ended_from_outside(outcome.signal_number) if outcome.signal_number else None
    if outside is not None:
        raise UserError(f"the compiler was ended by {signal.Signals(outcome.signal_number).name}: {outside}")
    if outcome.signal_number:
        raise InternalError(f"the compiler was ended by {outcome.reason}")
    if not outcome.finished:
        limit = why_it_gave_up()
        if limit is not None:
            raise UserError(f"the compiler gave up: {limit}")
        raise InternalError(f"a library ended the compiler with exit code {outcome.code}")
    return outcome
