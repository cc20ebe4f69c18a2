"""`lispgpt plot`: the curves of one or several runs as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lispgpt.base.errors import UserError, visible
from lispgpt.base.files import replacing
from lispgpt.base.json_files import is_number
from lispgpt.cli.options import PATH
from lispgpt.cli.terminal import say
from lispgpt.runtime.training.run_folder import read_metrics

FORMATS = (".png", ".svg", ".pdf")
SHOWN = {
    "loss": "loss",
    "grad_norm": "norm of the gradient",
    "lr": "learning rate",
    "tokens_per_s": "tokens, or rows of arrays, a second",
}
SMOOTHED = 200
"""Points of a curve at which its mean over the steps around is drawn, where it has more steps than that."""


@click.command("plot")
@click.argument("runs", type=PATH, nargs=-1, required=True)
@click.option("-o", "output", type=PATH, default=Path("runs.png"), show_default=True, help="A .png, .svg or .pdf file.")
def plot(runs: tuple[Path, ...], output: Path) -> None:
    """Draw loss, gradient norm, learning rate and speed of RUNS (folders of `lispgpt train`)."""
    if output.suffix not in FORMATS:
        raise UserError(f"--output {output}: pictures are {', '.join(FORMATS)}")
    gone = next((run for run in runs if not run.exists()), None)
    if gone is not None:
        raise UserError(f"there is no folder {gone}")
    curves = {_name(run, runs): read_metrics(run) for run in runs}
    empty = next((run for run, records in curves.items() if not records), None)
    if empty is not None:
        raise UserError(f"{empty} has no metrics to draw: is it a run's folder?")
    figure = draw(curves)
    with replacing(output) as file:
        figure.savefig(file, format=output.suffix[1:])
    say(f"wrote {output}")


def draw(curves: dict[str, list[dict[str, Any]]]) -> Any:
    """A figure with a field for each of what steps measure, and in the loss's field validation too."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    for field, (name, title) in zip(figure.subplots(2, 2).flat, SHOWN.items(), strict=True):
        for number, (run, records) in enumerate(curves.items()):
            color = f"C{number % 10}"
            steps, values = _points(records, name)
            if name == "tokens_per_s" and not steps:
                steps, values = _points(records, "rows_per_s")
            dense = name in ("loss", "grad_norm", "tokens_per_s") and len(steps) > 2 * SMOOTHED
            field.plot(steps, values, color=color, label=None if dense else run, alpha=0.25 if dense else 1.0)
            if dense:
                field.plot(*_means(steps, values), color=color, label=run)
            if name == "loss":
                steps, values = _points(records, "val_loss")
                field.plot(
                    steps, values, color=color, marker="o", markersize=3, linestyle="--", label=f"{run}, validation"
                )
        field.set_title(title)
        field.set_xlabel("step")
        field.grid(alpha=0.3)
        if field.get_legend_handles_labels()[1]:
            field.legend()
    return figure


def _name(run: Path, runs: tuple[Path, ...]) -> str:
    """A run's own name, or its path where several have that."""
    alone = sum(other.name == run.name for other in runs) == 1
    name = run.name if alone and run.name else str(run)
    return visible(name).replace("$", r"\$")


def _points(records: list[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
    found = [(r["step"], r[name]) for r in records if is_number(r.get(name))]
    return [step for step, _ in found], [value for _, value in found]


def _means(steps: list[int], values: list[float]) -> tuple[list[float], list[float]]:
    """Means over equal stretches of steps."""
    each = -(-len(steps) // SMOOTHED)
    stretches = [slice(start, start + each) for start in range(0, len(steps), each)]
    return tuple([sum(part) / len(part) for part in (all_[s] for s in stretches)] for all_ in (steps, values))  # type: ignore[return-value]
