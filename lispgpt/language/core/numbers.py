"""Attributes of numbers."""

from __future__ import annotations

import math
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core.site import Site
from lispgpt.language.core.values import describe, not_whole
from lispgpt.language.reader.forms import Form


def numbers_attribute(site: Site, values: tuple[Any, ...], kind: ir.Type, form: Form) -> ir.Attribute:
    """Numbers of a vector or tensor type of rank 1: an element each, rounded once to its type."""
    if not isinstance(kind, (ir.RankedTensorType, ir.VectorType)) or list(kind.shape) != [len(values)]:
        site.fail(f"{len(values)} numbers are a tensor<{len(values)}x…>, not a {kind}", form)
    elements = [number_attribute(site, value, kind.element_type, form) for value in values]
    return ir.DenseElementsAttr.get(elements, kind)


def number_attribute(site: Site, value: Any, kind: ir.Type, form: Form) -> ir.Attribute:
    """A number, or true or false, of a scalar type, or spread over a vector or tensor type."""
    if isinstance(kind, ir.ShapedType) and not isinstance(kind, (ir.MemRefType, ir.UnrankedMemRefType)):
        if not kind.has_static_shape:
            site.fail(f"a constant of type {kind} needs every dimension known", form)
        return ir.DenseElementsAttr.get_splat(kind, number_attribute(site, value, kind.element_type, form))
    if isinstance(value, bool):
        value = int(value)
    if isinstance(kind, ir.FloatType):
        return _float(site, value, kind, form)
    if not isinstance(kind, (ir.IntegerType, ir.IndexType)):
        site.fail(f"there is no constant of type {kind} for {describe(value)}", form)
    if isinstance(value, float):
        if not math.isfinite(value) or value != int(value):
            site.fail(f"{kind} holds whole numbers, and this is {not_whole(value, form)}", form)
        value = int(value)
    return _integer(site, value, kind, form)


def _float(site: Site, value: int | float, kind: ir.FloatType, form: Form) -> ir.Attribute:
    """Rounded; a number that would become an infinity is refused."""
    if not isinstance(value, int) or abs(value) <= 1 << 1020:
        made = ir.FloatAttr.get(kind, float(value), ir.Location.unknown(site.context))
        if math.isfinite(made.value) or not math.isfinite(value):
            return made
    site.fail(f"{describe(value)} is too large for {kind}", form)


def _integer(site: Site, value: int, kind: ir.Type, form: Form) -> ir.Attribute:
    width = kind.width if isinstance(kind, ir.IntegerType) else 64
    if not -(1 << max(width - 1, 0)) <= value < 1 << width:
        site.fail(f"{value} does not fit into {kind}", form)
    if width > 63:
        signed = value - (1 << width) if value >= 1 << max(width - 1, 0) else value
        if isinstance(kind, ir.IntegerType) and kind.is_unsigned:
            signed = value % (1 << width)
        return ir.Attribute.parse(f"{signed} : {kind}", site.context)
    if value >= 1 << max(width - 1, 0) and isinstance(kind, ir.IntegerType) and not kind.is_unsigned:
        value -= 1 << width
    return ir.IntegerAttr.get(kind, value)
