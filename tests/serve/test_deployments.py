"""The container file, the manifest and the replicas on Ray in examples/ fit the server as it is."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml
from serve.conftest import AUSTEN
from serve.promise import PLACES
from starlette.routing import Route
from starlette.testclient import TestClient

from lispgpt.cli.serve import serve
from lispgpt.serve.app import application
from lispgpt.serve.models import Models

EXAMPLES = AUSTEN.parent.parent


def options(arguments: list[str]) -> dict[str, Any]:
    """What the command makes of its arguments; an error where it knows one of them not."""
    return serve.make_context("serve", arguments).params


def container() -> dict[str, list[str]]:
    lines = (EXAMPLES / "Containerfile").read_text(encoding="utf-8").splitlines()
    found: dict[str, list[str]] = {}
    for line in lines:
        assert re.fullmatch(r"(#.*|(FROM|COPY|RUN|USER|EXPOSE|STOPSIGNAL|ENTRYPOINT|CMD) .+)", line), line
        word, _, rest = line.partition(" ")
        found[word] = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
    return found


def manifest() -> tuple[dict[str, Any], dict[str, Any]]:
    deployment, service = yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text(encoding="utf-8"))
    return deployment, service


def test_a_container_begins_with_a_command_that_serves() -> None:
    found = container()
    assert found["ENTRYPOINT"][:2] == ["lispgpt", "serve"]
    given = options([*found["ENTRYPOINT"][2:], *found["CMD"]])
    assert given["host"] == "0.0.0.0" and [str(given["port"])] == found["EXPOSE"]
    assert given["models"] == (Path("/model"),) and found["STOPSIGNAL"] == ["SIGTERM"]


def test_a_manifest_asks_for_what_the_server_has() -> None:
    deployment, service = manifest()
    spec = deployment["spec"]["template"]["spec"]
    (server,) = spec["containers"]
    given = options([*container()["ENTRYPOINT"][2:], *server["args"]])
    (port,) = server["ports"]
    assert port["containerPort"] == given["port"] and given["grace"] < spec["terminationGracePeriodSeconds"]
    paths = {route.path for route in routes() if isinstance(route, Route)}
    assert {server[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")} <= paths
    template = deployment["spec"]["template"]["metadata"]
    assert template["annotations"]["prometheus.io/path"] in paths
    assert template["annotations"]["prometheus.io/port"] == str(given["port"])
    assert template["labels"] == deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    mounted = {each["name"]: each["mountPath"] for each in server["volumeMounts"]}
    assert mounted.keys() == {volume["name"] for volume in spec["volumes"]}
    assert Path(mounted["model"]) in given["models"]
    assert {"name": "LISPGPT_CACHE", "value": mounted["cache"]} in server["env"]
    assert [str(spec["securityContext"]["runAsUser"])] == container()["USER"]


def routes() -> list[Any]:
    return application(Models({}, 1))._app.routes  # type: ignore[attr-defined]


def test_a_replica_of_the_example_answers(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Without Ray around it."""
    wrapped = SimpleNamespace(options=lambda **_: SimpleNamespace(bind=lambda: None))
    ray = ModuleType("ray")
    ray.serve = SimpleNamespace(  # type: ignore[attr-defined]
        deployment=lambda *_, **__: wrapped, ingress=lambda _: lambda: None
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setenv("MODEL", str(AUSTEN))
    monkeypatch.setenv("PLACES", str(PLACES))
    monkeypatch.setenv("LISPGPT_CACHE", str(cache))
    app = runpy.run_path(str(EXAMPLES / "serve_on_ray.py"))["replica"]()
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert client.get("/health").json()["models"] == {"austen": 0}


ON_RAY = """
import json, sys, urllib.request
import ray
from ray import serve
from serve_on_ray import app
for _ in range(5):  # on a machine that has much else to do
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
        break
    except TimeoutError:
        continue
serve.run(app)
def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    return urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}{path}", data, timeout=120).read()
assert json.loads(ask("/health"))["status"] == "ok"
asked = {"model": "austen", "prompt": "It is a truth", "temperature": 0, "max_tokens": 12}
texts = {json.loads(ask("/v1/completions", asked))["choices"][0]["text"] for _ in range(8)}
lines = ask("/v1/completions", {**asked, "stream": True}).decode().split("\\n\\n")
assert lines[-2:] == ["data: [DONE]", ""], lines
streamed = "".join(json.loads(line[6:])["choices"][0]["text"] for line in lines[:-2])
assert texts == {streamed}, (texts, streamed)
print(json.dumps(streamed))
serve.shutdown()
ray.shutdown()
"""


@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: pip install 'ray[serve]'")
def test_replicas_on_ray_answer_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len((EXAMPLES / "serve_on_ray.py").read_text(encoding="utf-8").splitlines()) <= 40
    monkeypatch.setenv("MODEL", str(AUSTEN))
    monkeypatch.setenv("REPLICAS", "2")
    monkeypatch.setenv("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "200")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(EXAMPLES), *filter(None, [os.environ.get("PYTHONPATH")])]))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = [sys.executable, "-c", ON_RAY, str(port)]
    done = subprocess.run(given, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads(done.stdout.splitlines()[-1])) > 5
