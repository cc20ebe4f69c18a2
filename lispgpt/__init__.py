"""A compiler for a tiny Lisp that describes language models, from S-expressions through MLIR to machine code.

`compile`, `load`, `Model`, `Text` and `UserError` are those of `lispgpt.api`, `train` and `evaluate` those of
`lispgpt.training`, `diff` that of `lispgpt.compiler`, which are imported when one is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lispgpt.api import Artifact, Model, Text, UserError, compile, load
    from lispgpt.compiler.difference import diff
    from lispgpt.training.evaluation import evaluate
    from lispgpt.training.runs import train

__version__ = "0.1.0"
__all__ = ["Artifact", "Model", "Text", "UserError", "__version__", "compile", "diff", "evaluate", "load", "train"]

_PLACES = {
    "diff": "lispgpt.compiler.difference",
    "evaluate": "lispgpt.training.evaluation",
    "train": "lispgpt.training.runs",
}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(_PLACES.get(name, "lispgpt.api")), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext lispgpt`: `%lisp` and `%%lisp`, and a bar for training (see `lispgpt.notebook`)."""
    import_module("lispgpt.notebook.magics").load(shell)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
