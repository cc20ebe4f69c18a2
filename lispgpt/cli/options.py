"""Options that several commands share, and the values they take."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from lispgpt.base.child import Reporter, compile_in_child, generate_in_child
from lispgpt.base.errors import UserError
from lispgpt.base.observer import Observer
from lispgpt.base.precisions import EXACT, PRECISIONS
from lispgpt.cli.completing import TARGET
from lispgpt.cli.launched import launched
from lispgpt.cli.terminal import say
from lispgpt.runtime.collectives.mpi import abort
from lispgpt.runtime.collectives.peers import PATIENCE, EndedByAnother, Peers

PATH = click.Path(path_type=Path)
FORMAT = click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="text to read, or json for programs.",
)
FIRST_NAN = click.option(
    "--first-nan", is_flag=True, help="Stop at the form that the first NaN comes from, op by op (slow)."
)
QUICK = click.option(
    "--quick", is_flag=True, help="Compile in less time, to code that is slower: to try programs on few numbers."
)
COMMAND_LINE = click.core.ParameterSource.COMMANDLINE


ADAPTER = click.option("--adapter", type=PATH, help="A LoRA's folder in PEFT's format, added to a folder's weights.")

DRAFT = click.option("--draft", type=PATH, help="A smaller model of the same tokens: drafts some, for speed.")


def compile_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say what to compile and what to show on the way."""
    return all_of([*program_options(), *watching_options()])(command)


def program_options() -> list[Any]:
    """The options that say what to compile; their values make a Request (see `requested`)."""
    return [
        checkpoint_option("A checkpoint; its header sets the program's config."),
        click.option(
            "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a value of the program's config."
        ),
        click.option(
            "--context",
            type=click.IntRange(1),
            help="Positions to make code for (default: the checkpoint's); memory is taken for those that are used.",
        ),
        click.option(
            "--target",
            type=TARGET,
            default="cpu",
            show_default=True,
            help="cpu, rocm:gfx1151, cuda:sm_90, emulated:gfx1151, …",
        ),
        precision_option(),
        QUICK,
        click.option("--pipeline", type=PATH, help="A pipeline file in place of the target's own."),
        schedules_option(),
        click.option(
            "--batch",
            type=click.IntRange(1, 1 << 16),
            help="Sequences at once; of one prompt run prints so many (default: as many as there are, at most 8).",
        ),
        click.option(
            "--shape", "shapes", multiple=True, metavar="NAME=SIZE,…", help="Sizes of an entry's free dimensions."
        ),
        click.option(
            "--up-to",
            "up_to",
            multiple=True,
            metavar="NAME=SIZE",
            help="A free dimension that may have any size up to this, without compiling again.",
        ),
    ]


def parse_up_to(given: tuple[str, ...]) -> dict[str, int]:
    """What --up-to says."""
    found: dict[str, int] = {}
    for sizes in parse_shapes(given, "--up-to", 1):
        found |= sizes
    return found


def watching_options() -> list[Any]:
    """The options that say what to show of a run of passes; their values make an Observer (see `observer_of`)."""
    return [
        click.option(
            "--dump-dir", type=PATH, help="Write the IR to this folder after every pass that changes it, and a list."
        ),
        click.option(
            "--dump-kernels", "kernels", is_flag=True, help="In that folder, have a file of each kernel by itself, too."
        ),
        click.option("--dump-changed", "changes", is_flag=True, help="Print what each pass changes."),
        click.option(
            "--print-ir-after", "print_after", multiple=True, metavar="PASS|all", help="Print the IR after a pass."
        ),
        click.option(
            "--dump-locations",
            "locations",
            is_flag=True,
            help="Have the IR that is dumped or printed say of each op which form of the program it is from.",
        ),
        click.option("--timings", "timed", is_flag=True, help="Say how long each pass takes."),
    ]


WATCHING = ("dump_dir", "kernels", "changes", "print_after", "locations", "timed")


def observer_of(options: Mapping[str, Any], show: Callable[[str], None]) -> Observer:
    """What these options' values ask to see; UsageError for kernels without a folder to put them in."""
    if options["kernels"] and options["dump_dir"] is None:
        raise click.UsageError("--dump-kernels needs --dump-dir, a folder for them")
    return Observer(show=show, tell=say, **{name: options[name] for name in WATCHING})


