"""The cache of compiled programs: it keeps what belongs together, removes its own alone, and is one user's."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import lispgpt
from lispgpt.base.fresh import call_fresh
from lispgpt.compiler import cache as caching
from lispgpt.compiler import compiled, driver
from lispgpt.compiler.cache import Cache
from lispgpt.compiler.compiled import artifact_of
from lispgpt.compiler.request import Request
from lispgpt.runtime.plan.artifact import Artifact

KEY = "0123456789abcdef0123456789abcdef"


def program(path: Path, factor: float) -> Path:
    path.write_text(f"(entry scaled [(x [4] f32)] (* {factor} x))\n")
    return path


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return artifact_of(Request(program(tmp_path_factory.mktemp("cache") / "p.lisp", 2.0)))


def scaled(path: Path, cache: Path) -> float:
    with lispgpt.load(path, cache=cache) as model:
        return float(model.run("scaled", x=np.ones(4, np.float32))["scaled"][0])


def saved_while_compiled(path: Path, cache: Path, forked: bool) -> None:
    """Compile a program, in a fork or in this process, of which an editor saves another text meanwhile."""
    compile_program = driver.compile_program

    def slowly(*given: object) -> Artifact:
        program(path, 3.0)
        return compile_program(*given)  # type: ignore[arg-type]

    driver.compile_program = slowly  # type: ignore[assignment]
    if forked:
        assert scaled(path, cache) == 2.0
    else:
        compiled._compile(Request(path), Cache(cache))


@pytest.mark.parametrize("forked", [True, False])
def test_a_program_that_is_saved_while_it_compiles_is_compiled_again(
    tmp_path: Path, forked: bool, interpreters: None
) -> None:
    """In a fresh process: one that has threads compiles in another, which would not know that a text is saved."""
    path, cache = program(tmp_path / "p.lisp", 2.0), tmp_path / "cache"
    call_fresh(saved_while_compiled, path, cache, forked)
    assert scaled(path, cache) == 3.0
    assert program(path, 2.0) and scaled(path, cache) == 2.0


def test_an_entry_whose_artifact_is_another_is_a_miss(tmp_path: Path, artifact: Artifact) -> None:
    cache = Cache(tmp_path / "cache")
    cache.keep(KEY, artifact, {})
    assert cache.find(KEY) is not None
    again = artifact_of(Request(program(tmp_path / "q.lisp", 5.0)))
    again.save(tmp_path / "cache" / KEY / "artifact.lgpt")
    assert cache.find(KEY) is None


def test_room_is_made_of_entries_alone(tmp_path: Path, artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and folders that are none of the cache's stay, older and of entries' names though they are."""
    monkeypatch.setattr(caching, "KEPT", 3)
    folder, away = tmp_path / "cache", tmp_path / "away"
    cache = Cache(folder)
    cache.keep(KEY, artifact, {})
    (folder / KEY).rename(away)
    (folder / KEY).symlink_to(away)
    (folder / "made-here").write_text("")
    strange = folder / KEY.replace("0", "f")
    (strange / "photos").mkdir(parents=True)
    (strange / "inputs.json").write_text("{}")
    (folder / "thesis").mkdir()
    (folder / "thesis" / "chapter1").write_text("long")
    for number, path in enumerate(folder.iterdir()):
        os.utime(path, (number, number), follow_symlinks=False)
    keys = [f"{number:032x}" for number in range(6)]
    for number, key in enumerate(keys):
        cache.keep(key, artifact, {})
        os.utime(folder / key, (100 + number, 100 + number))
    assert [key for key in keys if (folder / key).exists()] == keys[3:]
    assert sorted(path.name for path in away.iterdir()) == ["artifact.lgpt", "inputs.json"]
    assert (folder / "made-here").exists() and (strange / "photos").exists()
    assert (folder / "thesis" / "chapter1").read_text() == "long"


def test_what_others_may_have_put_there_does_not_run(tmp_path: Path, artifact: Artifact) -> None:
    folder = tmp_path / "cache"
    cache = Cache(folder)
    cache.keep(KEY, artifact, {})
    assert folder.stat().st_mode & 0o777 == 0o700 == (folder / KEY).stat().st_mode & 0o777
    for path, mode in ((folder / KEY, 0o777), (folder / KEY / "artifact.lgpt", 0o666)):
        before = path.stat().st_mode
        path.chmod(mode)
        assert cache.find(KEY) is None
        path.chmod(before)
    assert cache.find(KEY) is not None
    folder.chmod(0o770)
    with pytest.raises(lispgpt.UserError, match=f"others may write to {folder}.*chmod go-w"):
        cache.find(KEY)


def test_pipes_in_the_cache_are_misses(tmp_path: Path, artifact: Artifact) -> None:
    cache = Cache(tmp_path / "cache")
    cache.keep(KEY, artifact, {})
    for name in ("inputs.json", "artifact.lgpt"):
        path = tmp_path / "cache" / KEY / name
        path.rename(tmp_path / name)
        os.mkfifo(path, 0o600)
        assert cache.find(KEY) is None
        (tmp_path / name).replace(path)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_cache_of_another_user_is_refused(tmp_path: Path, artifact: Artifact) -> None:
    cache = Cache(tmp_path / "cache")
    cache.keep(KEY, artifact, {})
    os.chown(tmp_path / "cache" / KEY, 12345, -1)
    assert cache.find(KEY) is None
    os.chown(tmp_path / "cache", 12345, -1)
    with pytest.raises(lispgpt.UserError, match="belongs to another user"):
        cache.find(KEY)
