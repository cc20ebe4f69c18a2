"""`--lora rank=16,targets=q_proj+v_proj`: an adapter that is trained beside a model's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.compiler.folders import names_in, program_for
from lispgpt.runtime.checkpoints.adapter_folder import AdapterFolder

MOST_RANK = 1024
EXAMPLE = "rank=16,alpha=32,targets=q_proj+v_proj"
TEXT = """; An adapter of {model}: its program as it is, with a loss, and products that B A x is added to.
(require "{program}")
(require training)
(require lora)

(low-rank {rank} {scale} [{places}])
(training logits {{:weights (matching ".lora-")}})
"""


@dataclass(frozen=True)
class Lora:
    """rank: of A and B.  alpha: what their product is multiplied by, over the rank.  targets: the ends of the names of
    the modules that are adapted; of none, all matrices of the model's layers are."""

    rank: int
    alpha: float
    targets: tuple[str, ...] = ()

    @staticmethod
    def parsed(text: str) -> Lora:
        """What `--lora` says; UserError for anything else."""
        found = dict(part.partition("=")[::2] for part in text.split(","))
        try:
            rank = int(found.pop("rank", "16"))
            alpha = float(found.pop("alpha", str(2 * rank)))
        except ValueError:
            rank, alpha = 0, 0.0
        targets = tuple(found.pop("targets", "").split("+")) if found.get("targets") else ()
        if found or not 0 < rank <= MOST_RANK or not 0 < alpha < 1 << 31 or not all(targets):
            raise UserError(f"--lora is like {EXAMPLE}, with a rank from 1 to {MOST_RANK}, and this is {text[:80]!r}")
        return Lora(rank, alpha, targets)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Lora:
        """What `to_json` gave; UserError for anything else."""
        rank, alpha, targets = data.get("rank"), data.get("alpha"), data.get("targets")
        right = type(rank) is int and isinstance(alpha, int | float) and isinstance(targets, Sequence)
        if not right or not all(isinstance(target, str) for target in targets):  # type: ignore[union-attr]
            raise UserError("the run's folder is damaged: what it says of the adapter is not understood")
        return Lora(rank, float(alpha), tuple(targets))  # type: ignore[arg-type]

    def to_json(self) -> dict[str, Any]:
        return {"rank": self.rank, "alpha": self.alpha, "targets": list(self.targets)}

    def folder(self, model: Path) -> AdapterFolder:
        """How the adapter of a model is written."""
        names = names_in(program_for(model))
        assert names is not None
        return AdapterFolder(model, names, self.rank, self.alpha, self.targets)

    def program(self, model: Path) -> str:
        """The program that trains it; UserError where a target is none of the model's."""
        places = " ".join(place.lisp for place in self.folder(model).places)
        scale = self.alpha / self.rank
        return TEXT.format(model=model.name, program=program_for(model), rank=self.rank, scale=scale, places=places)
