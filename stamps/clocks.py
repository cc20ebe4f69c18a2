"""python stamps/clocks.py SPEC...  (weight-type:cache-type:context, or with :top-k behind): clocks of a step's phases on a GPU."""
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from time import perf_counter
import numpy as np

sys.path.insert(0, "tests")
NAMES = {0: "hand on", 1: "into", 2: "own there", 3: "attend", 4: "merged (ATTENDED)", 5: "out", 6: "added 0", 7: "hand on 0", 8: "up", 9: "units there", 10: "down", 11: "added 1 / token"}
FIN = {12: "own made", 13: "own sent", 14: "PARTS", 15: "told", 16: "merged there", 17: "whole", 18: "units made"}

def make(spec):
    from lispgpt.compiler.driver import Observer, Request, compile_request
    w, k, entry = spec.split(":")
    over = {"weight-type": w, "cache-type": k}
    a, _ = compile_request(Request(Path("examples/gpt2_generate.lisp"), "cuda", over, entries=[entry]), Observer())
    return a

def main():
    specs = sys.argv[1:]
    def kind(spec):
        return ":".join([*spec.split(":")[:2], "decode-drawn" if spec.count(":") == 3 else "decode-greedy"])

    names = sorted(set(map(kind, specs)))
    with ProcessPoolExecutor(len(names)) as pool:
        made = dict(zip(names, pool.map(make, names)))
    from compiled_models import random_weights
    from lispgpt.runtime.devices.cuda import CudaDevice
    from lispgpt.runtime.session import Session
    from lispgpt.runtime.samplers.weighted import Weighted
    for spec in specs:
        w, k, context, *top = spec.split(":")
        a = made[kind(spec)]
        (e,) = a.plan.entries
        with Session(a, CudaDevice(), random_weights(a, 0.02, 1)) as s:
            found, given = [], {"tokens": [[3]], "positions": [[int(context)]]}
            if top:
                given["sampling"] = [Weighted(0.8, int(top[0]) or None, None, 1).settings(int(context))]
            for _ in range(8):
                s.put(e, given); list(s.repeat(e, "next", 16)); s.put(e, given)
                began = perf_counter(); list(s.repeat(e, "next", 64)); found.append((perf_counter() - began) / 64)
            name = next(arg.buffer for arg in e.launches[0].arguments if arg.buffer.endswith("exchange"))
            words = s.read(name).reshape(-1).view(np.uint32)
        print(spec, "us a token", [f"{x * 1e6:.1f}" for x in sorted(found)][:4], e.remarks)
        # where: the layout's line "clocks" lies behind 128 bytes, sums and seen
        first = (128 + 4 * 8 * 768) // 4
        for block in (0, 5, 40):
            both = words[first + 1024 * block :][:1024].reshape(2, 512).astype(np.int64)
            last = 1 if (np.int32(both[1, 501] - both[0, 501])) > 0 else 0
            now, before = both[last], both[1 - last]
            d = lambda x, y: int(np.int32(np.uint32(x - y & 0xFFFFFFFF)))
            print(f"  block {block}: run {d(now[501], before[501])} clocks; begin (head to layer 0) {d(now[0], before[501])}; of it told {d(before[503], before[501])} chosen {d(now[504], before[503])}")
            layers = now[:240].reshape(12, 20)
            order = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
            print("   layer:", {NAMES[y]: round(float(np.mean([d(row[y], row[x]) for row in layers[1:]]))) for x, y in zip(order, order[1:])},
                  "added 1", round(float(np.mean([d(b[11], c[10]) for c, b in zip(layers, layers[1:])]))), "hand on", round(float(np.mean([d(r[0], r[11]) for r in layers[1:]]))))
            print("   finisher:", {FIN[y]: round(float(np.mean([d(row[y], row[x]) for row in layers[1:]]))) for x, y in ((1, 12), (12, 13), (3, 14), (14, 15), (15, 16), (16, 17), (17, 4), (8, 18), (18, 9))})
            drawn = {name: d(now[y], now[x]) for name, x, y in (("largest", 502, 505), ("floor", 505, 506), ("races", 506, 507), ("left", 507, 508), ("told", 508, 509), ("winner", 509, 510), ("bound", 510, 512), ("listed", 512, 511), ("within", 511, 503))}
            print("   draw:", drawn)
            print("   head: final", d(now[499], now[230]), "norm", d(now[500], now[499]), "multiplied", d(now[501], now[500]), "best", d(now[502], now[501]), "told", d(now[503], now[502]))

main()
