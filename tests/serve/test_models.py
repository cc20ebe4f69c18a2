"""Models are loaded when they are asked for, leave when others need their room, and do not wait for each other."""

from __future__ import annotations

import threading

from lispgpt.serve.models import Models


def test_several_models_and_the_longest_unused_leaves() -> None:
    closed = []

    class Watched:
        def __init__(self, name: str) -> None:
            self.name, self.users, self.used = name, 0, 0.0

        def close(self) -> None:
            closed.append(self.name)

    models = Models({name: (lambda name=name: Watched(name)) for name in "abc"}, 2)  # type: ignore[misc]
    assert models.begin("d") is None
    first = models.begin("a")
    models.end(models.begin("b"))  # type: ignore[arg-type]
    models.end(models.begin("c"))  # type: ignore[arg-type]
    assert closed == ["b"] and [each.name for each in models.there] == ["a", "c"]
    models.end(first)  # type: ignore[arg-type]
    models.end(models.begin("b"))  # type: ignore[arg-type]
    assert closed == ["b", "a"]
    hold = threading.Event()

    def slowly() -> Watched:
        assert hold.wait(30)
        return Watched("slow")

    both = Models({"quick": lambda: Watched("quick"), "slow": slowly}, 2)  # type: ignore[dict-item, return-value]
    loading = threading.Thread(target=both.begin, args=("slow",))
    quick = both.begin("quick")
    loading.start()
    both.end(quick)  # type: ignore[arg-type]
    assert both.begin("quick") is quick and loading.is_alive()  # what is there goes on while another is loaded
    hold.set()
    loading.join(30)
    assert [each.name for each in both.there] == ["quick", "slow"]
