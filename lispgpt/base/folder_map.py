"""What a program calls the settings and tensors of Hugging Face's folders of its model: what its `hugging-face` form
says, and what an artifact has of that in its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lispgpt.base.errors import UserError

Scalar = bool | int | float | str
MOST = 1 << 31


@dataclass(frozen=True)
class Setting:
    """Where a config value stands in config.json: the first of these keys that is there and not null.

    A key may lead into objects and lists: `rope_scaling.factor`, `time_step_limit.0`, `layer_types.length`.
    optional: whether the program's own value serves where none is.  null: the value where a key is null, if that is
    another than the program's own.
    """

    keys: tuple[str, ...]
    optional: bool = False
    null: Scalar | None = None


@dataclass(frozen=True)
class Pattern:
    """A stored tensor's name, without the prefix; `*` is a layer's number, and a second one that of one of several.

    transposed: matrices are stored (in, out).  multiple: rows are padded with zeros to a multiple of this.
    """

    name: str
    transposed: bool = False
    multiple: int = 1


@dataclass(frozen=True)
class Rows:
    """How the rows of some matrices lie in GGUF files: the folder's, counted in these sizes (numbers, config.json's
    names of numbers, None for the rest), with the dimensions in this order."""

    sizes: tuple[int | str | None, ...]
    order: tuple[int, ...]


@dataclass(frozen=True)
class Gguf:
    """How a model's GGUF files differ from its folders, where tensors' names and settings are but llama.cpp's.

    types: what general.architecture may say; "llama with expert_count" stands for files that have that setting, too.
    rows: by a part of tensors' names in folders.  added: what files' values are larger by, likewise.  requires: values
    that settings must have where a file says them, which change nothing then.  kinds: of files of some of the types,
    what config.json would have as model_type; of others it is the type, or the first that the program is for.
    settings: what config.json would have that files do not say, since it is so of all that there are.
    """

    types: tuple[str, ...] = ()
    rows: Mapping[str, Rows] = field(default_factory=dict)
    added: Mapping[str, float] = field(default_factory=dict)
    requires: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class FolderMap:
    """types: what config.json's model_type may say.  prefix: what tensors' names may begin with, the longest first.
    ignored: endings of names of what is no weight, or their beginnings where a `*` follows.  requires: settings that
    must have one of these values where config.json has them.

    weights: of each, the tensors whose rows it has, one below the other.  some: those of them that some layers may
    lack.  gguf: how GGUF files of such models differ.
    """

    types: tuple[str, ...]
    config: Mapping[str, Setting]
    weights: Mapping[str, tuple[Pattern, ...]]
    prefix: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    requires: Mapping[str, tuple[Scalar | None, ...]] = field(default_factory=dict)
    gguf: Gguf = field(default_factory=Gguf)
    some: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if key != "some" or value}

    @staticmethod
    def from_json(data: Any) -> FolderMap:
        """What `to_json` gave; UserError for anything else."""
        try:
            found = FolderMap(
                tuple(data["types"]),
                {n: Setting(tuple(s["keys"]), bool(s["optional"]), s.get("null")) for n, s in data["config"].items()},
                {name: tuple(Pattern(**p) for p in patterns) for name, patterns in data["weights"].items()},
                tuple(data["prefix"]),
                tuple(data["ignored"]),
                {key: tuple(values) for key, values in data["requires"].items()},
                Gguf(
                    tuple(data["gguf"]["types"]),
                    {k: Rows(tuple(r["sizes"]), tuple(r["order"])) for k, r in data["gguf"]["rows"].items()},
                    {key: float(value) for key, value in data["gguf"]["added"].items()},
                    {key: tuple(values) for key, values in data["gguf"].get("requires", {}).items()},
                    dict(data["gguf"].get("kinds", {})),
                    dict(data["gguf"].get("settings", {})),
                ),
                tuple(data.get("some", ())),
            )
        except (KeyError, TypeError, AttributeError, ValueError):
            found = None
        if found is None or not _is_sound(found):
            raise UserError("the artifact is damaged: what it says of Hugging Face's folders is not understood")
        return found


def _is_sound(found: FolderMap) -> bool:
    texts = [*found.types, *found.prefix, *found.ignored, *found.requires, *found.some]
    texts += [key for setting in found.config.values() for key in setting.keys]
    patterns = [pattern for several in found.weights.values() for pattern in several]
    counts = all(type(p.multiple) is int and 0 < p.multiple < MOST for p in patterns)
    counts &= all(sorted(rows.order) == list(range(len(rows.sizes))) for rows in found.gguf.rows.values())
    texts += [
        *found.gguf.types,
        *found.gguf.requires,
        *found.gguf.kinds,
        *found.gguf.kinds.values(),
        *found.gguf.settings,
    ]
    return counts and all(isinstance(text, str) for text in [*texts, *(p.name for p in patterns)])
