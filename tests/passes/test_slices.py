"""Which dimensions a rank-reduced slice keeps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lispgpt.ir.structure import kept_dimensions


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=6))
def test_what_is_kept_has_the_reduced_shape(dimensions: list[tuple[int, bool]]) -> None:
    sizes = [size for size, _ in dimensions]
    shape = [size for size, drop in dimensions if size > 1 or not drop]
    kept = kept_dimensions(sizes, shape)
    assert [size for size, keep in zip(sizes, kept, strict=True) if keep] == shape


def test_an_inner_unit_dimension_goes_where_the_first_is_one_too() -> None:
    assert kept_dimensions([1, 6, 1, 8], [1, 6, 8]) == [True, True, False, True]
