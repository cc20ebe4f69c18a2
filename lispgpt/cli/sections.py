"""Help of commands with many options, in sections by what they are about."""

from __future__ import annotations

import click

SECTIONS = {
    "Prompts": ("prompts", "prompt_file", "prompts_file", "prompt_tokens", "samples", "stop"),
    "Choosing tokens": (
        *("max_new_tokens", "greedy", "temperature", "top_k", "top_p", "min_p", "repeat_penalty", "presence_penalty"),
        *("frequency_penalty", "logit_bias", "seed", "lookup", "draft"),
    ),
    "The model": ("checkpoint", "adapter", "tokenizer_path", "settings", "context", "batch", "trust"),
    "The machine": ("target", "threads", "precision", "devices", "engine", "patience"),
    "What is printed": ("format_", "stats", "profile", "timeline", "logprobs"),
    "One entry": ("entry", "inputs", "output", "check", "first_nan", "shapes", "up_to"),
    "Compiling": (
        "quick",
        "pipeline",
        "schedules",
        "dump_dir",
        "kernels",
        "changes",
        "locations",
        "print_after",
        "timed",
        "no_cache",
        "trace",
    ),
}
"""Titles, and the options in each by the names of their parameters; the others come last."""


class Sectioned(click.Command):
    """A command whose options are listed in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections that this command has options of."""
        records = {p.name or "": record for p in self.get_params(ctx) if (record := p.get_help_record(ctx)) is not None}
        for title, names in SECTIONS.items():
            if rows := [records.pop(name) for name in names if name in records]:
                with formatter.section(title):
                    formatter.write_dl(rows)
        with formatter.section("Others"):
            formatter.write_dl(list(records.values()))
