"""The language server's state: the files that an editor has open, the newest check of each, and what is published."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer

from lispgpt import __version__
from lispgpt.editor import navigation
from lispgpt.editor.checker import Checked, Checker
from lispgpt.editor.files import File, Files
from lispgpt.editor.positions import Positions
from lispgpt.editor.view import View
from lispgpt.language.forms.modules import LIBRARY

NAME = "lispgpt"


class Server(LanguageServer):
    """checks: the newest check of each file that is open.  nearby: the programs in the editor's folders."""

    def __init__(self) -> None:
        super().__init__(NAME, __version__)
        self.files = Files()
        self.checks: dict[Path, Checked] = {}
        self.versions: dict[Path, tuple[str, int]] = {}
        self.checker = Checker(self._checked)
        self.nearby: dict[Path, None] = {}
        self.loop: asyncio.AbstractEventLoop | None = None

    # ---- what is open

    def opened(self, uri: str) -> None:
        """Take over a file's newest text, show what does not read, and have the rest checked."""
        path = path_of(uri)
        document = self.workspace.get_text_document(uri)
        self.files.opened[path] = File(path, document.source, typed=True, files=self.files)
        self.versions[path] = uri, document.version or 0
        self.show(path)
        self.checker.submit(str(path), document.source)

    def closed(self, uri: str) -> None:
        path = path_of(uri)
        for kept in (self.files.opened, self.checks, self.versions):
            kept.pop(path, None)  # type: ignore[attr-defined]
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    def view(self, uri: str) -> View:
        path = path_of(uri)
        file = self.files.opened.get(path) or self.files.get(path) or File(path, "")
        return View(self.files, file, self.checks.get(path))

    def positions(self, file: File) -> Positions:
        return Positions(file.source, self.workspace.position_encoding or types.PositionEncodingKind.Utf16)

    def look_around(self) -> None:
        """Read the programs of the editor's folders in a thread, for who asks where names are used."""
        folders = [path_of(uri) for uri in self.workspace.folders]
        threading.Thread(target=self._look_around, args=(folders,), daemon=True).start()

    def _look_around(self, folders: list[Path]) -> None:
        for path in programs_in(folders):
            file = self.files.get(path)
            self.nearby[path] = None
            if file is not None and file.index:
                gc.freeze()  # what stays anyway: going through it again and again would take as long as many answers
                time.sleep(0.01)  # what is asked meanwhile comes first

    def at(self, params: Any) -> tuple[View, int]:
        """The file and the place that a request is about."""
        view = self.view(params.text_document.uri)
        return view, self.positions(view.file).offset(params.position)

    # ---- diagnostics

    def _checked(self, name: str, text: str, result: Checked | None) -> None:
        """From the checker's thread."""
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._take, Path(name), result)

    def _take(self, path: Path, result: Checked | None) -> None:
        if result is None or path not in self.versions:
            return
        self.checks[path] = result
        self.show(path)
        capabilities = self.client_capabilities.workspace
        hints = capabilities.inlay_hint if capabilities is not None else None
        if hints is not None and hints.refresh_support:
            self.workspace_inlay_hint_refresh(None)

    def show(self, path: Path) -> None:
        """Publish a file's diagnostics: what does not read now, and what was found when it was checked."""
        uri, version = self.versions[path]
        view = self.view(uri)
        found = [*self._unread(view), *self._found(view)]
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found, version))

    def _unread(self, view: View) -> Iterable[types.Diagnostic]:
        for error in view.file.recovered.errors:
            if error.span is not None:
                where = self.positions(view.file).range(error.span.start, error.span.end)
                yield types.Diagnostic(where, error.message, types.DiagnosticSeverity.Error, source=NAME)

    def _found(self, view: View) -> Iterable[types.Diagnostic]:
        checked = view.checked
        if checked is None:
            return
        moved = {place: place for error in checked.errors for place in (error["start"], error["end"])}
        if checked.text != view.file.text:
            back = View(self.files, view.file, Checked(view.file.text)).checked
            assert back is not None
            to_new = back.as_in(checked.text)
            moved = {place: new for place in moved if (new := to_new(place)) is not None}
        for error in checked.errors:
            if error["start"] in moved and error["end"] in moved:
                where = self.positions(view.file).range(moved[error["start"]], moved[error["end"]])
                around = [self._around(each) for each in error["around"]]
                severity = types.DiagnosticSeverity(error["severity"])
                yield types.Diagnostic(
                    where, error["message"], severity, source=NAME, related_information=[a for a in around if a]
                )

    def _around(self, said: dict[str, Any]) -> types.DiagnosticRelatedInformation | None:
        name = said["file"]
        path = LIBRARY / name.removeprefix("lib/") if name.startswith("lib/") else Path(name)
        if not path.is_file():
            return None
        place = types.Position(said["line"] - 1, 0)
        location = types.Location(uris.from_fs_path(str(path.resolve())) or "", types.Range(place, place))
        return types.DiagnosticRelatedInformation(location, f"expanded from {said['message']}")

    def location(self, place: navigation.Place) -> types.Location:
        known = self.versions.get(place.file.path)
        uri = known[0] if known else uris.from_fs_path(str(place.file.path)) or ""
        return types.Location(uri, self.positions(place.file).range(place.start, place.end))


MOST_FILES, MOST_FOLDERS = 400, 5000
"""Programs of an editor's folders that are looked through for uses of names, and folders that are looked into."""


def programs_in(folders: Iterable[Path]) -> Iterator[Path]:
    """The programs in some folders, those first that lie higher; not those in hidden folders."""
    waiting, found = list(folders), 0
    for folder in waiting:
        try:
            entries = sorted(folder.iterdir())
            inner = [each for each in entries if each.is_dir() and not each.is_symlink()]
        except OSError:
            continue
        waiting += [each for each in inner if each.name[:1] != "." and each.name not in ("node_modules", "__pycache__")]
        for path in entries:
            if path.suffix == ".lisp":
                found += 1
                yield path.resolve()
        if found > MOST_FILES or len(waiting) > MOST_FOLDERS:
            break


def path_of(uri: str) -> Path:
    """The file of a URI; one that is saved nowhere is in the working folder."""
    path = uris.to_fs_path(uri)
    return Path(path).resolve() if path and uri.startswith("file:") else Path.cwd() / "untitled.lisp"
