"""Write down what prompts transformers makes of the tests' conversations, by chat templates.

    python tools/record_chat_prompts.py                     # those in tests/chat/templates
    python tools/record_chat_prompts.py FOLDER              # of a folder with templates of known models, as llama.cpp's
                                                            # models/templates: the hashes of prompts alone

Wants transformers and jinja2, in an environment of their own; it needs neither torch nor this package.
"""

from __future__ import annotations

import hashlib
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from transformers.utils import chat_template_utils

TESTS = Path(__file__).resolve().parent.parent / "tests" / "chat"
sys.path.insert(0, str(TESTS))

from conversations import CONVERSATIONS, NOW, TOKENS  # noqa: E402


class Fixed(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, _: Any = None) -> datetime:
        return datetime.fromisoformat(NOW)


def prompt(template: str, conversation: dict[str, Any]) -> str | None:
    """What transformers makes of a conversation; None where the template refuses it."""
    given = {"add_generation_prompt": True, "tools": None, **conversation}
    messages = [given.pop("messages")]
    try:
        found = chat_template_utils.render_jinja_template(messages, chat_template=template, **TOKENS, **given)
    except Exception:  # a template may raise whatever Python has
        return None
    return found[0][0] if isinstance(found, tuple) else found[0]


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def main() -> None:
    chat_template_utils.datetime = Fixed
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else TESTS / "templates"
    own, found = len(sys.argv) == 1, {}
    for path in sorted(folder.glob("*.jinja")):
        template = path.read_text(encoding="utf-8")
        prompts = {name: prompt(template, conversation) for name, conversation in CONVERSATIONS.items()}
        if not own:
            short = {name: text if text is None else sha(text)[:16] for name, text in prompts.items()}
            prompts = {"template": sha(template), "prompts": short}
        found[path.stem] = prompts
    target = TESTS / ("own_prompts.json" if own else "known_prompts.json")
    target.write_text(json.dumps(found, ensure_ascii=False, indent=0 if not own else 1) + "\n", encoding="utf-8")
    print(f"{target}: {len(found)} templates")


if __name__ == "__main__":
    main()
