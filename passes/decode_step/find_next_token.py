"""Finding what chooses a decode step's next token, and leaves the next step's inputs: the calls behind the last
product."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lispgpt.ir.mlir import ir
from lispgpt.passes.decode_step.chain import NextToken, Series
from lispgpt.passes.kernels.refusal import Refused

GREEDY = ["largest of chunks", "largest", "advance"]
DRAWN = ["races of chunks", "drawn", "advance"]


def find_next_token(
    calls: Sequence[ir.Operation],
    kernels: Sequence[ir.Operation],
    logits: Series,
    place: Callable[[ir.Value], Series],
) -> NextToken:
    """place: of a call's operand, Refused where it is none.  Refused where it is not known what the calls do."""
    parts, choose, advance = calls
    meanings = [ir.StringAttr(k.attributes["means"]).value if "means" in k.attributes else "" for k in kernels]
    if meanings not in (GREEDY, DRAWN):
        raise Refused("what comes behind the last product is not known")
    draws = meanings == DRAWN
    if any(place(call.operands[0]) != logits for call in ([parts, choose] if draws else [parts])):
        raise Refused("what is chosen from is not what the last product makes")
    next_ = place(choose.operands[-1 if draws else 1])
    ready, tokens, positions = map(place, advance.operands)
    given = [[place(call.operands[i]) for i in (1, 2)] for call in (parts, choose)] if draws else []
    if ready != next_ or (draws and (given[0] != given[1] or given[0][1] != positions)):
        raise Refused("what comes behind the last product is not known")
    vocab = next(iter(ir.DenseI64ArrayAttr(kernels[0].attributes["numbers"])))
    report, settings = (None, given[0][0]) if draws else (place(choose.operands[2]), None)
    return NextToken(next_, report, settings, tokens.buffer, positions.buffer, vocab)
