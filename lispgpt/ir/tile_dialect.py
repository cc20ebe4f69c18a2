"""The `tile` dialect, whose ops `lispgpt.passes.tile` explains: registered in every context, so that MLIR parses,
prints and checks tile programs as it does all else.

It is defined in IRDL, MLIR's own language for dialects, while the program runs: here is what each op is made of, which
MLIR verifies; what its types and its order have to be is `lispgpt.passes.tile.verify`'s.
"""

from __future__ import annotations

ARITIES = {
    "view": ("tensor", "view"),
    "shared": ("", "tile"),
    "ring": ("", "ring"),
    "slot": ("tile number", "slot"),
    "fill": ("ring view batch outer inner number", ""),
    "fetch": ("product batch row column", ""),
    "wait": ("ring number", "slots"),
    "member": ("slots", "slot"),
    "release": ("ring number", ""),
    "drain": ("ring", ""),
    "clear": ("slot outer end", ""),
    "load": ("view batch outer inner", "patches"),
    "put": ("patches slot", ""),
    "operand": ("view batch outer inner", "operand"),
    "split": ("operand", "numbers"),
    "reduce_rows": ("view batch outer", ""),
    "zeros": ("", "sums"),
    "mma": ("sums a b", "result"),
    "settle": ("sums", "result"),
    "add_parts": ("sums", "total"),
    "store": ("registers product batch row column beside*", ""),
    "role": ("", "number"),
    "limit": ("view end", "result"),
    "visible": ("batch row", "first least last"),
    "reach": ("task row", "first end"),
    "weights": ("task row round along scores*", "weights*"),
    "mask": ("scores batch row position least last", "result"),
    "reduce": ("registers", "rows"),
    "over_members": ("rows", "result"),
    "meet": ("", ""),
    "broadcast": ("rows", "result"),
    "as_operand": ("sums", "operand"),
    "team": ("", "number"),
    "keep": ("view batch outer", ""),
    "ask": ("view batch outer inner", ""),
}
"""For each op the names of its operands and of its results; with a star, of as many as there are."""


def dialect_text() -> str:
    """The dialect's definition, in IRDL."""
    return "irdl.dialect @tile {\n" + "".join(_operation(name, *both) for name, both in ARITIES.items()) + "}\n"


def _operation(name: str, operands: str, results: str) -> str:
    fields, lines = [("operands", operands.split()), ("results", results.split())], []
    for kind, names in fields:
        if names:
            plain = [(one.removesuffix("*"), "variadic " if one.endswith("*") else "") for one in names]
            lines += [f"    %{one} = irdl.any\n" for one, _ in plain]
            lines.append(f"    irdl.{kind}({', '.join(f'{one}: {many}%{one}' for one, many in plain)})\n")
    return f"  irdl.operation @{name} {{\n{''.join(lines)}  }}\n"
