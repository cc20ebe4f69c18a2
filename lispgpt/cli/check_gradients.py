"""`lispgpt check-gradients`: the gradients that an entry computes, beside central differences in float64."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.checking.gradients import drawn_inputs, gradient_reports, slopes
from lispgpt.cli.arrays import read_inputs
from lispgpt.cli.completing import ENTRY
from lispgpt.cli.options import PATH, checkpoint_option, guarded, parse_settings, parse_shapes
from lispgpt.cli.terminal import echo, say
from lispgpt.compiler.compiled import artifact_of, declared
from lispgpt.compiler.folders import find_given
from lispgpt.compiler.request import Request
from lispgpt.execution.model import Model
from lispgpt.runtime.checkpoints.initial import InitialWeights
from lispgpt.runtime.decoding import ADJUSTED, ALL_LOGITS, DRAWN, GREEDY, HIDDEN, PREFILL, SCORE, VERIFY

OF_TEXTS = (PREFILL, GREEDY, DRAWN, ADJUSTED, VERIFY, SCORE, ALL_LOGITS, HIDDEN)
"""Entries that `generate` makes, which differentiate nothing."""


@click.command("check-gradients")
@click.argument("program", type=PATH)
@click.option("--entry", type=ENTRY, help="The entry whose gradients are checked (default: each that has some).")
@checkpoint_option("Weights to check at (default: what training would begin with).")
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy", help="An input of the entry, or its JSON.")
@click.option("--shape", "shapes", multiple=True, metavar="NAME=SIZE,…", help="Sizes of an entry's free dimensions.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a value of the program's config.")
@click.option("--directions", type=click.IntRange(1, 1000), default=3, show_default=True, help="Of each value.")
@click.option("--seed", type=click.IntRange(0), help="Of weights, inputs and directions (default: another each time).")
@guarded
def check_gradients(program: Path, **options: Any) -> int:
    """Compare what `(gradients loss [w …])` gives in entries of PROGRAM with central differences.

    All floats are of 64 bits then, so that rounding hides nothing: for each value the slope of the loss along random
    directions, by its gradient and by two runs. Values that lie on a kink (a maximum, the corner of relu) may be off.
    Exits with 1 where a gradient is wrong.
    """
    given = find_given(program, options["checkpoint"])
    if given.artifact is not None:
        raise click.UsageError(f"{program} is compiled: gradients are checked of programs")
    seed = secrets.randbits(31) if options["seed"] is None else options["seed"]
    settings, sizes = parse_settings(options["settings"]), parse_shapes(options["shapes"])
    request = Request(given.program, "cpu", settings, given.config, sizes=sizes, float64=True, checks_gradients=True)
    about = declared(request)
    inputs = read_inputs(options["inputs"])
    names = [options["entry"]] if options["entry"] else [name for name in about.entries if name not in OF_TEXTS]
    weights = given.checkpoint or InitialWeights(about.config, about.weights, about.initial, seed)
    with Model(artifact_of(replace(request, entries=tuple(names))), weights) as model:
        checked = [
            entry
            for entry in model.artifact.plan.entries
            if options["entry"] or any(report.kind == "gradient" for report in entry.reports)
        ]
        if not checked:
            raise UserError(f"{program} has no entry with `gradients` to check")
        wrong = sum(_check(model, entry, inputs, options["directions"], seed) for entry in checked)
    if wrong:
        say(f"{wrong} slopes are not what differences say; --seed {seed} shows them again")
    return 1 if wrong else 0


def _check(model: Model, entry: Any, inputs: dict[str, np.ndarray], directions: int, seed: int) -> int:
    """How many slopes of an entry are wrong."""
    rng, session, wrong, moved = np.random.default_rng(seed), model.session, 0, False
    gradient_reports(entry)
    with session.alone():
        given = drawn_inputs(session, entry, {k: v for k, v in inputs.items() if k in entry.inputs}, rng)
        for slope in slopes(session, entry, given, rng, directions):
            wrong += not slope.right
            moved |= bool(slope.by_gradient or slope.by_difference)
            shape = " ".join(map(str, slope.shape))
            verdict = "right" if slope.right else "WRONG"
            echo(
                f"{verdict}  {slope.form}  {slope.value} [{shape}]  {slope.by_gradient:.9g} by its gradient, "
                f"{slope.by_difference:.9g} by differences: {slope.off:.1e} apart"
            )
    if not moved:
        raise UserError(f"each slope of {entry.name} is 0, which shows nothing: give inputs that its loss depends on")
    return wrong
