"""Convolutions, pools and norms of channels: values beside numpy's loops, gradients beside central differences."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import seeded
from gradient_checks import HEADER, Case, Cases
from tensor_functions import Compiled

from lispgpt.base.errors import UserError

DEFINITIONS = "(require arrays) (require convolutions)"


def windows(x: np.ndarray, size: Any, strides: Any, padding: Any, dilation: Any, outside: float = 0.0) -> np.ndarray:
    """[n, *places, *taps, c] of x [n, *extents, c]."""
    x = np.pad(x, [(0, 0), *padding, (0, 0)], constant_values=outside)
    spans = [d * (k - 1) + 1 for k, d in zip(size, dilation, strict=True)]
    places = [(e - s) // t + 1 for e, s, t in zip(x.shape[1:-1], spans, strides, strict=True)]
    made = np.zeros((x.shape[0], *places, *size, x.shape[-1]))
    for place in product(*map(range, places)):
        for tap in product(*map(range, size)):
            where = [p * s + t * d for p, s, t, d in zip(place, strides, tap, dilation, strict=True)]
            made[(slice(None), *place, *tap)] = x[(slice(None), *where)]
    return made


def convolved(x: Any, w: Any, strides: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Any:
    d = x.ndim - 2
    strides, dilation = (v if isinstance(v, list) else [v] * d for v in (strides, dilation))
    padding = [p if isinstance(p, list) else [p, p] for p in (padding if isinstance(padding, list) else [padding] * d)]
    seen = windows(x, w.shape[2:], strides, padding, dilation)
    parts = []
    for g in range(groups):
        own = seen[..., g * w.shape[1] : (g + 1) * w.shape[1]]
        mine = w[g * (len(w) // groups) : (g + 1) * (len(w) // groups)]
        taps = list(range(1 + d, 1 + 2 * d))
        parts.append(np.tensordot(own, mine, ([*taps, 1 + 2 * d], [*range(2, 2 + d), 1])))
    return np.concatenate(parts, -1)


def first(function: Any) -> Any:
    """Of channels that come first."""
    return lambda x, *rest, **given: np.moveaxis(function(np.moveaxis(x, 1, -1), *rest, **given), -1, 1)


def transposed(x: np.ndarray, w: np.ndarray, extents: Any, strides: int = 1, padding: int = 0, groups: int = 1) -> Any:
    """What each element of x puts, through each tap, where a convolution would have read it."""
    each = x.shape[-1] // groups
    made = np.zeros((x.shape[0], *(e + 2 * padding for e in extents), w.shape[1] * groups))
    for place in np.ndindex(x.shape[1:-1]):
        for tap in np.ndindex(w.shape[2:]):
            where = tuple(p * strides + t for p, t in zip(place, tap, strict=True))
            parts = [
                x[(slice(None), *place, own)] @ w[(own, slice(None), *tap)]
                for own in (slice(g * each, (g + 1) * each) for g in range(groups))
            ]
            made[(slice(None), *where)] += np.concatenate(parts, -1)
    return made[(slice(None), *(slice(padding, padding + e) for e in extents))]


def pooled(x: np.ndarray, size: Any, strides: Any, padding: int, how: Any, outside: float) -> np.ndarray:
    d = x.ndim - 2
    seen = windows(x, size, strides, [[padding] * 2] * d, [1] * d, outside)
    return how(seen, tuple(range(1 + d, 1 + 2 * d)))


def normed(x: np.ndarray, groups: int, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    y = x.reshape(len(x), -1, groups, x.shape[-1] // groups)
    y = (y - y.mean((1, 3), keepdims=True)) / np.sqrt(y.var((1, 3), keepdims=True) + 1e-3)
    return y.reshape(x.shape) * w + b


def straight(x: np.ndarray, size: int) -> np.ndarray:
    places = np.clip((np.arange(size) + 0.5) * x.shape[1] / size - 0.5, 0, x.shape[1] - 1)
    return np.stack(
        [np.stack([np.interp(places, range(x.shape[1]), r[:, c]) for c in range(x.shape[2])], 1) for r in x]
    )


CASES: list[Case] = [
    ("(convolution x w)", convolved, {"x": (2, 3, 4, 2), "w": (3, 2, 2, 3)}),
    (
        "(convolution x w {:strides [2 1] :padding [1 [0 2]] :dilation [1 2]})",
        lambda x, w: convolved(x, w, [2, 1], [1, [0, 2]], [1, 2]),
        {"x": (1, 4, 5, 2), "w": (3, 2, 3, 2)},
    ),
    ("(convolution x w {:padding [2 [0 1]]})", lambda x, w: convolved(x, w, 1, [2, [0, 1]]),
     {"x": (2, 2, 4, 2), "w": (3, 2, 1, 3)}),
    ("(convolution x w {:padding [[1 0] 2] :dilation 2 :groups 2})",
     lambda x, w: convolved(x, w, 1, [[1, 0], 2], 2, 2), {"x": (1, 4, 3, 4), "w": (4, 2, 2, 3)}),
    ("(convolution x w {:padding 1 :groups 2})", lambda x, w: convolved(x, w, 1, 1, 1, 2),
     {"x": (1, 3, 3, 4), "w": (6, 2, 3, 3)}),
    ("(convolution x w {:padding [1 [0 2]] :dilation [1 2] :groups 3})",
     lambda x, w: convolved(x, w, 1, [1, [0, 2]], [1, 2], 3), {"x": (2, 3, 4, 3), "w": (3, 1, 2, 2)}),
    ("(convolution x w {:padding [[2 0] 0] :strides [2 1] :groups 4})",
     lambda x, w: convolved(x, w, [2, 1], [[2, 0], 0], 1, 4), {"x": (1, 5, 3, 4), "w": (4, 1, 3, 2)}),
    ("(convolution x w {:strides 2})", lambda x, w: convolved(x, w, 2), {"x": (2, 4, 3, 2), "w": (3, 2, 1, 1)}),
    ("(convolution x w)", convolved, {"x": (2, 2, 3, 2), "w": (3, 2, 1, 1)}),
    ("(convolution x w {:padding 1 :channels-first true})", first(lambda x, w: convolved(x, w, 1, 1)),
     {"x": (1, 2, 3, 4), "w": (3, 2, 3, 3)}),
    ("(convolution x w {:strides 2 :padding 1})", lambda x, w: convolved(x, w, 2, 1), {"x": (2, 5, 3), "w": (2, 3, 3)}),
    ("(convolution x w {:padding 1 :strides [1 2 1] :groups 2})", lambda x, w: convolved(x, w, [1, 2, 1], 1, 1, 2),
     {"x": (1, 3, 3, 2, 4), "w": (2, 2, 2, 3, 2)}),
    ("(transposed-convolution x w {:strides 2 :padding 1 :more 1})",
     lambda x, w: transposed(x, w, (4, 6), strides=2, padding=1), {"x": (1, 2, 3, 2), "w": (2, 3, 3, 3)}),
    ("(transposed-convolution x w {:groups 2 :channels-first true})",
     first(lambda x, w: transposed(x, w, (4,), groups=2)), {"x": (2, 4, 3), "w": (4, 1, 2)}),
    ("(max-pool x 2)", lambda x: pooled(x, [2, 2], [2, 2], 0, np.max, -np.inf), {"x": (1, 4, 5, 2)}),
    ("(max-pool x 3 {:strides 1 :padding 1})", lambda x: pooled(x, [3], [1], 1, np.max, -np.inf), {"x": (2, 5, 2)}),
    ("(mean-pool x [2 1] {:padding 1 :channels-first true})",
     first(lambda x: pooled(x, [2, 1], [2, 1], 1, np.mean, 0.0)), {"x": (1, 2, 4, 3)}),
    ("(group-norm-of-images x 2 w b 1e-3)", lambda x, w, b: normed(x, 2, w, b),
     {"x": (2, 2, 3, 4), "w": (4,), "b": (4,)}),
    ("(resize-nearest x 1 5)", lambda x: x[:, np.arange(5) * 3 // 5], {"x": (2, 3, 2)}),
    ("(resize-linear x 1 5)", lambda x: straight(x, 5), {"x": (2, 3, 2)}),
    ("(resize-linear x -2 2)", lambda x: straight(x, 2), {"x": (1, 5, 2)}),
]  # fmt: skip


@pytest.fixture(scope="module")
def cases() -> Cases:
    return Cases(CASES, DEFINITIONS)


@pytest.mark.drawn
@pytest.mark.parametrize("number", range(len(CASES)), ids=[case[0] for case in CASES])
def test_values_and_gradients_are_those_of_numpy(cases: Cases, number: int) -> None:
    cases.check_value(number)
    cases.check_gradients(number)


def test_batch_norm_keeps_what_it_saw() -> None:
    header = f"{HEADER} {DEFINITIONS} (state (means [3]) (spreads [3]))"
    inputs = "[(x [4 2 3] f32) (w [3] f32) (b [3] f32)]"
    train = f"(entry train {inputs} (batch-norm-training x w b means spreads 0.1 1e-3))"
    made = Compiled(f"{header} {train} (entry use {inputs} (batch-norm x w b means spreads 1e-3))")
    rng, seed = seeded.named_rng()
    x, w, b, means = (rng.normal(size=shape).astype(np.float32) for shape in ((4, 2, 3), 3, 3, 3))
    spreads = rng.uniform(0.5, 2, 3).astype(np.float32)
    found, *states = made.call("train", [x, w, b, means, spreads])
    rows = x.reshape(8, 3).astype(np.float64)
    wanted = (x - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-3) * w + b
    kept = [0.9 * means + 0.1 * rows.mean(0), 0.9 * spreads + 0.1 * rows.var(0, ddof=1)]
    used = (x - means) / np.sqrt(spreads + 1e-3) * w + b
    again = made.call("use", [x, w, b, means, spreads])[0]
    for got, right in zip([found, *states, again], [wanted, *kept, used], strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5, err_msg=seed)


def test_an_option_that_there_is_not_is_an_error() -> None:
    with pytest.raises(UserError, match="there is no option :stride here"):
        Cases([("(convolution x w {:stride 2})", convolved, {"x": (1, 3, 3, 2), "w": (2, 2, 2, 2)})], DEFINITIONS)
