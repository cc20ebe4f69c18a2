"""python stamps/times.py SPEC... (weight-type:cache-type:context[:top-k][@texts]): us a step of one launch, on a GPU.
Runs in the tree on PYTHONPATH, so that trees can be compared."""
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from time import perf_counter
import lispgpt
ROOT = Path(lispgpt.__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

def kind(spec):
    head, _, texts = spec.partition("@")
    w, k, _, *top = head.split(":")
    return w, k, "decode-drawn" if top else "decode-greedy", int(texts or 1)

def make(key):
    from lispgpt.compiler.driver import Observer, Request, compile_request
    w, k, entry, texts = key
    over = {"weight-type": w, "cache-type": k}
    request = Request(ROOT / "examples/gpt2_generate.lisp", "cuda", over, batch=texts, entries=[entry])
    return compile_request(request, Observer())[0]

def main():
    specs = sys.argv[1:]
    keys = sorted(set(map(kind, specs)))
    with ProcessPoolExecutor(min(14, len(keys))) as pool:
        made = dict(zip(keys, pool.map(make, keys)))
    from compiled_models import random_weights
    from lispgpt.runtime.devices.cuda import CudaDevice
    from lispgpt.runtime.samplers.weighted import Weighted
    from lispgpt.runtime.session import Session
    for key in keys:
        a = made[key]
        (e,) = a.plan.entries
        with Session(a, CudaDevice(), random_weights(a, 0.02, 1)) as s:
            for spec in (x for x in specs if kind(x) == key):
                head, _, _ = spec.partition("@")
                _, _, context, *top = head.split(":")
                n = key[3]
                given = {"tokens": [[3]] * n, "positions": [[int(context)]] * n}
                if top:
                    given["sampling"] = [Weighted(0.8, int(top[0]) or None, None, 1).settings(int(context))] * n
                found, tokens = [], []
                for _ in range(9):
                    s.put(e, given)
                    began = perf_counter()
                    tokens.append([int(x.reshape(-1)[0]) for x in s.repeat(e, "next", 64)])
                    found.append((perf_counter() - began) / 64 * 1e6)
                found.sort()
                print(f"{spec:24} {found[0]:7.1f} {found[4]:7.1f} us  same {all(t == tokens[0] for t in tokens)} {len(e.launches)} launches", flush=True)

main()
