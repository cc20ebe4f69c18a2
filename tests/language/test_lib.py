"""Every layer of the library on fresh random shapes and numbers, against float64 numpy."""

from __future__ import annotations

import numpy as np
import pytest
import seeded
from reference_gpt2 import attention, gelu, layer_norm
from tensor_functions import run

from lispgpt.base.errors import UserError


def sizes(*most: int) -> list[int]:
    return [int(seeded.rng().integers(1, m + 1)) for m in most]


def normal(*shape: int) -> np.ndarray:
    return seeded.rng().standard_normal(shape).astype(np.float32)


def to_bf16(x: np.ndarray) -> np.ndarray:
    """Round to nearest even, as the bits of bf16."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def layer(expression: str, rows: int = 1, **weights: np.ndarray) -> np.ndarray:
    """The value of an expression over weights of these names, as the program's library computes it."""
    dtypes = {"uint16": "bf16", "float32": "f32", "int32": "i32"}
    declared = " ".join(
        f"({name} [{' '.join(map(str, w.shape))}] {dtypes[w.dtype.name]})" for name, w in weights.items()
    )
    text = f"(require nn) (weights {declared}) (entry f [tokens positions] {expression})"
    unused = np.zeros(rows, np.int32)
    (result,) = run(text, [unused, unused, *weights.values()], [(1, rows)], f"f_batch1_positions{rows}")
    return result


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def close(found: np.ndarray, wanted: np.ndarray, tolerance: float = 1e-5) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_linear(dtype: str) -> None:
    n, k, o = sizes(5, 40, 9)
    x, w, b = normal(n, k), normal(o, k), normal(o)
    stored, exact = (to_bf16(w), from_bf16(to_bf16(w))) if dtype == "bf16" else (w, w.astype(np.float64))
    close(layer("(linear x w b)", x=x, w=stored, b=b), x.astype(np.float64) @ exact.T + b, 1e-4)
    close(layer("(linear x w)", x=x, w=stored), x.astype(np.float64) @ exact.T, 1e-4)


def test_layer_norm() -> None:
    n, width = sizes(6, 70)
    x, w, b = normal(n, width), normal(width), normal(width)
    close(layer("(layer-norm x w b)", x=x, w=w, b=b), layer_norm(x.astype(np.float64), w, b), 1e-4)


def test_rms_norm() -> None:
    n, width = sizes(6, 70)
    x, w = normal(n, width), normal(width)
    exact = x.astype(np.float64)
    wanted = exact / np.sqrt((exact**2).mean(-1, keepdims=True) + 1e-6) * w
    close(layer("(rms-norm x w 1e-6)", x=x, w=w), wanted, 1e-4)


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("gelu", gelu),
        ("relu", lambda x: np.maximum(x, 0)),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
        ("silu", lambda x: x / (1 + np.exp(-x))),
        ("softmax", softmax),
        ("square", lambda x: x**2),
    ],
)
def test_elementwise(name: str, reference: object) -> None:
    n, width = sizes(4, 30)
    x = 3 * normal(n, width)
    assert callable(reference)
    close(layer(f"({name} x)", x=x), reference(x.astype(np.float64)))


def test_embedding_rows_and_last() -> None:
    vocab, width = sizes(20, 9)
    table = to_bf16(normal(vocab, width))
    ids = seeded.rng().integers(0, vocab, 6).astype(np.int32)
    text = f"(require nn) (weights (t [{vocab} {width}] bf16)) (entry f [tokens positions] (rows t tokens))"
    (found,) = run(text, [ids, ids, table], [(2, 3)], "f_batch2_positions3")
    close(found, from_bf16(table)[ids])
    (found,) = run(
        text.replace("(rows t tokens)", "(last (rows t tokens))"), [ids, ids, table], [(2, 3)], "f_batch2_positions3"
    )
    close(found, from_bf16(table)[ids[[2, 5]]])


def test_argmax_takes_the_first_of_equals() -> None:
    x = seeded.rng().integers(-3, 3, (5, 17)).astype(np.float32)
    np.testing.assert_array_equal(layer("(argmax x)", x=x), x.argmax(-1))


def test_attention_of_a_whole_sequence() -> None:
    heads, size = sizes(3, 5)
    n, width = 4, heads * size
    qkv = normal(n, 3 * width)
    text = f"""(require nn) (weights (qkv [{n} {3 * width}]))
      (state (kv [1 2 {heads} 7 {size}]))
      (entry f [tokens positions] (attention qkv (kv 0) {heads}))"""
    kv = np.full((1, 1, 2, heads, 7, size), 9.0, np.float32)
    positions = np.arange(n, dtype=np.int32)
    found, after = run(text, [positions, positions, qkv, kv], [(1, n)], f"f_batch1_positions{n}")
    close(found, attention(qkv.astype(np.float64), heads))
    wanted = kv.copy()
    for i in range(2):
        wanted[0, 0, i, :, :n] = qkv[:, width * (i + 1) : width * (i + 2)].reshape(n, heads, size).transpose(1, 0, 2)
    np.testing.assert_array_equal(after, wanted)


