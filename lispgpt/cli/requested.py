"""What a command's options ask to compile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lispgpt.cli.options import config_settings, parse_shapes, parse_up_to
from lispgpt.compiler.folders import Given
from lispgpt.compiler.present import compiled_target
from lispgpt.compiler.request import Request


def requested(given: Given, options: Mapping[str, Any]) -> Request:
    """What the values of `program_options` ask for of a program that was found; UserError or UsageError for what they
    cannot mean."""
    target, sizes = compiled_target(options["target"]), parse_shapes(options["shapes"])
    settings = config_settings(options["settings"], options["context"])
    batch, pipeline = options["batch"] or 1, options["pipeline"]
    request = Request(given.program, target, settings, given.config, pipeline, batch, sizes)
    request = replace(request, up_to=parse_up_to(options["up_to"]))
    return replace(request, schedules=options["schedules"], precision=options["precision"], quick=options["quick"])