def checkpoint_option(what: str) -> Any:
    """Checkpoints, each of which wins over those before it; what: what the first is for."""
    help_ = f"{what}  Repeatable: of several, the last that has a weight gives it."
    return click.option("--checkpoint", type=PATH, multiple=True, help=help_)


def schedules_option() -> Any:
    """Files of the user's own schedules."""
    return click.option(
        "--schedules",
        type=PATH,
        multiple=True,
        metavar="FILE",
        help="Schedules of your own for a GPU's kernels, tried before the compiler's.",
    )


def precision_option() -> Any:
    """What products with short weights may read."""
    return click.option(
        "--precision",
        type=click.Choice(PRECISIONS),
        default=EXACT,
        show_default=True,
        help="fast: products with weights of 16 bits or fewer read activations in BF16, long prompts weights in "
        "blocks, too, and tanh may be the chip's own (within 2^-11).  exact: in F32, which GPUs' matrix instructions "
        "have in two BF16 parts (errors up to 1.3e-5 of the sum of magnitudes).",
    )


def all_of(options: list[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that adds these options to a command, in their order."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def given_among(ctx: click.Context, names: Sequence[str]) -> str:
    """The first of some options, by their parameters' names, that the command line has, as it is spelled; else ""."""
    said = (p for p in ctx.command.params if p.name in names and ctx.get_parameter_source(p.name) is COMMAND_LINE)
    return next((param.opts[0] for param in said), "")


def contained(command: Callable[..., None]) -> Callable[..., int]:
    """Run a command's function in a child process, which a failed check inside MLIR can end without a word."""

    @functools.wraps(command)
    def in_child(**options: Any) -> int:
        def work(_: Reporter) -> int:
            try:
                command(**options)
            except click.ClickException as error:
                error.show()
                return 2
            return 0

        return compile_in_child(work).code

    return in_child


def guarded(command: Callable[..., int], ends_itself: bool = False) -> Callable[..., int]:
    """Run a command's function in a child process: machine code that ends it leaves a process to say so.

    ends_itself: whether the command ends by itself when it is asked to (Ctrl-C).  A process that is one of several is
    that of a device itself: who has started it knows it by its number.
    """

    @functools.wraps(command)
    def in_child(*given: Any, **options: Any) -> int:
        if launched(click.get_current_context().obj["environment"]) is not None:
            return command(*given, **options)

        def work(_: Reporter) -> int:
            try:
                return command(*given, **options)
            except click.ClickException as error:
                error.show()
                return 2

        return generate_in_child(work, ends_itself)

    return in_child


@contextmanager
def together(environment: Mapping[str, str], patience: float | None) -> Iterator[Peers | None]:
    """The processes beside this one, where something has started several; of those that fail, one says so."""
    found = launched(environment)
    if found is None:
        yield None
        return

    peers = found.join(patience or PATIENCE, lambda message: say(f"error: {message}"))
    try:
        yield peers
        peers.finish()
    except EndedByAnother:
        raise click.exceptions.Exit(1) from None
    except UserError as error:
        if not peers.failed(error.message):
            raise click.exceptions.Exit(1) from None
        say(error.render())
        abort()
        raise click.exceptions.Exit(1) from None


def config_settings(settings: tuple[str, ...], context: int | None) -> dict[str, Any]:
    """What --set and --context give."""
    return parse_settings(settings) | ({} if context is None else {"context": context})


def parse_settings(settings: tuple[str, ...]) -> dict[str, Any]:
    """`name=value` options as a dict: integers, floats, true and false are read as such."""
    values: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--set wants NAME=VALUE, not {setting!r}")
        values[name.strip()] = _value(text.strip())
    return values


def parse_shapes(shapes: tuple[str, ...], option: str = "--shape", least: int = 0) -> list[dict[str, int]]:
    """`batch=4,length=64` options as dicts."""
    found = []
    for shape in shapes:
        parts = [part.partition("=") for part in shape.split(",")]
        if not all(name.strip() and size.strip().isdigit() and int(size) >= least for name, _, size in parts):
            raise click.UsageError(f"{option} wants NAME=SIZE,NAME=SIZE, such as batch=4,length=64, not {shape!r}")
        found.append({name.strip(): int(size) for name, _, size in parts})
    return found


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
