"""PyTorch's side of `lispgpt bench`, in an interpreter that has `torch` and `transformers` (see `peers`).

The model is a Hugging Face folder, or a GPT-2 of given sizes with random weights.  Keys and values are kept in a cache
of fixed size, which a compiled step needs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any


def main() -> None:
    import torch
    import transformers

    given = json.loads(sys.argv[1])
    torch.set_num_threads(given["threads"])
    torch.manual_seed(0)
    peer = Torch(torch, transformers, given)
    mode = "torch.compile" if given["compiled"] else "eager"
    print(json.dumps({"name": f"PyTorch {torch.__version__.partition('+')[0]}, {mode}"}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        found: dict[str, Any]
        try:
            with torch.inference_mode():
                found = {"seconds": peer.seconds(asked)}
        except Exception as error:  # whatever a compiler of another's says
            found = {"failed": str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__}
        print(json.dumps(found), flush=True)


class Torch:
    """given: `model`, a folder or a GPT-2's sizes; `dtype`; `gpu`; `context`; `compiled`."""

    def __init__(self, torch: Any, transformers: Any, given: dict[str, Any]) -> None:
        self.torch, self.transformers, self.context = torch, transformers, given["context"]
        self.device = "cuda" if given["gpu"] else "cpu"
        dtype = {"bf16": torch.bfloat16, "f16": torch.float16}.get(given["dtype"], torch.float32)
        source = given["model"]
        if isinstance(source, str):
            model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=dtype)
        else:
            model = transformers.AutoModelForCausalLM.from_config(transformers.GPT2Config(**source), dtype=dtype)
        self.model, self.vocab = model.to(self.device).eval(), model.config.vocab_size
        self.step: Callable[..., Any] = self._step
        if given["compiled"]:
            self.step = torch.compile(self._step, mode="reduce-overhead" if given["gpu"] else "default")
        self.warm: set[tuple[int, int]] = set()

    def _step(self, ids: Any, places: Any, cache: Any) -> Any:
        """The most probable tokens behind rows of tokens that stand at these places."""
        found = self.model(ids, position_ids=places, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return found.logits[:, -1].argmax(-1, keepdim=True)

    def seconds(self, asked: dict[str, Any]) -> float:
        """Of a prompt of `count` tokens, or of one of `steps` steps of `batch` sequences behind as many tokens."""
        batch, count = asked.get("batch", 1), asked["count"]
        rows = count if asked["what"] == "prompt" else 1
        if (batch, rows) not in self.warm:  # compiled now, and recorded by the runs after that
            self.warm.add((batch, rows))
            for _ in range(3):
                self._measure(asked, batch, count)
        return self._measure(asked, batch, count)

    def _measure(self, asked: dict[str, Any], batch: int, count: int) -> float:
        torch = self.torch
        cache = self.transformers.StaticCache(config=self.model.config, max_cache_len=self.context)
        places = torch.arange(max(count, 1), device=self.device)
        ids = torch.randint(0, self.vocab, (batch, len(places)), device=self.device)
        if asked["what"] == "prompt":
            return self._timed(lambda: self.step(ids, places[None], cache))
        token = self._step(ids, places[None].expand(batch, -1), cache)

        def steps() -> None:
            nonlocal token
            for at in range(asked["steps"]):
                place = torch.full((batch, 1), len(places) + at, device=self.device)
                token = self.step(token.clone(), place, cache)

        return self._timed(steps) / asked["steps"]

    def _timed(self, work: Callable[[], object]) -> float:
        self._wait()
        started = time.perf_counter()
        work()
        self._wait()
        return time.perf_counter() - started

    def _wait(self) -> None:
        if self.device == "cuda":
            self.torch.cuda.synchronize()


if __name__ == "__main__":
    main()
