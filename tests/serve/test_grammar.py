"""What has to be JSON of a schema is, whatever the schema; a hostile one takes neither long nor much memory."""

from __future__ import annotations

import json
import time
from typing import Any

import jsonschema
import numpy as np
import pytest
import seeded
from serve.promise import PLACES, Heard, Request

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.chat.grammar import Grammars
from lispgpt.serve.scheduler import Scheduler


def random_schema(random: np.random.Generator, depth: int = 2) -> dict[str, Any]:
    """A schema whose values are short."""
    kinds = ["integer", "string", "enum", "boolean", "null", "const", "pattern"]
    kinds += ["object", "array", "anyOf"] * 2 if depth else []
    match kinds[random.integers(len(kinds))]:
        case "integer":
            least = int(random.integers(-100, 100))
            return {"type": "integer", "minimum": least, "maximum": least + int(random.integers(0, 1000))}
        case "string":
            least = int(random.integers(0, 4))
            return {"type": "string", "minLength": least, "maxLength": least + int(random.integers(0, 5))}
        case "pattern":
            return {"type": "string", "pattern": ["^[a-c]{2,4}$", "^\\d{3}-\\d{2}$", "^(x|yy)z?$"][random.integers(3)]}
        case "enum":
            return {"enum": [["a", 1, None, "\u00e9\u4e16"], ["x"], [True, 2.5, "a b"]][random.integers(3)]}
        case "const":
            return {"const": [7, "seven", None, False][random.integers(4)]}
        case "object":
            names = ["a", "b c", "\u00e9", "d-1"][: random.integers(1, 5)]
            some = [name for name in names if random.random() < 0.7]
            made = {name: random_schema(random, depth - 1) for name in names}
            return {"type": "object", "properties": made, "required": some, "additionalProperties": False}
        case "array":
            least = int(random.integers(0, 2))
            items = random_schema(random, depth - 1)
            return {"type": "array", "items": items, "minItems": least, "maxItems": least + int(random.integers(0, 3))}
        case "anyOf":
            return {"anyOf": [random_schema(random, depth - 1) for _ in range(2)]}
        case kind:
            return {"type": kind}


def check_schemas(model: lispgpt.Model, count: int) -> None:
    random = seeded.rng()
    schemas = [random_schema(random) for _ in range(count)]
    assert model.tokenizer is not None
    grammars = Grammars(model.tokenizer, 4096)
    scheduler = Scheduler(model, PLACES, count)
    requests = []
    for number, schema in enumerate(schemas):
        options = {"temperature": 1.0, "seed": number, "max_new_tokens": 240}
        requests.append(Request([1, 2, 3], options, grammar=grammars.of_schema(schema)))
    try:
        heard = Heard(scheduler, requests)
        heard.wait()
    finally:
        scheduler.close()
    for said, schema in zip(heard.said, schemas, strict=True):
        assert (said.ended, said.error) == ("end", None), (schema, said.pieces)
        jsonschema.validate(json.loads("".join(said.pieces)), schema)


def test_answers_are_of_their_schemas(model: lispgpt.Model) -> None:
    check_schemas(model, 30)


@pytest.mark.slow
def test_answers_of_five_hundred_schemas_are_of_them(model: lispgpt.Model) -> None:
    check_schemas(model, 500)


def test_hostile_schemas_end_soon(model: lispgpt.Model) -> None:
    assert model.tokenizer is not None
    grammars = Grammars(model.tokenizer, 4096)
    deep: Any = {"type": "string"}
    for _ in range(2000):
        deep = {"type": "array", "items": deep}
    hostile = [
        {"$ref": "#"},
        {"$ref": "#/definitions/none"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "http://127.0.0.1:9/x"},
        {"type": "string", "pattern": "(a+)+" * 2000},
        {"type": "string", "pattern": "(((a{1000}){1000}){1000}){1000}"},
        {"enum": ["x" * 1000] * 90},
        {"allOf": [{"anyOf": [{"const": n} for n in range(50)]}] * 20},
        {"type": "array", "minItems": 10**9, "items": {"type": "integer"}},
        {"type": "string", "maxLength": 10**9, "minLength": 10**8},
        deep,
    ]
    for schema in hostile:
        started = time.process_time()
        try:
            matcher = grammars.of_schema(schema)()
            matcher.allowed()
        except UserError:
            pass
        assert time.process_time() - started < 20, str(schema)[:100]
