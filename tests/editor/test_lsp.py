"""`lispgpt lsp` as an editor meets it: a real client over a pipe, and gpt2.lisp edited step by step."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

from click.testing import CliRunner
from lsprotocol import types
from pygls.lsp.client import LanguageClient

from lispgpt.cli.main import main_group
from lispgpt.editor.server import Server

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATIENCE = 60.0
SOON = 1.0
"""Seconds for the median answer: ten times what an answer is meant to take, for machines that do much else."""

T = TypeVar("T")


class Editor:
    """An editor with one file open.  took: the seconds of each answer."""

    def __init__(self, path: Path) -> None:
        self.path, self.text, self.version = path, path.read_text(), 1
        self.client = LanguageClient("test", "1")
        self.published: asyncio.Queue[types.PublishDiagnosticsParams] = asyncio.Queue()
        self.took: list[float] = []
        self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda params: self.published.put_nowait(params))

    @property
    def document(self) -> types.TextDocumentIdentifier:
        return types.TextDocumentIdentifier(self.path.as_uri())

    async def start(self) -> types.InitializeResult:
        await self.client.start_io(sys.executable, "-m", "lispgpt", "lsp")
        folder = types.WorkspaceFolder(self.path.parent.as_uri(), "examples")
        asked = types.InitializeParams(types.ClientCapabilities(), workspace_folders=[folder])
        answer = await self.client.initialize_async(asked)
        self.client.initialized(types.InitializedParams())
        item = types.TextDocumentItem(self.path.as_uri(), "lispgpt", 1, self.text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return answer

    async def stop(self) -> None:
        await self.client.shutdown_async(None)
        self.client.exit(None)
        await self.client.stop()

    def position(self, marked: str) -> types.Position:
        """Where the `|` in an excerpt of the text is."""
        before, _, after = marked.partition("|")
        start = self.text.index(before + after) + len(before)
        line = self.text.count("\n", 0, start)
        return types.Position(line, start - self.text.rfind("\n", 0, start) - 1)

    def at(self, marked: str) -> dict[str, Any]:
        return {"text_document": self.document, "position": self.position(marked)}

    def edit(self, before: str, after: str) -> None:
        """Replace a part of the text, as an edit of that part."""
        start = self.position("|" + before)
        self.version += 1
        end = types.Position(start.line, start.character + len(before))
        change = types.TextDocumentContentChangePartial(types.Range(start, end), after)
        self.text = self.text.replace(before, after, 1)
        document = types.VersionedTextDocumentIdentifier(self.version, self.path.as_uri())
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))

    async def answer(self, asked: Awaitable[T]) -> T:
        started = time.monotonic()
        found = await asyncio.wait_for(asked, PATIENCE)
        self.took.append(time.monotonic() - started)
        return found

    async def told(self, part: str) -> types.PublishDiagnosticsParams:
        """The next diagnostics of the newest version that have a message with a part."""
        while True:
            found = await asyncio.wait_for(self.published.get(), PATIENCE)
            if found.version == self.version and any(part in each.message for each in found.diagnostics):
                return found


def test_an_editor_is_answered_while_gpt2_is_edited() -> None:
    asyncio.run(_edit_gpt2())


async def _edit_gpt2() -> None:
    editor = Editor(EXAMPLES / "gpt2.lisp")
    answer = await editor.start()
    assert answer.capabilities.rename_provider and answer.capabilities.inlay_hint_provider
    client = editor.client
    try:
        await _ask_while_it_is_checked(editor)
        await _ask_about_shapes(editor)
        editor.edit("(proj-w l) (proj-b l)", "(fc-w l) (proj-b l)")
        (error,) = (await editor.told("tensor<8x3072xf32> and tensor<768xf32>")).diagnostics
        assert error.severity == types.DiagnosticSeverity.Error and error.related_information
        assert error.range.start.line == editor.position("(fc-w l) (proj|-b l)").line
        editor.edit("(fc-w l) (proj-b l)", "(proj-w l) (proj-b l")
        await editor.told("never closed")
        symbols = await editor.answer(
            client.text_document_document_symbol_async(types.DocumentSymbolParams(editor.document))
        )
        assert {"attend-block", "feed-forward", "logits"} <= {each.name for each in symbols or ()}
        editor.edit("(proj-w l) (proj-b l", "(proj-w l) (proj-b l)")
        await _rename_and_lay_out(editor)
    finally:
        await editor.stop()
    assert sorted(editor.took)[len(editor.took) // 2] < SOON, editor.took


async def _ask_while_it_is_checked(editor: Editor) -> None:
    """What needs no check."""
    client = editor.client
    found = await editor.answer(
        client.text_document_definition_async(types.DefinitionParams(**editor.at("(atten|tion")))
    )
    assert isinstance(found, list | tuple) and "/lispgpt/lib/" in str(found[0].uri)
    found = await editor.answer(
        client.text_document_completion_async(types.CompletionParams(**editor.at("(atten|d-block x l)")))
    )
    names = [item.label for item in found.items]  # type: ignore[union-attr]
    assert names[:2] == ["attend-block", "attend"] and "attention" in names
    context = types.ReferenceContext(include_declaration=False)
    found = await editor.answer(
        client.text_document_references_async(types.ReferenceParams(context, **editor.at("[x| l]\n  (let [qkv")))
    )
    assert found is not None and len(found) == 1
    help_ = await editor.answer(
        client.text_document_signature_help_async(types.SignatureHelpParams(**editor.at("(kv |l) heads (if")))
    )
    assert help_ is not None and help_.signatures[0].label.startswith("(attention qkv cache heads")


async def _ask_about_shapes(editor: Editor) -> None:
    """What the check says."""
    client = editor.client
    said = None
    for _ in range(100):
        said = await editor.answer(client.text_document_hover_async(types.HoverParams(**editor.at("(lin|ear (layer-"))))
        if said is not None and "2304" in said.contents.value:  # type: ignore[union-attr]
            break
        await asyncio.sleep(0.3)
    assert said is not None
    text = said.contents.value  # type: ignore[union-attr]
    assert (
        "(linear x w & bias)" in text and "`[8 2304] f32`" in text and "M operations" in text and "[rows out]" in text
    )
    whole = types.Range(types.Position(0, 0), types.Position(99, 0))
    hints = await editor.answer(client.text_document_inlay_hint_async(types.InlayHintParams(editor.document, whole)))
    shown = {(hint.position.line, str(hint.label)) for hint in hints or ()}
    assert (editor.position("[qkv| (linear").line, "[8 2304] f32") in shown


async def _rename_and_lay_out(editor: Editor) -> None:
    client = editor.client
    edit = await editor.answer(
        client.text_document_rename_async(types.RenameParams(**editor.at("(defn lay|er [x l]"), new_name="block-of"))
    )
    assert edit is not None and edit.changes is not None
    assert len(edit.changes[editor.path.as_uri()]) == 2
    editor.edit("(linear hidden (out-w l)", "(linear  hidden   ( out-w l)")
    options = types.FormattingOptions(2, True)
    edits = await editor.answer(
        client.text_document_formatting_async(types.DocumentFormattingParams(editor.document, options))
    )
    assert edits is not None and [each.new_text for each in edits] == ["    (linear hidden (out-w l) (out-b l))))\n"]


def test_programs_nearby_are_left_out_when_memory_is_looked_through(tmp_path: Path) -> None:
    """A collection that goes through all that was read of them takes as long as many answers, and one has to wait."""
    (tmp_path / "near.lisp").write_text("(defn f [x] x)\n")
    server, before = Server(), gc.get_freeze_count()
    try:
        server._look_around([tmp_path])
        assert list(server.nearby) == [tmp_path / "near.lisp"] and gc.get_freeze_count() > before
    finally:
        gc.unfreeze()
        server.checker.close()


def test_what_is_missing_is_told(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "pygls", None)
    monkeypatch.delitem(sys.modules, "lispgpt.editor.answers", raising=False)
    monkeypatch.delitem(sys.modules, "lispgpt.editor.server", raising=False)
    done = CliRunner().invoke(main_group, ["lsp"], obj={})
    assert "pip install 'lispgpt[lsp]'" in str(done.exception)
