"""Emitting MLIR: the module that is being filled, and the insertion point in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lispgpt.ir.mlir import create_op, ir
from lispgpt.language.core.numbers import number_attribute
from lispgpt.language.core.site import Site
from lispgpt.language.reader.forms import Form, show


class Builder:
    """Puts ops into a module.  spelled: the types and attributes that were parsed, by their texts.  wide: whether all
    floats are of 64 bits, whatever the program says."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.context = site.context
        self.unknown = ir.Location.unknown()
        self.module = ir.Module.create(self.unknown)
        self.insertion = ir.InsertionPoint(self.module.body)
        self.spelled: dict[str, Any] = {}
        self.i1, self.i32, self.i64 = (ir.IntegerType.get_signless(width) for width in (1, 32, 64))
        self.f32, self.f64, self.index = ir.F32Type.get(), ir.F64Type.get(), ir.IndexType.get()
        self.wide = False

    def widen(self) -> None:
        """Have all floats be of 64 bits from here on."""
        self.wide, self.f32 = True, self.f64

    @contextmanager
    def at(self, place: ir.Block | ir.InsertionPoint) -> Iterator[None]:
        """Emit at the end of a block, or at another insertion point, for a while."""
        outside = self.insertion
        self.insertion = ir.InsertionPoint(place) if isinstance(place, ir.Block) else place
        try:
            yield
        finally:
            self.insertion = outside

    def at_module_start(self) -> Any:
        """Emit before everything else in the module for a while: declarations, constants."""
        return self.at(ir.InsertionPoint.at_block_begin(self.module.body))

    def emit(
        self,
        name: str,
        operands: list[ir.Value],
        results: list[ir.Type],
        attributes: dict[str, Any],
        form: Form,
        region_count: int = 0,
    ) -> Any:
        """An op that is well formed by construction; its only result, or the op."""
        place = self.site.location(form)
        try:
            operation = create_op(name, operands, results, attributes, region_count, loc=place, ip=self.insertion)
        except IndexError:
            self.site.fail(f"`{show(form)}` comes after the op that ends its block", form)
        return operation.results[0] if results and not region_count else operation

    def constant(self, number: Any, kind: ir.Type, form: Form) -> ir.Value:
        """An arith.constant."""
        value = number_attribute(self.site, number, kind, form)
        return self.emit("arith.constant", [], [kind], {"value": value}, form)
