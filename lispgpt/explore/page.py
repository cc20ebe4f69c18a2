"""The page as one file: markup, style and modules of `page/`, and the data behind them."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from lispgpt.explore.distant import without_repeats

PAGE = Path(__file__).with_name("page")
START = "main.js"


def page(data: Mapping[str, Any], streams: Mapping[str, bytes]) -> str:
    """The page's text, which needs nothing else to be shown."""
    text = (PAGE / "index.html").read_text(encoding="utf-8")
    title = f"{Path(data['program']).name} for {data['target']}"
    parts = {
        "title": escape(title),
        "style": (PAGE / "style.css").read_text(encoding="utf-8"),
        "modules": json.dumps({"imports": {f"explore/{path.name}": _url(path) for path in sorted(PAGE.glob("*.js"))}}),
        "start": f'import "explore/{START}";',
        "data": _packed(data, streams),
    }
    for name, part in parts.items():
        text = text.replace(f"{{{{{name}}}}}", part)
    return text


def _url(module: Path) -> str:
    return f"data:text/javascript;base64,{base64.b64encode(module.read_bytes()).decode()}"


def _packed(data: Mapping[str, Any], streams: Mapping[str, bytes]) -> str:
    """The parts one after another without their repeats, behind a line that says their names and lengths, and that of
    the list of repeats."""
    parts = {"data": json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode(errors="replace"), **streams}
    repeats, new = without_repeats(b"".join(parts.values()))
    head = json.dumps([len(repeats), [[name, len(part)] for name, part in parts.items()]]).encode()
    return base64.b64encode(zlib.compress(b"\n".join([head, repeats + new]), 9)).decode()
