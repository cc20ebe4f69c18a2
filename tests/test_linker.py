"""The linker for machines without LLD: AMD's code objects are LLD's to the byte, CPUs' do what LLD's and ld's do."""

from __future__ import annotations

import ctypes
import importlib.util
import io
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import compile_text
from elftools.elf.elffile import ELFFile

import lispgpt
from lispgpt.base.linking.linker import link, main
from lispgpt.base.linking.relocatable import Unlinkable
from lispgpt.compiler import kernel_code
from lispgpt.passes.targets import binary, rocm
from lispgpt.runtime.devices.amd_emulator import stand_in

MODEL = """(require nn)
(entry out [(x [3 24] f32) (w [16 24] f32) (g [24] f32)]
  (softmax (gelu (matmul-transposed (rms-norm (sin x) g 1e-5) w))))
"""
C = """
extern void *memcpy(void *, const void *, unsigned long); extern double exp(double); extern float cosf(float);
extern long other(long); extern long missing(long) __attribute__((weak));
static long zeros[1000]; long counter = 41; static const char *names[] = {"one", "two", "three"};
static long twice(long x) { return 2 * x; } static long square(long x) { return x * x; }
long (*const functions[])(long) = {twice, square, other}; void *(*copy)(void *, const void *, unsigned long) = memcpy;
long choose(long n, long x) {
  switch (n) { case 0: return x + 5; case 1: return x * 7; case 2: return x - 9; case 3: return x << 2;
               case 4: return -x; case 5: return x ^ 77; case 6: return functions[x % 3](x); default: return 0; } }
long run(long x) { long y = 0; copy(&y, &x, 8); zeros[x % 1000] += counter++;
                   return y + zeros[x % 1000] + names[x % 3][0]; }
double maths(double x) { return exp(x) + cosf((float)x); }
long weak(void) { return missing ? 1 : 2; }
"""
OTHER = "long other(long x) { return x + 1000; } long counted(void) { static long n = 3; return ++n; }"


def lld(*arguments: Any) -> list[str]:
    package = importlib.util.find_spec("ziglang")
    assert package is not None and package.origin is not None
    return [str(Path(package.origin).with_name("zig")), "ld.lld", *map(str, arguments)]


def linked_by(command: list[str], pieces: list[bytes], folder: Path) -> bytes:
    paths = [folder / f"{number}.o" for number in range(len(pieces))]
    for path, piece in zip(paths, pieces, strict=True):
        path.write_bytes(piece)
    subprocess.run([*command, "-shared", "-o", str(folder / "whole"), *map(str, paths)], check=True)
    return (folder / "whole").read_bytes()


def compiled_c(text: str, folder: Path, model: str) -> bytes:
    (folder / "x.c").write_text(text)
    options = ["-c", "-O2", "-fPIC", "-fno-builtin", "-fno-sanitize=all", f"-mcmodel={model}", "-x", "c"]
    command = [sys.executable, "-m", "ziglang", "cc", *options, str(folder / "x.c"), "-o", str(folder / "x.o")]
    subprocess.run(command, check=True)
    return (folder / "x.o").read_bytes()


@pytest.fixture(scope="module")
def amd_objects(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """What LLVM makes of kernels, before it is linked."""
    found: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binary, "linker_command", lambda: 'cp "$2" "$4"')
        patch.setattr(kernel_code, "MOST_PROCESSES", 1)
        serialize = rocm.Rocm.serialize
        patch.setattr(rocm.Rocm, "serialize", lambda self, module: found.append(serialize(self, module)) or found[-1])
        for chip in ("gfx1151", "gfx942"):
            compile_text(MODEL, tmp_path_factory.mktemp("amd"), target=f"rocm:{chip}")
    return found


def test_amds_code_objects_are_llds_to_the_byte(amd_objects: list[bytes], tmp_path: Path) -> None:
    assert len(amd_objects) >= 2
    for each in amd_objects:
        theirs = linked_by(lld(), [each], tmp_path)
        comment = ELFFile(io.BytesIO(theirs)).get_section_by_name(".comment").data()
        own = link([each], comment)
        assert without_strings(own) == without_strings(theirs) and named_in(own) == named_in(theirs)


STRINGS = (".debug_info", ".debug_str")
"""The strings of debug information, which LLD has in the order of their hashes, and what says where they are."""


def without_strings(code: bytes) -> bytes:
    found, elf = bytearray(code), ELFFile(io.BytesIO(code))
    for section in map(elf.get_section_by_name, STRINGS):
        found[section["sh_offset"] : section["sh_offset"] + section["sh_size"]] = bytes(section["sh_size"])
    return bytes(found)


def named_in(code: bytes) -> list[list[object]]:
    """What each unit of debug information says of itself."""
    dies = [unit.get_top_DIE() for unit in ELFFile(io.BytesIO(code)).get_dwarf_info().iter_CUs()]
    return [[attribute.value for attribute in die.attributes.values()] for die in dies]


