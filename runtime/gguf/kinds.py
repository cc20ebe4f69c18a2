"""What the metadata of GGUF files may be: one table of all that is read here, checked once as a file is opened.

Settings of models, which follow the architecture's name, are of the kinds of config.json's (`gguf_settings`); what is
in neither table is read by nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lispgpt.base.config_json import COUNT, FLAG, NAME, NAMES, NUMBER, POSITIVE, WHOLE_NUMBERS
from lispgpt.base.json_files import Kind, is_whole

TEXT = Kind("a text", lambda value: isinstance(value, str))
TOKEN = Kind("a token's number, or -1 or 2^32 - 1 for none", lambda value: is_whole(value, -1, (1 << 32) - 1))
LONGEST = 4096
"""Letters of a token."""

TOKENS = Kind(
    f"a list of texts of at most {LONGEST:,} letters",
    lambda value: isinstance(value, list) and all(isinstance(t, str) and len(t) <= LONGEST for t in value),
)
KINDS = {
    "general.architecture": NAME,
    "split.count": COUNT,
    "split.no": COUNT,
    "tokenizer.chat_template": TEXT,
    **{f"tokenizer.ggml.{name}": NAME for name in ("model", "pre")},
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.merges": NAMES,
    "tokenizer.ggml.scores": Kind(
        "a list of numbers",
        lambda value: isinstance(value, list) and all(type(n) in (int, float) and n == n for n in value),
    ),
    "tokenizer.ggml.token_type": WHOLE_NUMBERS,
}
TOKENIZERS = {"_token_id": TOKEN, "_token": FLAG, "_space_prefix": FLAG}
"""Of a tokenizer's keys with these ends."""

SETTINGS = {
    "rope.dimension_count": COUNT,
    "rope.freq_base": POSITIVE,
    "rope.scaling.type": NAME,
    **{f"rope.scaling.{name}": NUMBER for name in ("factor", "attn_factor", "yarn_log_multiplier")},
    **{f"rope.scaling.{name}": NUMBER for name in ("yarn_beta_fast", "yarn_beta_slow")},
    "rope.scaling.original_context_length": COUNT,
}
"""Behind the architecture's name, beside those that config.json has."""


def check_metadata(path: Path, metadata: Mapping[str, Any]) -> None:
    """UserError for the first value that is not what it should be."""
    architecture = metadata.get("general.architecture")
    for key, value in metadata.items():
        kind = KINDS.get(key)
        if kind is None and key.startswith("tokenizer.ggml."):
            kind = next((found for end, found in TOKENIZERS.items() if key.endswith(end)), None)
        elif kind is None and isinstance(architecture, str):
            kind = SETTINGS.get(key.removeprefix(f"{architecture}."))
        if kind is not None:
            kind.check(f"{path} is damaged: {key}", value)
