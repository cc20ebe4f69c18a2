"""Processes that others start: who is let in, where rank 0 listens, and what it takes from those who come."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from lispgpt.base.errors import UserError
from lispgpt.base.folders import user_secret
from lispgpt.runtime.collectives import joining, local
from lispgpt.runtime.collectives.authentication import Refused, introduce
from lispgpt.runtime.collectives.joining import Launched
from lispgpt.runtime.collectives.peers import Place

SECRET = b"what nobody else knows"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def connected(address: tuple[str, int]) -> socket.socket:
    for _ in range(500):
        try:
            return socket.create_connection(address, timeout=5)
        except ConnectionRefusedError:
            threading.Event().wait(0.01)
    raise AssertionError("nobody listens")


def test_strangers_are_sent_away_and_the_others_meet() -> None:
    address = ("127.0.0.1", free_port())
    with ThreadPoolExecutor() as pool:
        first = pool.submit(Launched(Place(0, 2, 0, 2), address, SECRET).join, 5.0, print)
        silent = connected(address)
        for secret, rank in ((b"a guess", 1), (SECRET, 7), (SECRET, 0)):
            line = connected(address)
            try:
                introduce(line, rank, secret)
            except Refused:
                assert secret != SECRET
            else:
                assert line.recv(1) == b"", "a rank that there is not is let in"
            line.close()
        rude = connected(address)
        rude.sendall(b'{"kind": "here", "rank": 1}\n' * 100)
        assert not first.done()
        second = pool.submit(Launched(Place(1, 2, 1, 2), address, SECRET).join, 5.0, print)
        peers = [first.result(30), second.result(30)]
        gathered = [pool.submit(each.gather, "rank", each.place.rank) for each in peers]
        assert [each.result(30) for each in gathered] == [[0, 1], [0, 1]]
        for each in peers:
            each.leave()
    silent.close()
    rude.close()


def test_rank_0_listens_at_its_address_alone() -> None:
    listener = joining._listener(("127.0.0.1", 0), Place(0, 2, 0, 2))
    assert listener.getsockname()[0] == "127.0.0.1"
    listener.close()
    with pytest.raises(UserError, match="MASTER_ADDR is an address of rank 0's machine"):
        joining._listener(("192.0.2.1", 1), Place(0, 2, 0, 2))
    with pytest.raises(UserError, match="other machines do not reach it"):
        joining._listener(("localhost", 0), Place(0, 4, 0, 2))


def test_whoever_answers_without_the_secret_is_not_rank_0() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = other.getsockname()[:2]

        def answer(said: bytes) -> None:
            line = other.accept()[0]
            with suppress(OSError), line:
                line.sendall(said)
                line.recv(1000)
                line.sendall(bytes(32))

        for said in (b"lispgpt1" + bytes(32), b"HTTP/1.1 400 Bad Request" * 2):
            threading.Thread(target=answer, args=(said,), daemon=True).start()
            with pytest.raises(UserError, match="is not rank 0 of this run, or has another secret"):
                joining._called(address, 1, SECRET)


@pytest.mark.parametrize("given", ["/etc/passwd", "../../etc/passwd", None, "0" * 31, 7])
def test_no_path_is_taken_from_a_peer(tmp_path: Path, given: object, monkeypatch: pytest.MonkeyPatch) -> None:
    class Rank0:
        place = Place(1, 2)

        def gather(self, name: str, value: object) -> list[object]:
            return [given, None]

    monkeypatch.setattr(local, "SHARED", tmp_path)
    with pytest.raises(UserError, match="names no shared memory"):
        local._shared(Rank0(), 4096)  # type: ignore[arg-type]


def test_shared_memory_is_a_file_of_this_user_and_no_link(tmp_path: Path) -> None:
    victim, drawn = tmp_path / "victim", "ab" * 16
    victim.write_bytes(bytes(4096))
    (tmp_path / f"lispgpt-{drawn}").symlink_to(victim)
    with pytest.raises(UserError, match="cannot open the shared memory"):
        local._opened(tmp_path, drawn, 4096)


def test_a_secret_is_drawn_once_and_kept_to_its_user(tmp_path: Path) -> None:
    path = tmp_path / "settings" / "secret"
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: user_secret(path), range(32)))
    assert len(found) == 1 and len(found.pop()) == 64
    assert [child.name for child in path.parent.iterdir()] == ["secret"]
    path.chmod(0o644)
    with pytest.raises(UserError, match="others may read it"):
        user_secret(path)
