"""Models of the Hugging Face hub, by ORG/NAME: fetched once, by huggingface-hub, to where all its users keep them.

ORG/NAME@REVISION is another branch, tag or commit than the main one; ORG/NAME/FILE.gguf one file of a folder of such.
The library reads HF_HOME, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE, goes on where a download broke off, and holds what
it has fetched against the hub's sizes.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.reading import named

WANTED = (
    *("*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", "tokenizer*.json"),
    *(
        "vocab.json",
        "merges.txt",
        "special_tokens_map.json",
        "chat_template.jinja",
        "additional_chat_templates/*.jinja",
    ),
)
UNWANTED = ("*/*.safetensors", "*/*.json", "consolidated*")
"""Copies in other layouts, which lie in folders, and Mistral's own beside the usual ones."""
SETTINGS = "config.json"
_NAME = re.compile(r"(\w[\w.-]*/\w[\w.-]*)(?:/([\w./-]+\.gguf))?(?:@([\w./-]+))?", re.ASCII)
_FILES = (".lisp", ".lgpt", ".gguf", ".bin", ".safetensors", ".npz", ".mlir", ".json")


def is_hub_name(path: str | Path) -> bool:
    """Whether a path names a model of the hub: nothing on this machine, not even its first folder, has that name."""
    found = _NAME.fullmatch(str(path))
    if not found or os.path.lexists(path) or os.path.lexists(str(path).split("/")[0]):
        return False
    return bool(found[2]) or not found[1].endswith(_FILES)


def local(path: str | Path) -> Path:
    """A path as it is; for the name of a model of the hub, where that lies, fetched if it is not yet here."""
    found = named(path)
    return pull(path, newest=False) if is_hub_name(path) else found


def pull(name: str | Path, revision: str | None = None, newest: bool = True) -> Path:
    """Fetch the files that a model of the hub is run from; the folder, or the GGUF file, that they are then.

    newest: whether to ask for what changed, though all is here.  UserError for what is no model or cannot be fetched.
    """
    found = _NAME.fullmatch(str(name))
    if found is None:
        raise UserError(f"{name} is no model's name: that is ORG/NAME, ORG/NAME/FILE.gguf, or either with @REVISION")
    if revision and found[3]:
        raise UserError(f"{name} names a revision already")
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError

    given: dict[str, Any] = {"repo_id": found[1], "revision": revision or found[3], "library_name": "lispgpt"}
    try:
        if not newest:
            try:
                return _fetched(given, found[2], True)
            except EntryNotFoundError:
                pass
        return _fetched(given, found[2], False)
    except (HfHubHTTPError, HFValidationError, EntryNotFoundError, OSError, RuntimeError) as error:
        raise UserError(f"cannot fetch {name}: {_reason(error)}") from error
    except Exception as error:  # of the library that speaks HTTP, whose errors have no class here
        if type(error).__module__.partition(".")[0] not in ("httpx", "httpx2", "httpcore", "httpcore2"):
            raise
        raise UserError(f"cannot fetch {name}: {_reason(error)}") from error


def _fetched(given: dict[str, Any], file: str | None, here: bool) -> Path:
    """The file or folder; here: which has to be on this machine already."""
    import huggingface_hub

    if file:
        return Path(huggingface_hub.hf_hub_download(filename=file, local_files_only=here, **given))
    patterns: dict[str, Any] = {"allow_patterns": list(WANTED), "ignore_patterns": list(UNWANTED)}
    folder = Path(huggingface_hub.snapshot_download(local_files_only=here, **patterns, **given))
    if not (folder / SETTINGS).is_file() or not any(folder.glob("*.safetensors")):
        raise UserError(_without_weights(given, folder))
    return folder


def _without_weights(given: dict[str, Any], folder: Path) -> str:
    import huggingface_hub

    try:
        names = huggingface_hub.HfApi().list_repo_files(given["repo_id"], revision=given["revision"])
    except Exception:  # what it lacks is known without it
        names = []
    files = [name for name in names if name.endswith(".gguf")]
    if files:
        return f"{given['repo_id']} has GGUF files; name one: " + ", ".join(f"{given['repo_id']}/{n}" for n in files)
    lacks = "config.json" if not (folder / SETTINGS).is_file() else "weights in safetensors"
    return f"{given['repo_id']} has no {lacks}, as models have that run here"


def _reason(error: BaseException) -> str:
    """An error of the library's in one line, with what can be done."""
    from huggingface_hub import errors

    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.GatedRepoError):
        return "its owner wants to be asked: ask on its page, and set HF_TOKEN"
    if isinstance(error, errors.RepositoryNotFoundError) or status == 401:
        return "the hub has no such model, or shows it to others: set HF_TOKEN, if it is yours to see"
    if isinstance(error, errors.RevisionNotFoundError):
        return "it has no such revision"
    if isinstance(error, errors.RemoteEntryNotFoundError):
        return "it has no such file"
    cause = error.__cause__ if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ else error
    if isinstance(cause, errors.OfflineModeIsEnabled):
        return "it is not all here, and HF_HUB_OFFLINE forbids to ask the hub"
    said = str(cause).strip().splitlines()
    return (said[0] if said else type(cause).__name__)[:300]
