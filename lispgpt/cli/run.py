"""`lispgpt run`: generate text with a model program or artifact, or run a program with a `main`."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from lispgpt.cache import Cache, cache_key
from lispgpt.child import Reporter, compile_in_child
from lispgpt.cli.options import PATH, compile_options, config_settings, resolve_installed, resolve_target
from lispgpt.errors import UserError
from lispgpt.host import cpu_signature
from lispgpt.runtime import checkpoints, tokenizers
from lispgpt.runtime.artifact import Artifact, load_artifact
from lispgpt.runtime.checkpoints import Checkpoint
from lispgpt.runtime.devices import Device, open_device
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.samplers import make_sampler
from lispgpt.runtime.session import Session
from lispgpt.runtime.tokenizers import StreamDecoder, Tokenizer


@click.command("run", context_settings={"ignore_unknown_options": False, "allow_interspersed_args": True})
@click.argument("program", type=PATH)
@click.argument("arguments", nargs=-1)
@compile_options
@click.option("--tokenizer", "tokenizer_path", type=PATH, help="A tokenizer file (default: beside the checkpoint).")
@click.option("--prompt", help="Text to continue.")
@click.option("--prompt-tokens", metavar="1,2,3", help="Token ids to continue.")
@click.option("--max-new-tokens", type=click.IntRange(0), help="How many tokens to generate at most.")
@click.option("--greedy", is_flag=True, help="Always take the most probable token.")
@click.option("--temperature", type=float, help="Divide logits by this; 0 is greedy.")
@click.option("--top-k", type=int, help="Sample among the k most probable tokens (0: all).")
@click.option("--top-p", type=float, help="Sample among the most probable tokens that sum to this probability.")
@click.option("--seed", type=int, help="Make sampling repeatable.")
@click.option("--threads", type=click.IntRange(1), help="CPU threads (default: all).")
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--stats", is_flag=True, help="Print times and memory bandwidth to standard error.")
@click.option(
    "--profile",
    is_flag=True,
    help="Print each kernel's time in a decode step, and its floor, to standard error.",
)
@click.option("--check", is_flag=True, help="Check that every kernel reads and writes what it says (on a CPU, slow).")
@click.option("--trace", default="", metavar="KERNEL", help="Print a kernel's instructions (on an emulated GPU).")
@click.option("--no-cache", is_flag=True, help="Compile even where the result is cached.")
@click.pass_context
def run(ctx: click.Context, program: Path, **options: Any) -> int:
    """Run PROGRAM: a model (.lisp or .lgpt) generates text; a program with a `main` is run with ARGUMENTS."""
    return _Run(program, options, ctx.obj).execute()


@dataclass
class _Run:
    """One `lispgpt run`.  options: by the names of the command's parameters."""

    program: Path
    options: dict[str, Any]
    process: dict[str, Any]

    def execute(self) -> int:
        started = time.time()
        checkpoint = checkpoints.open(self.options["checkpoint"]) if self.options["checkpoint"] else None
        artifact = self._artifact(checkpoint)
        if isinstance(artifact, int):
            return artifact
        compiled = time.time()
        if self.options["arguments"]:
            raise click.UsageError("only a program with a `main` takes arguments")
        if checkpoint is None:
            raise UserError(
                "this model needs weights: give --checkpoint FILE (or make one: lispgpt checkpoint make --help)"
            )
        if artifact.generate is None:
            raise UserError(f"{self.program} has no `generate` form, so there is nothing to run; add (generate ENTRY)")
        sampler, settings = self._sampler(artifact)
        tokenizer = self._tokenizer()
        prompt = self._prompt(tokenizer)
        device = self._device(artifact)
        with Session(artifact, device, checkpoint) as session:
            click.echo(f"running on {device.name}", err=True)
            generator = Generator(session, artifact.generate["entry"], sampler)
            loaded = time.time()
            limit = self.options["max_new_tokens"]
            limit = int(artifact.generate["options"].get("max-new-tokens", 64)) if limit is None else limit
            report = self._generate(generator, prompt, limit, tokenizer)
            if self.options["profile"]:
                self._profile(generator)
        timing = {
            "compile_s": compiled - started,
            "load_s": loaded - compiled,
            "prefill_s": report["first"] - loaded,
            "decode_ms_per_token": report["decode_ms"],
            "first_token_s": report["first"] - self.process["started"],
        }
        if self.options["stats"]:
            _print_stats(artifact, timing, len(prompt), settings)
        if self.options["format_"] == "json":
            result = {"prompt_tokens": prompt, "tokens": report["tokens"], "text": report["text"]}
            click.echo(
                json.dumps(
                    {**result, "target": artifact.target.partition(":")[0], "device": device.name, "timing": timing}
                )
            )
        return 0

    def _device(self, artifact: Artifact) -> Device:
        """The device for an artifact's target, or the emulated one that is asked for."""
        target = self.options["target"] if self.options["target"].startswith("emulated:") else artifact.target
        if target != artifact.target and resolve_target(target) != artifact.target:
            raise UserError(f"{self.program} was compiled for {artifact.target}, which is not what {target} runs")
        return open_device(target, self.options["threads"], self.options["check"], self.options["trace"])

    def _artifact(self, checkpoint: Checkpoint | None) -> Artifact | int:
        """The artifact to run, from the file itself, the cache or the compiler; an exit code if it was a program."""
        if not self.program.exists():
            raise UserError(f"there is no file {self.program}")
        if self.program.suffix == ".lgpt" or self.program.is_dir():
            return self._matching(load_artifact(self.program), checkpoint)
        from lispgpt.cli.main import cache_folder

        target = resolve_installed(self.options["target"])
        pipeline = self.options["pipeline"]
        header = dict(checkpoint.config) if checkpoint else {}
        settings = config_settings(self.options["settings"], self.options["context"], header, target)
        depends = {"set": settings, "checkpoint": header, "pipeline": str(pipeline), "batch": self.options["batch"]}
        cache = Cache(cache_folder(self.process["environment"]))
        key = cache_key(self.program, target, cpu_signature(), depends)
        watched = self.options["dump_dir"] or self.options["print_after"] or self.options["no_cache"]
        found = None if watched else cache.find(key)
        return found or self._compile(target, settings, header, cache, key)

    def _compile(
        self, target: str, settings: dict[str, Any], header: dict[str, Any], cache: Cache, key: str
    ) -> Artifact | int:
        """Compile in a child process, whose memory goes with it; it gives the artifact back."""

        def work(reporter: Reporter) -> int:
            from lispgpt.driver import Observer, Request, compile_program, evaluate_request
            from lispgpt.ir.mlir import new_context

            request = Request(self.program, target, settings, header, self.options["pipeline"], self.options["batch"])
            observer = Observer(
                self.options["dump_dir"], self.options["print_after"], lambda text: click.echo(text, err=True)
            )
            with new_context():
                program = evaluate_request(request)
                if program.has_main and not program.entries:
                    from lispgpt.driver import job_of
                    from lispgpt.programs.launch import run

                    return run(job_of(program, request, observer), self.options["arguments"])
                artifact = compile_program(program, request, observer)
            cache.keep(
                key, artifact, [self.program, *program.sources, *([request.pipeline] if request.pipeline else [])]
            )
            reporter.give(artifact)
            return 0

        outcome = compile_in_child(work)
        return outcome.code if outcome.value is None else outcome.value

    def _profile(self, generator: Generator) -> None:
        """Print how long each kernel of a decode step takes, where it stands after generating."""
        from lispgpt.runtime.profile import measured_rates, profile_entry, table

        session, position = generator.session, min(generator.position, generator.context - 1)
        draws, rates = generator.device_draws(), measured_rates(session)
        entry, inputs = generator.step(position)
        profile = profile_entry(session, entry, [[position]], inputs)
        chosen = f"drawn by the {'device' if draws else 'host'}" if generator.sampler else "the most probable"
        known = f"floors at {rates}" if rates else "floors are known for GPUs alone"
        heading = f"a decode step at position {position}, its token {chosen}, kernel by kernel; {known}"
        click.echo(f"{heading}\n{table(profile, rates)}", err=True)

    def _matching(self, artifact: Artifact, checkpoint: Checkpoint | None) -> Artifact:
        """Check that an artifact was compiled for this machine and for this checkpoint's sizes."""
        if artifact.host and artifact.host != cpu_signature():
            raise UserError(
                f"{self.program} was compiled for another CPU than this one: compile it here, or for a level that both "
                "have (--target cpu:x86-64-v3)"
            )
        if self.options["context"] not in (None, artifact.config.get("context")):
            raise click.UsageError(f"--context is for programs: {self.program} has its own")
        given = dict(checkpoint.config) if checkpoint else {}
        for name, value in given.items():
            own = artifact.config.get(name, value)
            if own != value and name not in ("weight-type", "context"):
                raise UserError(f"the artifact was compiled for {name} {own}, the checkpoint has {value}")
        return artifact

    def _sampler(self, artifact: Artifact) -> tuple[Any, str]:
        """The sampler (None: greedy on the device) from the options, else from the program's generate form."""
        assert artifact.generate is not None
        given = {k: self.options[k] for k in ("temperature", "top_k", "top_p") if self.options[k] is not None}
        if self.options["greedy"] and given:
            raise click.UsageError(f"--greedy contradicts --{next(iter(given)).replace('_', '-')}")
        defaults = artifact.generate["options"]
        values = {k: given.get(k, defaults.get(k.replace("_", "-"))) for k in ("temperature", "top_k", "top_p")}
        greedy = self.options["greedy"] or bool(defaults.get("greedy") and not given) or values["temperature"] == 0
        if greedy:
            return None, "greedy"
        settings = ", ".join(f"{k} {v}" for k, v in values.items() if v is not None)
        seed = defaults.get("seed") if self.options["seed"] is None else self.options["seed"]
        return make_sampler(**values, seed=seed), settings

    def _tokenizer(self) -> Tokenizer | None:
        return tokenizers.find(self.options["checkpoint"], self.options["tokenizer_path"])

    def _prompt(self, tokenizer: Tokenizer | None) -> list[int]:
        text, tokens = self.options["prompt"], self.options["prompt_tokens"]
        if text is not None and tokens is not None:
            raise click.UsageError("give --prompt or --prompt-tokens, not both")
        if tokens is not None:
            try:
                return [int(t) for t in tokens.split(",") if t.strip()]
            except ValueError:
                raise click.UsageError(f"--prompt-tokens wants numbers such as 1,2,3, not {tokens!r}") from None
        if text:
            if tokenizer is None:
                raise UserError(
                    "no tokenizer was found beside the checkpoint: give --tokenizer FILE or --prompt-tokens"
                )
            return tokenizer.prompt(text)
        prompt = tokenizer.prompt("") if tokenizer else []
        if not prompt:
            raise UserError("without a tokenizer that has an end-of-text token, give --prompt-tokens")
        return prompt

    def _generate(
        self, generator: Generator, prompt: list[int], limit: int, tokenizer: Tokenizer | None
    ) -> dict[str, Any]:
        """Print text as it comes; tokens, text, the time of the first token and the pace of the rest."""
        tokens: list[int] = []
        times: list[float] = []
        decoder = StreamDecoder(tokenizer) if tokenizer else None
        pieces: list[str] = []
        if self.options["format_"] == "text" and self.options["prompt"]:
            self._show(self.options["prompt"])
        for token in generator.generate(prompt, limit, tokenizer.ends if tokenizer else ()):
            times.append(time.time())
            tokens.append(token)
            pieces.append(decoder.push(token) if decoder else f"{token} ")
            self._show(pieces[-1])
        pieces.append(decoder.finish() if decoder else "")
        self._show(pieces[-1] + "\n")
        pace = (times[-1] - times[0]) / (len(times) - 1) * 1e3 if len(times) > 1 else None
        text = "".join(pieces) if decoder else ""
        return {"tokens": tokens, "text": text, "first": times[0] if times else time.time(), "decode_ms": pace}

    def _show(self, text: str) -> None:
        if self.options["format_"] == "text":
            sys.stdout.write(text)
            sys.stdout.flush()


def _print_stats(artifact: Artifact, timing: dict[str, Any], prompt: int, sampling: str) -> None:
    weights = sum(buffer.nbytes for buffer in artifact.plan.buffers if buffer.kind == "weight")
    states = sum(buffer.nbytes for buffer in artifact.plan.buffers if buffer.kind == "state")
    pace = timing["decode_ms_per_token"]
    decode = f"{pace:.2f} ms/token, {weights / pace / 1e6:.1f} GB/s of weights" if pace else "no token after the first"
    click.echo(
        f"compile {timing['compile_s']:.2f} s, load {timing['load_s']:.2f} s, prefill of {prompt} tokens "
        f"{timing['prefill_s'] * 1e3:.0f} ms, first token {timing['first_token_s']:.2f} s after the start; "
        f"decode ({sampling}): {decode}; "
        f"states of {states / 1e6:,.1f} MB for {artifact.config.get('context')} positions",
        err=True,
    )
