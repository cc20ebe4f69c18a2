"""More programs of research that are unlike each other: recurrences with several states, loops in loops, places known
late, early ends, and numbers of several types."""

from __future__ import annotations

from typing import Any

import numpy as np
from unusual_programs import Arrays, Unusual, softmax


def ctc(x: Any, k: Any) -> Arrays:
    lp = x - np.log(np.exp(x).sum(-1, keepdims=True))
    T = len(x)
    ext = np.array([0, k[0] + 1, 0, k[1] + 1, 0, k[2] + 1, 0])
    S = 7
    a = np.full(S, -np.inf)
    a[0] = lp[0, 0]
    a[1] = lp[0, ext[1]]
    for t in range(1, T):
        b = a.copy()
        for s in range(S):
            v = [a[s]] + ([a[s - 1]] if s else []) + ([a[s - 2]] if s > 1 and ext[s] and ext[s] != ext[s - 2] else [])
            b[s] = np.logaddexp.reduce(v) + lp[t, ext[s]]
        a = b
    return {"loss": -np.logaddexp(a[-1], a[-2])}


def delta(q: Any, k: Any, v: Any, b: Any) -> Arrays:
    k = k / np.sqrt((k**2).sum(-1, keepdims=True) + 1e-6)
    beta = 1 / (1 + np.exp(-b))
    S = np.zeros((3, 4))
    ys = []
    for t in range(6):
        S = S - beta[t] * np.outer(S @ k[t] - v[t], k[t])
        ys.append(S @ q[t])
    y = np.array(ys)
    return {"y": y, "loss": (y**2).sum()}


def beam(t: Any, u: Any) -> Arrays:
    lt = t - np.log(np.exp(t).sum(-1, keepdims=True))
    lu = u - np.log(np.exp(u).sum(-1, keepdims=True))
    guided = 1.5 * lt - 0.5 * lu
    guided = guided - np.log(np.exp(guided).sum(-1, keepdims=True))
    beams: list[tuple[tuple[int, ...], float]] = [((0,), 0.0)]
    for _ in range(5):
        cand = [((*p, n), s + guided[p[-1], n]) for p, s in beams for n in range(6)]
        cand.sort(key=lambda c: -c[1])
        beams = cand[:3]
    return {"best": np.array([s for _, s in beams]), "path": np.array(beams[0][0][1:])}


def mixed(k: Any) -> Arrays:
    a = (k[:4]).astype(np.int16)
    b = (k[:4] - 100).astype(np.int8)
    f = np.ones(4, np.float16)
    d = np.zeros(4, bool)
    n = 0
    for _t in range(20):
        if not n < 9:
            break
        a = (a * np.int16(5) + np.int16(3)).astype(np.int16)
        b = (b + np.int8(7)).astype(np.int8)
        d = d ^ (b > 0)
        f = np.where(d, f * np.float16(2), f).astype(np.float16)
        n += 1
    return {
        "a": a.astype(np.int32),
        "b": b.astype(np.int32),
        "f": f.astype(np.float32),
        "d": d.astype(np.int32),
        "n": np.asarray(n),
    }


def nested(x: Any, w: Any) -> Arrays:
    y = x.copy()
    r = np.ones(3)
    for t in range(4):
        c = np.exp(0.3 * w[t]) + y**2
        r = np.ones(3)
        for _ in range(30):
            if not np.abs(r * r * r - c).max() > 1e-4:
                break
            r = r - (r * r * r - c) / (3 * r * r)
        y = np.tanh(r - 1)
    return {"y": y, "loss": y.sum()}


def dyn(x: Any, w: Any, k: Any) -> Arrays:
    ys = [np.tanh(x[i : i + 3] @ w) for i in k]
    y = np.array(ys)
    buf = np.zeros((9, 2))
    for i, r in zip(k, ys, strict=False):
        buf[i] = r[0] + buf[i] * 0.5
    return {"y": y, "buf": buf, "loss": (y**2).sum() + (buf**3).sum()}


def nucleus(x: Any, v: Any) -> Arrays:
    p = softmax(x)
    y = np.zeros((3, 2))
    for r in range(3):
        o = np.argsort(-p[r], kind="stable")
        c = np.cumsum(p[r][o])
        keep = o[(c - p[r][o]) < 0.7]
        q = np.zeros(8)
        q[keep] = p[r][keep]
        y[r] = (q / q.sum()) @ v
    return {"y": y, "loss": (y**2).sum()}


def vscan(x: Any, w: Any) -> Arrays:
    ys = []
    for r in x:
        h = np.zeros(3)
        best = -np.inf
        for t in r:
            h = np.tanh(w @ h + t)
            best = max(best, h.sum())
        ys.append(np.append(h, best))
    y = np.array(ys)
    return {"y": y, "loss": (y**2).sum()}


