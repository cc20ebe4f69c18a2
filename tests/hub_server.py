"""A stand-in for the Hugging Face hub on 127.0.0.1: as much of its HTTP as fetching a model takes."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote


@dataclass
class Hub:
    """repos: files by revision, by the repository's name.  token: who may see `private` ones.  large: files from so
    many bytes on lie elsewhere, where a redirect points.  breaks: how many of their transfers break in the middle.
    asked: (method, path, range) of each request."""

    repos: dict[str, dict[str, Mapping[str, bytes]]] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    token: str = "hf_secret"
    large: int = 10_000
    breaks: int = 0
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    url: str = ""
    elsewhere: str = ""

    def commit(self, name: str, revision: str) -> str:
        return hashlib.sha1(json.dumps(sorted(map(str, self.repos[name][revision].items()))).encode()).hexdigest()

    def files(self, name: str, revision: str) -> Mapping[str, bytes] | None:
        revisions = self.repos.get(name, {})
        commits = {self.commit(name, each): each for each in revisions}
        return revisions.get(commits.get(revision, revision))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        return

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        self.hub.asked.append((self.command, path, self.headers.get("Range", "")))
        if found := re.fullmatch(r"/cdn/(\w+)", path):
            self._elsewhere(found[1])
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?(?:/)?", path):
            self._about(found[1], found[2], found[3] or "main")
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._file(*found.groups())
        else:
            self._say(404, b"", {})

    def _allowed(self, name: str) -> bool:
        if name in self.hub.repos and (
            name not in self.hub.private or self.headers.get("Authorization") == f"Bearer {self.hub.token}"
        ):
            return True
        self._say(401, b"{}", {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Invalid username or password."})
        return False

    def _about(self, name: str, kind: str | None, revision: str) -> None:
        if not self._allowed(name):
            return
        files = self.hub.files(name, revision)
        if files is None:
            self._say(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif kind == "tree":
            listed = [
                {"type": "file", "path": n, "size": len(d), "oid": _sha1(d), **_lfs(d, self.hub)}
                for n, d in files.items()
            ]
            self._say(200, json.dumps(listed).encode(), {"Content-Type": "application/json"})
        else:
            known = self.hub.commit(name, revision) if revision in self.hub.repos[name] else revision
            about = {"id": name, "modelId": name, "sha": known, "siblings": [{"rfilename": n} for n in files]}
            self._say(200, json.dumps(about).encode(), {"Content-Type": "application/json"})

    def _file(self, name: str, revision: str, file: str) -> None:
        if not self._allowed(name):
            return
        files = self.hub.files(name, revision)
        commit = self.hub.commit(name, revision) if revision in self.hub.repos[name] else revision
        if files is None or file not in files:
            self._say(404, b"", {"X-Error-Code": "RevisionNotFound" if files is None else "EntryNotFound"})
            return
        data, about = files[file], {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if len(data) < self.hub.large:
            self._say(200, data, {**about, "ETag": f'"{_sha1(data)}"'})
        else:
            sha = hashlib.sha256(data).hexdigest()
            about |= {
                "X-Linked-ETag": f'"{sha}"',
                "X-Linked-Size": str(len(data)),
                "Location": f"{self.hub.elsewhere}/cdn/{sha}",
            }
            self._say(302, b"", about)

    def _elsewhere(self, sha: str) -> None:
        every = (d for revisions in self.hub.repos.values() for files in revisions.values() for d in files.values())
        data = next(d for d in every if hashlib.sha256(d).hexdigest() == sha)
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        about = {"ETag": f'"{sha}"', "Accept-Ranges": "bytes"}
        if asked:
            about["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        part = data[start:]
        if self.command == "GET" and self.hub.breaks:
            self.hub.breaks -= 1
            self._say(206 if asked else 200, part[: len(part) // 2], about, len(part))
            self.close_connection = True
        else:
            self._say(206 if asked else 200, part, about)

    def _say(self, status: int, body: bytes, headers: Mapping[str, str], length: int | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _lfs(data: bytes, hub: Hub) -> dict[str, object]:
    large = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    return {"lfs": large} if len(data) >= hub.large else {}


@contextmanager
def hub_server() -> Iterator[Hub]:
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    hub.elsewhere = hub.url.replace("127.0.0.1", "localhost")  # another host, as the hub's own is
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
