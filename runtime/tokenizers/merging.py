"""Byte-pair merging where a token's id is its rank, as in llm.c's files, which have no list of merges."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence


def merge(piece: bytes, ranks: Mapping[bytes, int], below: int | None = None) -> list[bytes]:
    """Split a piece into bytes, then join neighbours into the token of lowest rank (leftmost first) while any exists.

    ranks: token → id.  below: only tokens of lower rank are made.  Takes O(n log n) for n bytes.
    """
    parts: list[bytes] = [piece[i : i + 1] for i in range(len(piece))]
    following = list(range(1, len(parts) + 1))
    preceding = list(range(-1, len(parts) - 1))
    heap: list[tuple[int, int, bytes]] = []

    def consider(left: int) -> None:
        right = following[left] if left >= 0 else len(parts)
        if right < len(parts):
            joined = parts[left] + parts[right]
            rank = ranks.get(joined)
            if rank is not None and (below is None or rank < below):
                heapq.heappush(heap, (rank, left, joined))

    for position in range(len(parts) - 1):
        consider(position)
    while heap:
        _, left, joined = heapq.heappop(heap)
        right = following[left]
        # An entry is stale when a part of it has been merged since.
        if not parts[left] or right >= len(parts) or parts[left] + parts[right] != joined:
            continue
        parts[left], parts[right] = joined, b""
        following[left] = following[right]
        if following[left] < len(parts):
            preceding[following[left]] = left
        consider(left)
        consider(preceding[left])
    return [part for part in parts if part]


def ranks_of(pieces: Sequence[bytes], end_of_text: int | None) -> dict[bytes, int]:
    """Token → id of all pieces that text can be made of; of equal pieces the first."""
    ranks: dict[bytes, int] = {}
    for token, piece in enumerate(pieces):
        if piece and token != end_of_text:
            ranks.setdefault(piece, token)
    return ranks


def merges_of(ranks: Mapping[bytes, int]) -> Iterator[tuple[bytes, bytes]]:
    """The merge that makes each token of several bytes, in rank order: the two parts that lower ranks reduce it to.

    A token that lower ranks do not reduce to two parts can never be made, and is left out.
    """
    for piece, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(piece) > 1:
            parts = merge(piece, ranks, below=rank)
            if len(parts) == 2:
                yield parts[0], parts[1]


def check_merges(merges: Iterable[Sequence[str]], vocabulary: Container[str], continuing: str = "") -> None:
    """ValueError for a merge whose parts or joint are no tokens: the library panics at those, where it says nothing.

    continuing: what each token begins with that does not begin a word, which a joint has but once.
    """
    for merge in merges:
        if len(merge) != 2:
            raise ValueError(f"a merge is not of two tokens: {' '.join(merge)!r}")
        left, right = merge
        if not right.startswith(continuing):
            raise ValueError(f"the merge {' '.join(merge)!r} goes on with no token that begins with {continuing!r}")
        for token in (left, right, left + right.removeprefix(continuing)):
            if token not in vocabulary:
                raise ValueError(f"the merge {' '.join(merge)!r} wants {token!r}, which is no token")
