"""The tokens of a rendered conversation, in which special tokens are the template's alone.

What people write may spell a special token, such as `<|im_end|>`.  A mark is put within each such spelling before the
template sees it, and the prompt is encoded part by part between the marks, in none of which the spelling is whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lispgpt.chat.template import ChatTemplate
from lispgpt.runtime.tokenizers import Tokenizer

MARK = "\ufdd0"
"""A character that Unicode promises never to use."""


def prompt_of(
    template: ChatTemplate,
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    **more: Any,
) -> tuple[list[int], str]:
    """The tokens that a model answers a conversation from, and their text; see `ChatTemplate.render`."""
    spelled = _spellings(template, tokenizer)
    marked = [_marked(message, spelled) for message in messages]
    text = template.render(marked, _marked(tools, spelled), **more)
    first, *rest = text.split(MARK)
    behind = [token for part in rest for token in _encode_behind(tokenizer, part)]
    return [*(tokenizer.encode(first) if template.own else tokenizer.prompt(first)), *behind], first + "".join(rest)


def with_ends(tokenizer: Tokenizer, template: ChatTemplate) -> Tokenizer:
    """The tokenizer, whose texts also end with what ends a turn by the template's model."""
    ids = tokenizer.encode(template.tokens["eos_token"]) if template.tokens.get("eos_token") else []
    if len(ids) == 1 and ids[0] not in tokenizer.ends:
        tokenizer.other_ends += (ids[0],)
    return tokenizer


def _spellings(template: ChatTemplate, tokenizer: Tokenizer) -> re.Pattern[str] | None:
    """What finds the special tokens' texts, and those of other added tokens that the template writes."""
    written = template.source + (template.tool_source or "")
    added = [text for text in tokenizer.added if text in written and text.strip()]
    spelled = sorted((text for text in {*tokenizer.special, *added} if len(text) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, spelled))) if spelled else None


def _marked(value: Any, spelled: re.Pattern[str] | None) -> Any:
    if isinstance(value, str):
        plain = value.replace(MARK, "\ufffd")
        while spelled is not None:  # a mark may leave another spelling behind it
            marked = spelled.sub(lambda found: found[0][0] + MARK + found[0][1:], plain)
            if marked == plain:
                break
            plain = marked
        return plain
    if isinstance(value, Mapping):
        return {name: _marked(each, spelled) for name, each in value.items()}
    if isinstance(value, Sequence):
        return [_marked(each, spelled) for each in value]
    return value


def _encode_behind(tokenizer: Tokenizer, part: str) -> list[int]:
    """The tokens of a text that stands behind another one: without the space that some put before every text."""
    line = tokenizer.encode("\n")
    found = tokenizer.encode("\n" + part)
    return found[len(line) :] if found[: len(line)] == line else tokenizer.encode(part)