@pytest.mark.parametrize("linker", ["own", "lld", "ld"])
@pytest.mark.parametrize("model", ["large", "small"])
def test_code_for_cpus_is_loaded_runs_and_goes(model: str, linker: str, tmp_path: Path) -> None:
    """Tables of addresses, of jumps and of functions, calls to other objects, to libraries and of nothing."""
    pieces = [compiled_c(C, tmp_path, model), compiled_c(OTHER, tmp_path, model)]
    if linker == "own" and model == "small":  # whose calls to libraries want a table that kernels do not need
        with pytest.raises(Unlinkable, match="'exp' is not defined"):
            link(pieces)
        return
    if linker == "ld" and shutil.which("ld") is None:
        pytest.skip("no ld here")
    made = link(pieces) if linker == "own" else linked_by(lld() if linker == "lld" else ["ld"], pieces, tmp_path)
    (tmp_path / "whole.so").write_bytes(made)
    library = ctypes.CDLL(str(tmp_path / "whole.so"))
    for name in ("choose", "run", "weak", "counted"):
        getattr(library, name).restype = ctypes.c_long
    library.maths.restype, library.maths.argtypes = ctypes.c_double, [ctypes.c_double]
    assert [library.choose(n, 30) for n in range(8)] == [35, 210, 21, 120, -30, 30 ^ 77, 60, 0]
    assert [library.choose(6, x) for x in (30, 31, 32)] == [60, 961, 1032]
    assert [library.run(x) for x in (4, 4, 2)] == [4 + 41 + ord("t"), 4 + 83 + ord("t"), 2 + 43 + ord("t")]
    assert library.weak() == 2 and [library.counted() for _ in range(2)] == [4, 5]
    assert library.maths(0.5) == pytest.approx(np.exp(0.5) + np.cos(0.5))
    with open("/proc/self/maps") as maps:
        assert "whole.so" in maps.read()
    closing = ctypes.CDLL(None).dlclose
    closing.argtypes = [ctypes.c_void_p]
    assert closing(library._handle) == 0
    with open("/proc/self/maps") as maps:
        assert "whole.so" not in maps.read()
    elf = ELFFile(io.BytesIO(made))
    writable = [s for s in elf.iter_segments() if s["p_flags"] & 3 == 3]
    assert not writable, "nothing is both written and executed"


def computed(folder: Path) -> np.ndarray:
    """The model on seeded numbers, compiled anew."""
    (folder / "model.lisp").write_text(MODEL)
    rng = np.random.default_rng(7)
    inputs = {"x": rng.standard_normal((3, 24)), "w": rng.standard_normal((16, 24)), "g": rng.standard_normal(24)}
    with lispgpt.load(folder / "model.lisp", target="cpu") as model:
        found: np.ndarray = model.run("out", **{name: a.astype(np.float32) for name, a in inputs.items()})["out"]
    return found


def fake(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_programs_run_alike_whichever_linker_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None, an LLD, one that knows no such machine, and one that does nothing at all."""
    found = []
    for number, script in enumerate(("", f'exec {" ".join(lld())} "$@"', "echo unknown >&2; exit 1", "exit 0")):
        folder = tmp_path / str(number)
        folder.mkdir()
        if script:
            fake(folder, "ld.lld", script)
        monkeypatch.setenv("PATH", str(folder))
        found.append(computed(folder))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
    if ld := shutil.which("ld", path="/usr/bin:/bin"):
        monkeypatch.setenv("PATH", str(Path(ld).parent))
        np.testing.assert_array_equal(found[0], computed(tmp_path))


def test_an_lld_that_does_not_know_amds_objects_is_passed_over(
    amd_objects: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path, "ld.lld", "echo unknown machine >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    program = binary.linker_toolkit() / "llvm" / "bin" / "ld.lld"
    made = linked_by([str(program)], amd_objects[:1], tmp_path)
    assert made == link(amd_objects[:1])


def test_objects_that_it_does_not_know_are_refused(amd_objects: list[bytes], tmp_path: Path) -> None:
    large = compiled_c(OTHER, tmp_path, "large")
    variable = compiled_c("__thread int x = 3; int get(void) { return x; }", tmp_path, "large")
    for pieces, why in (
        ([large, large], "'other' is defined twice"),
        ([large, amd_objects[0]], "of machine 62 and others"),
        ([b"text"], "no relocatable object"),
        ([link([large])], "no relocatable object"),
        ([variable], "thread-local"),
    ):
        with pytest.raises(Unlinkable, match=why):
            link(pieces)
    with pytest.raises(Unlinkable, match="relocations of type 77"):
        link([unknown_relocation(large)])


def unknown_relocation(data: bytes) -> bytes:
    """The object with another type of its first relocation."""
    changed = bytearray(data)
    table = next(s for s in ELFFile(io.BytesIO(data)).iter_sections() if s["sh_type"] == "SHT_RELA")
    struct.pack_into("<I", changed, table["sh_offset"] + 8, 77)
    return bytes(changed)


def test_what_ends_early_is_refused(tmp_path: Path) -> None:
    """LLVM's objects end with the table of their sections."""
    rng, sound = seeded.rng(), compiled_c(OTHER, tmp_path, "large")
    for end in rng.integers(len(sound) - 64, size=50):
        with pytest.raises(Unlinkable, match=r"damaged|no relocatable object"):
            link([sound[:end]])


def test_as_a_command_it_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.o").write_bytes(b"nothing")
    assert main(["-shared", str(tmp_path / "x.o"), "-o", str(tmp_path / "x.so")]) == 1
    assert "no relocatable object" in capsys.readouterr().err and not (tmp_path / "x.so").exists()
    assert main(["-shared", str(tmp_path / "none.o"), "-o", str(tmp_path / "x.so")]) == 1


def test_the_library_that_stands_in_for_hip_is_loaded(tmp_path: Path) -> None:
    path = stand_in.build(tmp_path)
    elf = ELFFile(path.open("rb"))
    names = {symbol.name for symbol in elf.get_section_by_name(".dynsym").iter_symbols()}
    assert set(stand_in.SIGNATURES) | {"emulated_calls"} <= names
    tags = {tag.entry.d_tag: tag for tag in elf.get_section_by_name(".dynamic").iter_tags()}
    assert tags["DT_SONAME"].soname == "libamdhip64.so"
