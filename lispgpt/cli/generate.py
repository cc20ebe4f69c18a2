"""Printing what a model generates, and what was asked for of how it went."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import click

from lispgpt.base.dtypes import CACHE_TYPE
from lispgpt.base.errors import UserError
from lispgpt.cli import terminal
from lispgpt.cli.prompts import Prompt, Prompts
from lispgpt.cli.terminal import echo, say
from lispgpt.execution.model import Model
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.options import Choices, Options
from lispgpt.runtime.text import Text, tokenizer_doubt

NAMES = (
    *("max_new_tokens", "greedy", "temperature", "top_k", "top_p", "min_p", "repeat_penalty", "presence_penalty"),
    *("frequency_penalty", "seed", "logprobs", "lookup", "stop"),
)
"""Options whose values go to the model as they are."""

OF_TEXTS = (
    *(*NAMES, "logit_bias", "samples", "stats", "profile"),
    *("prompts", "prompt_file", "prompts_file", "prompt_tokens"),
)
"""Options that say something of texts that are generated."""


def sampling_options(logprobs: bool = True) -> list[Any]:
    """The options that say how text is generated.  logprobs: whether its log-probabilities can be asked for."""
    options = [
        click.option("--max-new-tokens", type=click.IntRange(0), help="How many tokens to generate at most."),
        click.option("--greedy", is_flag=True, help="Always take the most probable token."),
        click.option("--temperature", type=float, help="Divide logits by this; 0 is greedy."),
        click.option("--top-k", type=int, help="Sample among the k most probable tokens (0: all)."),
        click.option("--top-p", type=float, help="Sample among the most probable tokens that sum to this probability."),
        click.option("--min-p", type=float, help="Sample among tokens at least so probable beside the best one."),
        click.option(
            "--repeat-penalty", "--rep-penalty", type=float, help="Divide logits of tokens in the text by this."
        ),
        click.option("--presence-penalty", type=float, help="Take this from logits of tokens that were generated."),
        click.option("--frequency-penalty", type=float, help="Take this as often as the token was generated."),
        click.option(
            "--logit-bias", multiple=True, metavar="ID=BIAS,…", help="Add to a token's logit; -inf forbids it."
        ),
        click.option("--seed", type=int, help="Make sampling repeatable; text number n draws by seed + n."),
        click.option("--stop", multiple=True, metavar="TEXT", help="End a text before this.  Repeatable."),
        click.option("--lookup", type=click.IntRange(0), help="Draft so many tokens from the text so far (--greedy)."),
    ]
    told = click.option("--logprobs", is_flag=True, help="Tell each token's log-probability in the model's own logits.")
    return [*options, told] if logprobs else options


def choices(options: Mapping[str, Any]) -> Choices:
    """How the command line wants text generated; UsageError, before anything is compiled, for what no text can be."""
    drawing = next((n for n in ("temperature", "top_k", "top_p", "min_p") if options[n] is not None), None)
    if options["greedy"] and drawing:
        raise click.UsageError(f"--greedy contradicts --{drawing.replace('_', '-')}")
    given = {name: options[name] for name in NAMES if options[name] not in (None, ()) and options[name] is not False}
    biases = _biases(options["logit_bias"])
    given |= {"logit_bias": biases} if biases else {}
    try:
        Options.of({name: value for name, value in given.items() if name != "lookup"}, {})
    except UserError as error:
        raise click.UsageError(error.message) from None
    return cast(Choices, given)


def _biases(given: Sequence[str]) -> dict[int, float]:
    found: dict[int, float] = {}
    for item in ",".join(given).split(",") if given else ():
        name, _, value = item.partition("=")
        try:
            found[int(name)] = float(value)
        except ValueError:
            raise click.UsageError(f"--logit-bias wants ID=BIAS, such as 50256=-inf, not {item!r}") from None
    return found


@dataclass
class Timing:
    """When the first token came, and the pace of the others of its text; None where there are none."""

    first: float | None = None
    last: float = 0.0
    tokens: int = 0

    def saw(self, tokens: int) -> None:
        now = time.monotonic()
        self.first, self.last, self.tokens = self.first or now, now, self.tokens + tokens

    @property
    def pace(self) -> float | None:
        """Milliseconds a token."""
        return None if self.tokens < 2 or self.first is None else (self.last - self.first) / (self.tokens - 1) * 1e3


def generate(
    model: Model, prompts: Prompts, said: Choices, options: Mapping[str, Any], times: dict[str, float]
) -> None:
    """Print texts as they come, one after another, and what was asked for of how it went.

    options: the command's, and beside: whether the tokenizer does not lie in one folder with the weights."""
    chosen = model.options(**said)
    given = prompts.read()
    texts = [model.text(model.prompt(prompt.given), chosen, number) for number, prompt in enumerate(given)]
    device = model.session.device
    say(f"running on {device.name}")
    if options["beside"] and (doubt := tokenizer_doubt(model.tokenizer, model.session.config.get("vocab"))):
        say(doubt)
    _say_what_is_cut(texts)
    loaded, timing = time.monotonic(), Timing()
    _print_texts(model, texts, given, prompts.batch, timing, options)
    _say_what_was_left_behind(texts)
    if options["profile"]:
        _profile(texts[-1].generator)
    first = timing.first or time.monotonic()
    told = {
        "compile_s": times["compiled"] - times["run"],
        "load_s": loaded - times["compiled"],
        "prefill_s": first - loaded,
        "decode_ms_per_token": timing.pace,
        "first_token_s": first - times["process"],
    }
    if options["stats"]:
        _print_stats(model, told, len(texts[0].prompt), str(chosen))
        _say_what_was_drafted(texts)
    if options["format_"] == "json":
        described = [_described(text, options["logprobs"]) for text in texts]
        result: dict[str, Any] = described[0] if len(described) == 1 else {"texts": described}
        result |= {"target": model.artifact.target.partition(":")[0], "device": device.name, "timing": told}
        echo(json.dumps(result))


