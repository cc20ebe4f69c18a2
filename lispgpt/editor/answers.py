"""What editors ask, over the Language Server Protocol on standard input and output, and what they are answered.

Names, hovers and completions are answered from the text at once; types, shapes and the compiler's errors come from
checks in another process (`checker`), the newest that there is.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Callable
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from lispgpt.base.errors import UserError
from lispgpt.base.source import Source
from lispgpt.editor import completion, hover, knowledge, navigation, outline
from lispgpt.editor.layout import format_source
from lispgpt.editor.positions import Positions
from lispgpt.editor.server import Server
from lispgpt.editor.view import View
from lispgpt.language.forms.modules import LIBRARY

_SYMBOL_KINDS = {
    "group": types.SymbolKind.Namespace,
    "function": types.SymbolKind.Function,
    "kernel": types.SymbolKind.Function,
    "schedule": types.SymbolKind.Function,
    "macro": types.SymbolKind.Operator,
    "entry": types.SymbolKind.Method,
    "config": types.SymbolKind.Constant,
    "weight": types.SymbolKind.Field,
    "state": types.SymbolKind.Field,
    "struct": types.SymbolKind.Struct,
}
_COMPLETION_KINDS = {
    "form": types.CompletionItemKind.Keyword,
    "keyword": types.CompletionItemKind.Property,
    "module": types.CompletionItemKind.Module,
    "file": types.CompletionItemKind.File,
    "type": types.CompletionItemKind.TypeParameter,
    "constant": types.CompletionItemKind.Constant,
    "config": types.CompletionItemKind.Constant,
    "weight": types.CompletionItemKind.Field,
    "state": types.CompletionItemKind.Field,
    "op": types.CompletionItemKind.Operator,
    "struct": types.CompletionItemKind.Struct,
    **dict.fromkeys(("function", "library", "macro", "entry", "kernel", "schedule"), types.CompletionItemKind.Function),
}


def start() -> None:
    """Serve one editor until it says goodbye."""
    server = Server()
    knowledge.forms(), knowledge.library()
    for path in LIBRARY.glob("*.lisp"):
        if (library := server.files.get(path)) is not None:
            _ = library.index  # so that nobody waits for it later
    for feature, (answer, options) in ANSWERS.items():
        server.feature(feature, options)(answer)
    try:
        server.start_io()
    finally:
        server.checker.close()


def _initialized(server: Server, params: types.InitializedParams) -> None:
    server.loop = asyncio.get_running_loop()
    server.look_around()


def _opened(server: Server, params: types.DidOpenTextDocumentParams) -> None:
    server.opened(params.text_document.uri)


def _changed(server: Server, params: types.DidChangeTextDocumentParams) -> None:
    server.opened(params.text_document.uri)


def _saved(server: Server, params: types.DidSaveTextDocumentParams) -> None:
    """Others may require what was saved."""
    for path, file in server.files.opened.items():
        server.checker.submit(str(path), file.text)


def _closed(server: Server, params: types.DidCloseTextDocumentParams) -> None:
    server.closed(params.text_document.uri)


def _hover(server: Server, params: types.HoverParams) -> types.Hover | None:
    view, offset = server.at(params)
    found = hover.hover(view, offset)
    if found is None:
        return None
    text, start, end = found
    content = types.MarkupContent(types.MarkupKind.Markdown, text)
    return types.Hover(content, server.positions(view.file).range(start, end))


def _definition(server: Server, params: types.DefinitionParams) -> list[types.Location]:
    return [server.location(place) for place in navigation.definition(*server.at(params))]


def _references(server: Server, params: types.ReferenceParams) -> list[types.Location]:
    view, offset = server.at(params)
    found = navigation.references(view, offset, server.nearby)
    if not params.context.include_declaration:
        own = {(p.file.path, p.start) for p in navigation.definition(view, offset)}
        found = [place for place in found if (place.file.path, place.start) not in own]
    return [server.location(place) for place in found]


def _highlight(server: Server, params: types.DocumentHighlightParams) -> list[types.DocumentHighlight]:
    view, offset = server.at(params)
    places = navigation.references(view, offset, ())
    here = server.positions(view.file)
    return [types.DocumentHighlight(here.range(p.start, p.end)) for p in places if p.file.path == view.file.path]


def _prepare_rename(server: Server, params: types.PrepareRenameParams) -> types.Range:
    view, offset = server.at(params)
    use, meaning = _or_refuse(lambda: navigation.renamable(view, offset))
    return server.positions(view.file).range(use.end - len(meaning.definition.name), use.end)


def _rename(server: Server, params: types.RenameParams) -> types.WorkspaceEdit:
    view, offset = server.at(params)
    places = _or_refuse(lambda: navigation.renamed(view, offset, params.new_name, server.nearby))
    changes: dict[str, list[types.TextEdit]] = {}
    for location in map(server.location, places):
        changes.setdefault(location.uri, []).append(types.TextEdit(location.range, params.new_name))
    return types.WorkspaceEdit(changes)


def _or_refuse(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except UserError as error:
        raise JsonRpcInvalidParams(error.message) from None


MOST = 100
"""Completions of one answer; with more letters typed, editors ask again."""


def _completion(server: Server, params: types.CompletionParams) -> types.CompletionList:
    view, offset = server.at(params)
    found, start = completion.completions(view, offset)
    positions = server.positions(view.file)
    where = positions.range(start, offset)
    items = [_item(view, positions, each, number, where) for number, each in enumerate(found[:MOST])]
    return types.CompletionList(is_incomplete=len(found) > MOST, items=items)


def _item(
    view: View, positions: Positions, each: completion.Candidate, number: int, where: types.Range
) -> types.CompletionItem:
    return types.CompletionItem(
        each.name,
        kind=_COMPLETION_KINDS.get(each.kind, types.CompletionItemKind.Variable),
        detail=each.detail or None,
        sort_text=f"{number:04}",
        filter_text=each.name,
        text_edit=types.TextEdit(where, each.name),
        additional_text_edits=[_requiring(view, positions, each.library)] if each.requires else None,
        data={"name": each.name, "library": each.library},
    )


def _resolved(server: Server, params: types.CompletionItem) -> types.CompletionItem:
    """A completion with what the reference says of it."""
    data = params.data if isinstance(params.data, dict) else {}
    text = completion.explained(str(data.get("name", "")), str(data.get("library", "")))
    params.documentation = types.MarkupContent(types.MarkupKind.Markdown, text) if text else None
    return params


def _requiring(view: View, positions: Positions, library: str) -> types.TextEdit:
    """Have a file require a library: behind what it requires, or before its first form."""
    known = view.file.index.required
    if known and known[-1].alias is None:
        end = known[-1].form.span.end
        return types.TextEdit(positions.range(end, end), f" {library}")
    first = next((form.span.start for form in view.file.recovered.forms), 0)
    return types.TextEdit(positions.range(first, first), f"(require {library})\n")


def _signature(server: Server, params: types.SignatureHelpParams) -> types.SignatureHelp | None:
    found = completion.signature(*server.at(params))
    if found is None:
        return None
    parameters = [types.ParameterInformation(name) for name in found.parameters]
    text = types.MarkupContent(types.MarkupKind.Markdown, found.text) if found.text else None
    information = types.SignatureInformation(found.label, text, parameters, found.active)
    return types.SignatureHelp([information], 0, found.active)


def _formatting(server: Server, params: types.DocumentFormattingParams) -> list[types.TextEdit]:
    """The lines that the layout changes; none while the text does not read."""
    view = server.view(params.text_document.uri)
    before = view.file.text
    try:
        after = format_source(Source(view.file.path.name, before))
    except (UserError, RecursionError):
        return []
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    starts = [0]
    for line in old:
        starts.append(starts[-1] + len(line))
    positions = server.positions(view.file)
    steps = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [
        types.TextEdit(positions.range(starts[a], starts[b]), "".join(new[c:d]))
        for step, a, b, c, d in steps
        if step != "equal"
    ]


def _inlays(server: Server, params: types.InlayHintParams) -> list[types.InlayHint]:
    view = server.view(params.text_document.uri)
    positions = server.positions(view.file)
    found = outline.shapes(view, positions.offset(params.range.start), positions.offset(params.range.end))
    kind = types.InlayHintKind.Type
    return [types.InlayHint(positions.position(place), shape, kind, padding_left=True) for place, shape in found]


def _symbols(server: Server, params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
    view = server.view(params.text_document.uri)
    positions = server.positions(view.file)

    def symbol(item: outline.Item) -> types.DocumentSymbol:
        return types.DocumentSymbol(
            item.name,
            _SYMBOL_KINDS.get(item.kind, types.SymbolKind.Variable),
            positions.range(item.start, item.end),
            positions.range(item.name_start, item.name_end),
            item.detail,
            children=[symbol(child) for child in item.children],
        )

    return [symbol(item) for item in outline.outline(view.file)]


ANSWERS: dict[str, tuple[Callable[..., Any], Any]] = {
    types.INITIALIZED: (_initialized, None),
    types.TEXT_DOCUMENT_DID_OPEN: (_opened, None),
    types.TEXT_DOCUMENT_DID_CHANGE: (_changed, None),
    types.TEXT_DOCUMENT_DID_SAVE: (_saved, None),
    types.TEXT_DOCUMENT_DID_CLOSE: (_closed, None),
    types.TEXT_DOCUMENT_HOVER: (_hover, None),
    types.TEXT_DOCUMENT_DEFINITION: (_definition, None),
    types.TEXT_DOCUMENT_REFERENCES: (_references, None),
    types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT: (_highlight, None),
    types.TEXT_DOCUMENT_PREPARE_RENAME: (_prepare_rename, None),
    types.TEXT_DOCUMENT_RENAME: (_rename, None),
    types.TEXT_DOCUMENT_COMPLETION: (
        _completion,
        types.CompletionOptions(trigger_characters=["(", ":", "."], resolve_provider=True),
    ),
    types.COMPLETION_ITEM_RESOLVE: (_resolved, None),
    types.TEXT_DOCUMENT_SIGNATURE_HELP: (_signature, types.SignatureHelpOptions(trigger_characters=[" ", "("])),
    types.TEXT_DOCUMENT_FORMATTING: (_formatting, None),
    types.TEXT_DOCUMENT_INLAY_HINT: (_inlays, None),
    types.TEXT_DOCUMENT_DOCUMENT_SYMBOL: (_symbols, None),
}
