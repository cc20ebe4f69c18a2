"""What /v1/embeddings gives: a vector of each text."""

from __future__ import annotations

import base64
from typing import Any

from lispgpt.api import Model
from lispgpt.serve.requests import BadRequest, Body, prompts

FORMATS, POOLINGS = ("float", "base64"), ("last", "mean")


class Embeddings:
    """What a request wants: {"input", "encoding_format", "pooling"}."""

    def __init__(self, body: Body) -> None:
        self._inputs = prompts(body.get("input"), "input")
        self._format, self._pooling = body.one_of("encoding_format", FORMATS), body.one_of("pooling", POOLINGS)
        if body.get("dimensions") is not None:
            raise BadRequest("a model's embeddings have as many dimensions as it is wide", "dimensions")

    def of(self, model: Model, adapter: int = 0) -> tuple[list[dict[str, Any]], int]:
        """The vectors, and of how many tokens they are; UserError for a text that is longer than the context."""
        texts = [model.prompt(each) for each in self._inputs]
        vectors = [model.embedding(text, self._pooling, adapter).astype("<f4") for text in texts]
        told = [
            base64.b64encode(vector.tobytes()).decode() if self._format == "base64" else vector.tolist()
            for vector in vectors
        ]
        found = [{"object": "embedding", "index": n, "embedding": vector} for n, vector in enumerate(told)]
        return found, sum(map(len, texts))