def test_attention_with_shared_keys_and_a_bf16_cache() -> None:
    groups, sharing, size, n = 2, 3, 4, 5
    heads = groups * sharing
    q, k, v = normal(n, heads, size), normal(n, groups, size), normal(n, groups, size)
    text = f"""(require nn) (weights (q [{n} {heads} {size}]) (k [{n} {groups} {size}]) (v [{n} {groups} {size}]))
      (state (kv [2 2 {groups} 6 {size}] bf16))
      (entry f [tokens positions] (attend q k v (kv 1)))"""
    kv = np.zeros((2, 1, 2, groups, 6, size), np.uint16)
    positions = np.arange(n, dtype=np.int32)
    found, _ = run(text, [positions, positions, q, k, v, kv], [(1, n)], f"f_batch1_positions{n}")
    keys, values = (from_bf16(to_bf16(a)).repeat(sharing, axis=1) for a in (k, v))
    scores = np.einsum("shd,thd->hst", q.astype(np.float64), keys) / np.sqrt(size)
    weights = softmax(np.where(np.tril(np.ones((n, n), bool)), scores, -np.inf))
    close(found, np.einsum("hst,thd->shd", weights, values).reshape(n, heads * size))


def test_broadcasting() -> None:
    a, b = sizes(4, 5)
    x, row, column = normal(a, b), normal(b), normal(a, 1)
    found = layer("(/ (- (+ x row) (* column 2)) 4)", x=x, row=row, column=column)
    close(found, (x + row - column * 2) / 4)
    found = layer("(select (< x row) (max x row) (- x))", x=x, row=row)
    close(found, np.where(x < row, np.maximum(x, row), -x))


def test_comprehension_reads_other_places() -> None:
    x = normal(3, 4)
    close(layer("(tensor [i 4 j 3] (+ (at x j i) (at x 2 3)))", x=x), x.T + x[2, 3])
    close(layer("(tensor [i 5] (* 2.0 (cast i f32)))"), 2 * np.arange(5))


@pytest.mark.parametrize(
    ("result", "left", "right"), [("no", "nk", "lo"), ("on", "n", "o"), ("n", "nk", "n"), ("n", "n", "nk")]
)
def test_contract_sums_what_the_result_lacks(result: str, left: str, right: str) -> None:
    """Indices of one operand alone are summed too, and there may be none to sum at all."""
    extents = dict(zip("nokl", sizes(5, 9, 12, 7), strict=True))
    x, w = (normal(*(extents[n] for n in names)) for names in (left, right))
    spelled = [f"[{' '.join(names)}]" for names in (result, left, right)]
    found = layer(f"(contract {spelled[0]} x {spelled[1]} w {spelled[2]})", x=x, w=w)
    close(found, np.einsum(f"{left},{right}->{result}", x.astype(np.float64), w), 1e-4)


def test_a_loop_may_end_before_a_tensor() -> None:
    n, k = sizes(5, 9)
    x, y = normal(n + 3, k), normal(n, k + 1)
    close(layer(f"(tensor [i {n} j {k}] (* (at x i j) (at y i j)))", x=x, y=y), x[:n] * y[:, :k])


def test_argmax_is_the_first_of_the_largest_and_of_nans() -> None:
    """As numpy's and torch's: what such an index reads is always there."""
    for columns in (3, 8, 67):
        x = seeded.rng().integers(-3, 3, (6, columns)).astype(np.float32)
        x[1, columns // 2] = x[2, -1] = np.nan
        x[3], x[4], x[5, 1:] = np.nan, -np.inf, np.nan
        with np.errstate(invalid="ignore"):
            expected = x.argmax(-1)
        np.testing.assert_array_equal(layer("(argmax x)", x=x), expected)
        np.testing.assert_array_equal(layer("(rows x (argmax (slice x [0 0] [6 3])))", x=x), x[x[:, :3].argmax(-1)])


def test_experts_of_rows_without_a_best_score_are_experts() -> None:
    scores = np.array([[1, 2, 3, 0], [np.nan, 1, 2, 3], [np.nan] * 4], np.float32)
    text = "(require experts) (weights (x [3 4])) (entry f [tokens positions] (first (nth (best-experts x 2) 1)))"
    unused = np.zeros(1, np.int32)
    (second,) = run(text, [unused, unused, scores], [(1, 1)], "f_batch1_positions1")
    assert second.tolist() == [1, 3, 1]


@pytest.mark.parametrize("top", [0, 5])
def test_no_row_goes_through_more_experts_than_there_are(top: int) -> None:
    text = f"(require experts) (weights (x [3 4])) (entry f [tokens positions] (first (best-experts x {top})))"
    with pytest.raises(UserError, match=f"no row can go through {top} of 4 experts"):
        run(text, [], [(1, 1)], "f_batch1_positions1")