def ein(x: Any, y: Any) -> Arrays:
    z = np.einsum("bii,bij,kk->bjk", x, y, x[0])
    return {"z": z, "loss": (z**2).sum()}


def tripl(x: Any) -> Arrays:
    s = np.zeros(3)
    out = []
    for a in x:
        u = s
        for b in a:
            for c in b:
                u = np.tanh(u + c) * 0.9
            out_b = u
            s = s + 0.1 * out_b
        out.append(u)
    y = np.array(out)
    return {"y": y, "s": s, "loss": (y**2).sum() + (s**3).sum()}


PROGRAMS: dict[str, Unusual] = {
    "alignments of a text to sounds": Unusual(
        """(entry e [(x [9 5] f32) (k [3] i32)]
 (let [lp (log-softmax x)
   ext (tensor [s 7] (select (= (mod s 2) 1) (+ 1 (at k (min 2 (quot s 2)))) (cast 0 i32)))
   two (tensor [s 7] (select (and (> s 1) (= (mod s 2) 1)) (select (!= (at ext s) (at ext (max 0 (- s 2)))) 1.0
      0.0) 0.0))
   by (fn [l] (gather l ext 0))
   nothing -1e30
   start (tensor [s 7] (select (< s 2) (at (by (slice lp [0 0] [nil 5])) s) nothing))
   step (fn [a l] (let [one (tensor [s 7] (select (> s 0) (at a (max 0 (- s 1))) nothing))
            skip (tensor [s 7] (select (> (at two s) 0.5) (at a (max 0 (- s 2))) nothing))
            m (max a (max one skip))]
       [(+ (by l) (+ m (log (+ (exp (- a m)) (+ (exp (- one m)) (exp (- skip m))))))) nil]))
   [a _] (scan step start (slice lp [1 0] [8 5]))
   [p q] [(slice a [6] [nil]) (slice a [5] [nil])]
   m (max p q)
   loss (- (+ m (log (+ (exp (- p m)) (exp (- q m))))))
   [gx] (gradients loss [x])]
  {:loss loss :gx gx}))""",
        {"x": (9, 5), "k": (4, (3,))},
        ctc,
        {"gx": ("x", "loss")},
    ),
    "the delta rule": Unusual(
        """(entry e [(q [6 4] f32) (k [6 4] f32) (v [6 3] f32) (b [6] f32)]
 (let [kn (* k (reshape (rsqrt (+ (sum (square k)) 1e-6)) [6 1])) beta (sigmoid b)
   step (fn [s [q k v b]] (let [s (- s (* b (outer (- (contract [i] s [i j] k [j]) v) k)))] [s (contract [i] s
      [i j] q [j])]))
   [_ y] (scan step (full [3 4] 0.0 f32) [q kn v beta] {:chunk 3})
   loss (total (square y)) [gq gk gv gb] (gradients loss [q k v b])]
  {:y y :loss loss :gq gq :gk gk :gv gv :gb gb}))""",
        {"q": (6, 4), "k": (6, 4), "v": (6, 3), "b": (6,)},
        delta,
        {n: (n[1], "loss") for n in ("gq", "gk", "gv", "gb")},
    ),
    "beam search with guidance": Unusual(
        """(entry e [(t [6 6] f32) (u [6 6] f32)]
 (let [g (log-softmax (- (* 1.5 (log-softmax t)) (* 0.5 (log-softmax u))))
   step (fn [[s last] _] (let [all (reshape (+ (reshape s [3 1]) (rows g last)) [1 18]) [best at18] (top-k all 3)
              at18 (reshape at18 [3]) from (quot at18 6) next (mod at18 6)]
      [[(reshape best [3]) next] [from next]]))
   start (tensor [i 3] (select (= i 0) 0.0 -1e30))
   [[s _] [from next]] (scan step [start (full [3] 0 i32)] 5)
   back (fn [b [from next]] [(gather from b 0) (gather next b 0)])
   [_ path] (scan back (full [1] 0 i32) [from next] {:reverse true})]
  {:best s :path (reshape path [5])}))""",
        {"t": (6, 6), "u": (6, 6)},
        beam,
        {},
    ),
    "states of mixed types": Unusual(
        """(entry e [(k [6] i32)]
 (let [k (slice k [0] [4])
   step (fn [[a b f d n] _] (let [a (+ (* a 5) 3) b (+ b 7) d (!= d (> b 0))] [[a b (cast (select d (* f 2.0)
      f) f16) d (+ n 1)] nil]))
   going (fn [[a b f d n]] (< (at (reshape n [1]) 0) 9))
   [[a b f d n] _ steps] (scan step [(cast k i16) (cast (- k 100) i8) (full [4] 1.0 f16) (> k 1000) (full [] 0
      i32)] 20 {:while going})]
  {:a (cast a i32) :b (cast b i32) :f (cast f f32) :d (cast d i32) :n n}))""",
        {"k": (200, (6,))},
        mixed,
        {},
    ),
    "a while loop within a scan": Unusual(
        """(entry e [(x [3] f32) (w [4 3] f32)]
 (let [step (fn [y w] (let [c (+ (exp (* 0.3 w)) (square y))
     newton (fn [r _] [(- r (/ (- (* r r r) c) (* 3.0 r r))) nil])
     off (fn [r] (> (at (reduce max 0.0 (abs (- (* r r r) c)))) 1e-4))
     [r _ _] (scan newton (full [3] 1.0 f32) 30 {:while off})] [(tanh (- r 1.0)) nil]))
   [y _] (scan step x w) loss (total y) [gx gw] (gradients loss [x w])] {:y y :loss loss :gx gx :gw gw}))""",
        {"x": (3,), "w": (4, 3)},
        nested,
        {"gx": ("x", "loss"), "gw": ("w", "loss")},
    ),
    "slices and rows at places known late": Unusual(
        """(entry e [(x [9 4] f32) (w [4 2] f32) (k [5] i32)]
 (let [step (fn [buf i] (let [p (at i) y (tanh (product (slice x [p 0] [3 4]) w))
       row (+ (slice y [0 0] [1 2]) (* 0.5 (slice buf [p 0] [1 2])))] [(insert row buf [p 0] [1 2]) y]))
   [buf y] (scan step (full [9 2] 0.0 f32) k)
   loss (+ (total (square y)) (total (* buf buf buf))) [gx gw] (gradients loss [x w])] {:y y :buf buf :loss
      loss :gx gx :gw gw}))""",
        {"x": (9, 4), "w": (4, 2), "k": (7, (5,))},
        dyn,
        {"gx": ("x", "loss"), "gw": ("w", "loss")},
    ),
    "the likeliest tokens of a share": Unusual(
        """(entry e [(x [3 8] f32) (v [8 2] f32)]
 (let [p (softmax x) [best cols] (top-k p 8) c (- (cumsum best 1) best)
   least (max-along (select (< c 0.7) (- best) -1e30) 1)
   keep (select (>= p (reshape (stop-gradient (- least)) [3 1])) p 0.0) q (/ keep (reshape (sum keep) [3 1]))
   y (product q v) loss (total (square y)) [gx gv] (gradients loss [x v])] {:y y :loss loss :gx gx :gv gv}))""",
        {"x": (3, 8), "v": (8, 2)},
        nucleus,
        {"gx": ("x", "loss"), "gv": ("v", "loss")},
    ),
    "vmap of a scan with a greatest": Unusual(
        """(entry e [(x [4 5 3] f32) (w [3 3] f32)]
 (let [row (fn [r] (let [step (fn [[h best] t] (let [h (tanh (+ (contract [i] w [i j] h [j]) t))] [[h (max best
    (reshape (sum h) [1]))] nil]))
      [[h best] _] (scan step [(full [3] 0.0 f32) (full [1] -1e30 f32)] r)] (join [h best] 0)))
   y (vmap row x) loss (total (square y)) [gx gw] (gradients loss [x w])] {:y y :loss loss :gx gx :gw gw}))""",
        {"x": (4, 5, 3), "w": (3, 3)},
        vscan,
        {"gx": ("x", "loss"), "gw": ("w", "loss")},
    ),
    "products of diagonals": Unusual(
        """(entry e [(x [2 3 3] f32) (y [2 3 4] f32)]
 (let [z (einsum [b j k] x [b i i] y [b i j] (slice x [0 0 0] [nil 3 3]) [k k]) loss (total (square z)) [gx gy]
    (gradients loss [x y])]
  {:z z :loss loss :gx gx :gy gy}))""",
        {"x": (2, 3, 3), "y": (2, 3, 4)},
        ein,
        {"gx": ("x", "loss"), "gy": ("y", "loss")},
    ),
    "three loops in each other": Unusual(
        """(entry e [(x [2 3 4 3] f32)]
 (let [c-step (fn [u c] [(* 0.9 (tanh (+ u c))) nil])
   b-step (fn [[s u] b] (let [u (first (scan c-step u b))] [[(+ s (* 0.1 u)) u] nil]))
   a-step (fn [s a] (let [[s u] (first (scan b-step [s s] a))] [s u]))
   [s y] (scan a-step (full [3] 0.0 f32) x) loss (+ (total (square y)) (total (* s s s))) [gx] (gradients loss [x])]
  {:y y :s s :loss loss :gx gx}))""",
        {"x": (2, 3, 4, 3)},
        tripl,
        {"gx": ("x", "loss")},
    ),
}
