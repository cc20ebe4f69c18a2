"""The command line.  Errors of the user's end with exit code 1, of the command line with 2, of ours with 3."""

from __future__ import annotations

import sys
import time

STARTED = time.monotonic()

import codecs  # noqa: E402
import os  # noqa: E402
import tempfile  # noqa: E402
import traceback  # noqa: E402
from importlib import import_module  # noqa: E402
from io import TextIOWrapper  # noqa: E402
from pathlib import Path  # noqa: E402

import click  # noqa: E402
from click.shell_completion import CompletionItem  # noqa: E402

from lispgpt import __version__  # noqa: E402
from lispgpt.base.asked import ending_in_order  # noqa: E402
from lispgpt.base.bugs import summary, write_report  # noqa: E402
from lispgpt.base.commit import with_commit  # noqa: E402
from lispgpt.base.errors import UserError, visible  # noqa: E402
from lispgpt.base.machine import complaint  # noqa: E402
from lispgpt.cli.groups import Group  # noqa: E402
from lispgpt.cli.terminal import tell_warnings  # noqa: E402

COMMANDS = {
    "run": ("lispgpt.cli.run", "run", "Run a program or a compiled artifact."),
    "chat": ("lispgpt.cli.chat", "chat", "Talk to a model."),
    "serve": ("lispgpt.cli.serve", "serve", "Serve models to OpenAI's clients."),
    "pull": ("lispgpt.cli.pull", "pull", "Fetch models from the Hugging Face hub."),
    "compile": ("lispgpt.cli.compile", "compile_", "Compile a program to an artifact, or show a stage of it."),
    "opt": ("lispgpt.cli.opt", "opt", "Run passes on a file of MLIR, such as a dump."),
    "trace": ("lispgpt.cli.trace", "trace", "Put time lines of runs in one file for Perfetto."),
    "diff": ("lispgpt.cli.diff", "diff", "Show what is different between two dumps or two artifacts."),
    "explore": ("lispgpt.cli.explore", "explore", "Write a page from a program's lines to machine code."),
    "targets": ("lispgpt.cli.targets", "targets", "Say what can compile and run here, and what would help."),
    "sign": ("lispgpt.cli.sign", "sign_", "Vouch for artifacts with a key of yours."),
    "train": ("lispgpt.cli.train", "train", "Train a model on text or tokens; resume a run."),
    "evaluate": ("lispgpt.cli.evaluate", "evaluate", "Measure a model's loss on text or tokens."),
    "bench": ("lispgpt.cli.bench", "bench", "Measure how fast a model is on a device."),
    "tune": ("lispgpt.cli.tune", "tune", "Measure schedules of a GPU's kernels, and keep which are fastest."),
    "plot": ("lispgpt.cli.plot", "plot", "Draw the curves of runs."),
    "check": ("lispgpt.cli.check", "check_", "Compare a model on a device with the CPU, kernel by kernel."),
    "tokenizer": ("lispgpt.cli.tokenizer", "tokenizer", "Make vocabularies, encode texts, decode tokens."),
    "check-gradients": (
        "lispgpt.cli.check_gradients",
        "check_gradients",
        "Compare an entry's gradients with central differences.",
    ),
    "checkpoint": ("lispgpt.cli.checkpoint", "checkpoint", "Look into checkpoints, make random ones, convert them."),
    "repl": ("lispgpt.cli.repl", "repl", "Evaluate forms one by one."),
    "examples": ("lispgpt.cli.examples", "examples", "Copy the examples that come with the package."),
    "doc": ("lispgpt.cli.doc", "doc", "Say what a name means; write the reference and the guide as pages."),
    "fmt": ("lispgpt.cli.fmt", "fmt", "Lay out programs."),
    "completion": ("lispgpt.cli.completion", "completion", "Print what a shell reads to complete command lines."),
    "lsp": ("lispgpt.cli.lsp", "lsp", "Serve an editor, which starts it."),
}


class _Commands(Group):
    """Imports a command's module only when it is asked for: most need no MLIR."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[name]
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands that begin so, without importing any."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        found = ((name, text) for name, (_, _, text) in COMMANDS.items() if name.startswith(incomplete))
        return [CompletionItem(name, help=text) for name, text in found]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])


def _tell_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    """The version, and the commit where it is known."""
    if asked:
        click.echo(f"lispgpt, version {with_commit(__version__)}")
        ctx.exit()


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done; 1 the program, a file or its data is wrong; 2 the command line is wrong; 3 a bug in "
    "lispgpt; 130 interrupted.",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_tell_version, help="Say which.")
@click.pass_context
def main_group(ctx: click.Context) -> None:
    """Compile and run language models written in a small Lisp."""
    ctx.obj = {"started": STARTED, "environment": dict(os.environ)}


def main(arguments: list[str] | None = None) -> None:
    """The console script: run a command, and turn every error into one message and an exit code."""
    _reopen_closed_streams()
    _name_a_home()
    _show_cuda()
    _keep_to_tmpdir()
    tell_warnings()
    try:
        with ending_in_order():
            code = main_group.main(arguments, "lispgpt", standalone_mode=False)
    except UserError as error:
        code = _complain(error.render(), 1)
    except click.ClickException as error:
        error.show()
        code = 2
    except click.exceptions.Abort:
        code = _complain("interrupted", 130)
    except KeyboardInterrupt:
        code = _complain("interrupted", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception as error:  # the last line of defence: what is not about the machine is our bug
        said = complaint(error)
        if isinstance(error.__cause__, KeyboardInterrupt):  # Python wraps what comes while it makes a class
            code = _complain("interrupted", 130)
        else:
            code = _report_bug(error) if said is None else _complain(f"error: {said}", 1)
    sys.exit(code if isinstance(code, int) else 0)


def _reopen_closed_streams() -> None:
    """Give a process that was started without standard streams the null device: files would take their numbers."""
    while (number := os.open(os.devnull, os.O_RDWR)) < 3:
        continue
    os.close(number)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal of few letters gets the rest by their numbers
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdin, TextIOWrapper):  # texts are UTF-8 in files too; what is none is told where it is used
        few = codecs.lookup(sys.stdin.encoding).name == "ascii"
        sys.stdin.reconfigure(encoding="utf-8" if few else None, errors="surrogateescape")


def _name_a_home() -> None:
    """Give a user without a home (as in containers) one where nothing is kept: libraries ask for it as they load."""
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/nonexistent"


def _show_cuda() -> None:
    """Have NVIDIA's assembler found where CUDA_HOME says, though PATH does not."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if home:
        os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(home) / "bin")])


def _keep_to_tmpdir() -> None:
    """Keep to the folder that TMPDIR names, however full: LLVM does, and Python would take another and not say so."""
    folder = os.environ.get("TMPDIR")
    if folder and os.path.isdir(folder):
        tempfile.tempdir = os.path.abspath(folder)


def _complain(message: str, code: int) -> int:
    try:
        sys.stdout.flush()
    except OSError:  # what it holds cannot be written, now or when the interpreter ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    print(visible(message), file=sys.stderr)
    return code


def _report_bug(error: Exception) -> int:
    """One line that says what happened and with what, and a file with the rest."""
    report = getattr(error, "report", "") or "".join(traceback.format_exception(error))
    log = write_report(Path(), f"{summary(error)}\n\n{report}")
    kept = f"\nplease report it with {log}" if log else ""
    return _complain(f"this is a bug in lispgpt: {summary(error)}{kept}", 3)
