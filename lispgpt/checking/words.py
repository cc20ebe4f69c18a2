"""What a check has found, in words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lispgpt.checking.check import Found, Parted
from lispgpt.checking.walk import Wrong

PACKAGE = Path(__file__).resolve().parents[1]
MOST_FORMS, MOST_OTHERS = 6, 8


def told(found: Found, prompt: int, target: str, program: Path, again: str) -> str:
    """Lines that say whether a device is right, and if not, what is wrong first.

    prompt: how many tokens of the text were given.  again: the command that repeats the check, without the kernel.
    """
    lines = []
    count = f"a prompt of {prompt} tokens and {len(found.tokens) - prompt} steps"
    if found.as_one is not None:
        lines.append(f"{target} is wrong {_where(found.as_one, prompt)}, where a step is one launch")
        if found.parted is None:
            lines.append(
                f"as launches one by one it is right: it is the one launch that is wrong, {_launch(found.as_one)}"
            )
    if found.parted is not None:
        lines.append(f"{target} is wrong {_where(found.parted, prompt)}")
    if found.drawn is not None:
        place, token, wanted = found.drawn
        lines.append(
            f"{target} is wrong where it goes on from token to token by itself, though each step alone is right: "
            f"token {place - prompt} is {token}, and the CPU's is {wanted}"
        )
    lines += _kernels(found, program, again)
    if found.device_right and (found.cpu_right or not found.alike):
        kernels = f"; so is each of {found.compared} launches of {found.kernels} kernels" if found.compared else ""
        lines.append(f"{target} is right: {count}, logits {_beside(found)}{kernels}")
    return "\n".join([*lines, *_beside_float64(found, target)])


def _beside(found: Found) -> str:
    """What right logits are held to."""
    if not (found.alike or found.unsure):
        return "as in float64"
    off = f"as the CPU's, at most {found.worst:.1e} of the largest off"
    return f"{off}, as far as rounded keys and values go" if found.unsure else off


def _beside_float64(found: Found, target: str) -> list[str]:
    """Who is how far off what the model says in float64, or why that is not known."""
    if found.cpu is None or found.exact is None:
        return [f"neither was compared with float64: {found.unknown}"] if found.unknown else []
    lines = [f"beside float64 {target} is {found.exact:.1e} of the largest off, and the CPU {found.cpu.worst:.1e}"]
    if found.cpu.wrong:
        both = f", and {target} as it is" if found.alike and found.device_right else ""
        lines.append(f"the CPU is wrong{both}: logits: {found.cpu}")
    return lines


def _kernels(found: Found, program: Path, again: str) -> list[str]:
    """About the kernels that are wrong, or about that none is."""
    if found.wrong:
        others = {wrong.launch.kernel: wrong for wrong in reversed(found.wrong)}
        first = found.wrong[0]
        del others[first.launch.kernel]
        lines = about(first, program)
        if others:
            few = ", ".join(list(others)[::-1][:MOST_OTHERS])
            lines.append(f"also wrong, of what they were given: {few}{', …' if len(others) > MOST_OTHERS else ''}")
        return [*lines, f"again: {again} --kernel {first.launch.kernel}"]
    if found.parted is None:
        return [] if found.as_one is None else [f"again: {again}"]
    compared = f"{found.compared} launches of {found.kernels} kernels"
    if found.together:
        why = "each is right, one after another: all are wrong only where one starts before the one ahead has ended"
    else:
        why = "each computes what it is made of: it is the target's passes that made wrong kernels of the program"
    return [f"{compared} were compared: {why}", f"again: {again}"]


def about(wrong: Wrong, program: Path) -> list[str]:
    """A launch that is wrong: the kernel, how far off it is, and the forms that it was made of."""
    launch, entry = wrong.launch, wrong.entry
    lines = [f"the first kernel that is wrong: {launch.label}, step {wrong.step} of {entry.label}"]
    if wrong.difference is None:
        lines.append(f"  it does not run to its end: {wrong.said}")
    else:
        lines.append(f"  argument {wrong.argument}, in {wrong.buffer!r}: {wrong.difference}")
    lines += [f"  {place}" for place in _shown(launch.forms, program)]
    return lines


def _shown(forms: Sequence[str], program: Path) -> list[str]:
    """Forms with the lines that they begin on."""
    lines = []
    for form in forms[:MOST_FORMS]:
        name, line, _ = form.rsplit(":", 2)
        lines.append(f"{form}: {_line(name, int(line), program)}".rstrip(": "))
    return [*lines, f"… of {len(forms)} forms"] if len(forms) > MOST_FORMS else lines


def _line(name: str, number: int, program: Path) -> str:
    """The text of a line, where the file is the program, beside it, or the package's; else ""."""
    for folder in (program.parent, PACKAGE / "examples", PACKAGE):
        path = folder / name
        if path.is_file():
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            return lines[number - 1].strip() if number <= len(lines) else ""
    return ""


def _where(parted: Parted, prompt: int) -> str:
    entry, last = parted.part.entry, parted.part.last
    step = f"after the prompt, by {entry.label}" if last < prompt else f"in step {last - prompt}, by {entry.label}"
    return f"{step}: {parted.said or f'logits: {parted.difference}'}"


def _launch(parted: Parted) -> str:
    return ", ".join(dict.fromkeys(launch.kernel for launch in parted.part.entry.launches))