def _say_what_is_cut(texts: Sequence[Text]) -> None:
    lengths = [len(text.prompt) for text in texts if len(text.prompt) > text.generator.context]
    if lengths:
        generator = texts[0].generator
        who = f"a prompt of {max(lengths):,} tokens is" if len(lengths) == 1 else f"{len(lengths)} prompts are"
        say(
            f"{who} longer than the context of {generator.context:,}: the last {generator.kept:,} tokens are read",
        )


def _say_what_was_left_behind(texts: Sequence[Text]) -> None:
    """Of texts that grew beyond the context."""
    context = texts[0].generator.context
    grown = sum(len(text.prompt) <= context < len(text.prompt) + len(text.tokens) for text in texts)
    if grown:
        who = "the text grew" if len(texts) == 1 else f"{grown} of {len(texts)} texts grew"
        how = f"wherever that was full, it went on from its last {texts[0].generator.kept:,} tokens alone"
        say(f"{who} beyond the context of {context:,}: {how}")


def _say_what_was_drafted(texts: Sequence[Text]) -> None:
    drafts = [text.generator.drafts for text in texts if text.generator.drafts is not None]
    if drafts:
        right, checked = sum(each.accepted for each in drafts), sum(each.checked for each in drafts)
        say(f"drafts: {right:,} of {checked:,} tokens were right")


def _described(text: Text, logprobs: bool) -> dict[str, Any]:
    found = {"prompt_tokens": text.prompt, "tokens": text.tokens, "text": text.text, "ended": text.ended}
    return found | ({"logprobs": text.logprobs} if logprobs else {})


def _print_texts(
    model: Model,
    texts: Sequence[Text],
    prompts: Sequence[Prompt],
    batch: int,
    timing: Timing,
    options: Mapping[str, Any],
) -> None:
    """Print pieces of the first text that is not whole as they come, and hold back those of the others."""
    shown = options["format_"] == "text"
    held = {id(text): [prompt.shown] for text, prompt in zip(texts, prompts, strict=True)}
    seen, current = dict.fromkeys(held, 0), 0

    def show_whole() -> None:
        nonlocal current
        while current < len(texts):
            pieces = held[id(texts[current])]
            if shown:
                sys.stdout.write(terminal.shown("".join(pieces)))
                sys.stdout.flush()
            pieces.clear()
            if not texts[current].ended:
                return
            if shown:
                sys.stdout.write("\n")
                sys.stdout.flush()  # before what is said of it, where both go to the same file
            if options["logprobs"] and shown:
                _print_logprobs(model, texts[current])
            current += 1

    show_whole()
    try:
        for text, piece in model.together(texts, batch):
            timing.saw(len(text.tokens) - seen[id(text)])
            seen[id(text)] = len(text.tokens)
            held[id(text)].append(piece)
            show_whole()
    except UserError:
        if shown and current < len(texts):
            sys.stdout.write("\n")  # what is wrong stands on a line of its own
            sys.stdout.flush()
        raise


def _print_logprobs(model: Model, text: Text) -> None:
    """A line for each token, to standard error."""
    for token, value in zip(text.tokens, text.logprobs, strict=True):
        said = f"  {model.tokenizer.decode([token])!r}" if model.tokenizer else ""
        say(f"{value:10.4f}  {token:6}{said}")


def _profile(generator: Generator) -> None:
    """Print how long each kernel of a decode step takes, where it stands after generating."""
    from lispgpt.runtime.profile import measured_rates, profile_entry, table

    session, position = generator.session, min(generator.position, generator.context - 1)
    draws, rates = generator.device_draws(), measured_rates(session)
    entry, inputs = generator.step(position)
    profile = profile_entry(session, entry, [[position]], inputs)
    chosen = f"drawn by the {'device' if draws else 'host'}" if generator.sampler else "the most probable"
    known = f"floors at {rates}" if rates else "floors are known for GPUs alone"
    heading = f"a decode step at position {position}, its token {chosen}, kernel by kernel; {known}"
    say(f"{heading}\n{table(profile, rates)}")


def _print_stats(model: Model, timing: dict[str, Any], prompt: int, sampling: str) -> None:
    artifact = model.artifact
    held = (buffer.as_declared for buffer in artifact.plan.buffers if buffer.kind == "weight")
    weights = sum({buffer.name: buffer.nbytes for buffer in held}.values())
    states, taken = model.session.state_bytes()
    kind = artifact.config.get(CACHE_TYPE)
    kept = f", keys and values in {kind}" if kind else ""
    part = "" if taken == states else f", {taken / 1e6:,.1f} MB of them taken"
    whole = model.session.device.whole
    said = f" (taken at once: {whole})" if whole else ""
    pace = timing["decode_ms_per_token"]
    decode = f"{pace:.2f} ms/token, {weights / pace / 1e6:.1f} GB/s of weights" if pace else "no token after the first"
    say(
        f"compile {timing['compile_s']:.2f} s, load {timing['load_s']:.2f} s, prefill of {prompt} tokens "
        f"{timing['prefill_s'] * 1e3:.0f} ms, first token {timing['first_token_s']:.2f} s after the start; "
        f"decode ({sampling}): {decode}; "
        f"products {artifact.precision}; "
        f"states of {states / 1e6:,.1f} MB for {artifact.config.get('context')} positions{kept}{part}{said}",
    )
