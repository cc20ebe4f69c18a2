"""Programs of research that are unlike each other, each with its inputs, numpy's float64 function of them, and which
results are gradients of which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
HEADER = """(require nn arrays gradients kernels algebra transforms training convolutions)
(defn total [x] (sum (reshape x [(fold * 1 (shape x))])))
"""


@dataclass(frozen=True)
class Unusual:
    """text: an entry `e`.  shapes: of inputs of normal numbers, and (end, shape) of whole ones.  right: the results by
    their names.  gradients: for results, the input and the result (the loss) that they are slopes of."""

    text: str
    shapes: dict[str, Any]
    right: Callable[..., Arrays]
    gradients: dict[str, tuple[str, str]]

    def given(self, rng: np.random.Generator) -> Arrays:
        made: Arrays = {}
        for name, shape in self.shapes.items():
            if shape and isinstance(shape[-1], tuple):
                made[name] = rng.integers(0, shape[0], shape[1]).astype(np.int32)
            else:
                made[name] = np.asarray(rng.standard_normal(shape), np.float32)
        return made

    def problem(self, found: Arrays, given: Arrays, rng: np.random.Generator) -> str:
        exact = {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in given.items()}
        for name, right in self.right(**exact).items():
            off = np.abs(found[name] - right).max() / max(1.0, np.abs(right).max())
            if not off < 1e-4:
                return f"{name} is off by {off}"
        for name, (moved, loss) in self.gradients.items():
            along = rng.standard_normal(exact[moved].shape)
            ends = [self.right(**{**exact, moved: exact[moved] + sign * 1e-6 * along})[loss] for sign in (1, -1)]
            slope, by_gradient = (ends[0] - ends[1]) / 2e-6, (found[name] * along).sum()
            if not abs(slope - by_gradient) < 2e-3 * max(1.0, np.linalg.norm(found[name]) * np.linalg.norm(along)):
                return f"{name}: a slope of {by_gradient} should be {slope}"
        return ""


def softmax(x: np.ndarray) -> np.ndarray:
    power = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(power / power.sum(-1, keepdims=True))


def mixture_of_depths(x: Any, r: Any, w: Any) -> Arrays:
    scores, y = x @ r, x.copy()
    chosen = np.argsort(-scores)[:3]
    y[chosen] += np.tanh(x[chosen] @ w.T) * scores[chosen][:, None]
    return {"y": y, "loss": (y**2).sum()}


def kalman(ys: Any, a: Any, q: Any, r: Any) -> Arrays:
    seen = np.array([[1.0, 0.5]])
    m, s, loss = np.zeros(2), np.eye(2), 0.0
    for y in ys:
        m, s = 0.5 * a @ m, 0.25 * a @ s @ a.T + np.exp(q) * np.eye(2)
        off, spread = y - seen @ m, seen @ s @ seen.T + np.exp(r)
        gain = s @ seen.T / spread
        m, s = m + (gain * off).ravel(), s - gain @ seen @ s
        loss += 0.5 * (np.log(spread) + off**2 / spread).sum()
    return {"m": m, "s": s, "loss": np.asarray(loss)}


def graph(x: Any, w: Any, source: Any, target: Any) -> Arrays:
    for _ in range(3):
        said, heard = np.maximum(np.concatenate([x[source], x[target]], 1) @ w.T, 0), np.zeros((6, 4))
        np.add.at(heard, target, said)
        x = np.tanh(x + heard / np.maximum(np.bincount(target, minlength=6), 1)[:, None])
    return {"y": x, "loss": (x**3).sum()}


def policy(s: Any, w: Any, v: Any) -> Arrays:
    gain = np.zeros(4)
    for _ in range(15):
        force = np.tanh(np.stack([np.sin(s[:, 0]), np.cos(s[:, 0]), s[:, 1]], 1) @ w.T) @ v
        speed = np.clip(s[:, 1] + 0.05 * (9.8 * np.sin(s[:, 0]) + 3 * force), -2, 2)
        angle = s[:, 0] + 0.05 * speed
        s = np.stack([angle, speed], 1)
        gain = gain - (1 - np.cos(angle) + 0.1 * speed**2 + 0.001 * force**2)
    return {"s": s, "loss": -gain.mean()}


def experts(x: Any, r: Any, w: Any) -> Arrays:
    p = softmax(x @ r.T)
    taken, y = [0] * 3, np.zeros_like(x)
    for n, e in enumerate(p.argmax(1)):
        if taken[e] < 2:
            y[n] = np.tanh(w[e] @ x[n]) * p[n, e]
        taken[e] += 1
    return {"y": y, "loss": (y**2).sum()}


def transducer(b: Any, k: Any) -> Arrays:
    b, k = -np.abs(b), -np.abs(k)
    ways = np.full((5, 4), -np.inf)
    ways[0, 0] = 0
    for t in range(5):
        for u in range(4):
            before = [ways[0, 0]] if t == u == 0 else []
            before += [ways[t - 1, u] + b[t - 1, u]] if t else []
            before += [ways[t, u - 1] + k[t, u - 1]] if u else []
            ways[t, u] = np.logaddexp.reduce(before)
    return {"loss": -(ways[-1, -1] + b[-1, -1])}


def sparse(q: Any, k: Any, v: Any) -> Arrays:
    s = q @ k.T / 2
    y = softmax(np.where(s >= -np.sort(-s, 1)[:, 2:3], s, -1e30)) @ v
    return {"y": y, "loss": (y**2).sum()}


def meta(w: Any, x: Any, y: Any, x2: Any, y2: Any) -> Arrays:
    later = w - 0.1 * 2 * x.T @ (x @ w - y) / 4
    return {"loss": ((x2 @ later - y2) ** 2).mean()}


def penalty(x: Any, w: Any, v: Any) -> Arrays:
    slopes = (1 - np.tanh(x @ w.T) ** 2) * v @ w
    return {"loss": ((np.sqrt((slopes**2).sum(1) + 1e-6) - 1) ** 2).mean()}


def viterbi(s: Any, t: Any) -> Arrays:
    d, back = s[0], []
    for x in s[1:]:
        back.append((d[:, None] + t).argmax(0))
        d = (d[:, None] + t).max(0) + x
    path = [int(d.argmax())]
    for b in back[::-1]:
        path.append(int(b[path[-1]]))
    return {"path": np.array(path[::-1]), "best": d.max()}


def settled(a: Any, b: Any) -> Arrays:
    a, x, n = a @ a.T * 0.2 + np.eye(4), np.zeros(4), 0
    while np.abs(a @ x - b).max() > 1e-3 and n < 200:
        x, n = x - 0.1 * (a @ x - b), n + 1
    return {"x": x}


def sinkhorn(c: Any, k: Any) -> Arrays:
    u, v = np.zeros(5), np.zeros(6)
    for _ in range(10):
        u = -np.logaddexp.reduce(-c + v, axis=1)
        v = -np.logaddexp.reduce(-c + u[:, None], axis=0)
    p = np.exp(-c + u[:, None] + v)
    return {"p": p, "loss": (p * k).sum()}


PROGRAMS: dict[str, Unusual] = {
    "mixture of depths": Unusual(
        """(entry e [(x [6 4] f32) (r [4] f32) (w [4 4] f32)]
  (let [s (contract [n] x [n k] r [k])
        ids (reshape (nth (top-k (reshape s [1 6]) 3) 1) [3])
        out (* (tanh (matmul-transposed (rows x ids) w)) (reshape (gather s ids 0) [3 1]))
        y (scatter-add x out ids)
        loss (total (square y))
        [gx gr gw] (gradients loss [x r w])]
    {:y y :loss loss :gx gx :gr gr :gw gw}))""",
        {"x": (6, 4), "r": (4,), "w": (4, 4)},
        mixture_of_depths,
        {"gx": ("x", "loss"), "gr": ("r", "loss"), "gw": ("w", "loss")},
    ),
    "kalman filter": Unusual(
        """(entry e [(ys [7 1] f32) (a [2 2] f32) (q [] f32) (r [] f32)]
  (let [h (insert (full [1 1] 0.5 f32) (full [1 2] 1.0 f32) [0 1] [1 1])
        half (* 0.5 a)
        step (fn [[m s loss] y]
               (let [m (product half m)
                     s (+ (product half (product s (transposed half))) (* (exp q) (identity-matrix 2)))
                     off (- (reshape y [1 1]) (product h m))
                     spread (+ (product h (product s (transposed h))) (exp r))
                     gain (/ (product s (transposed h)) spread)]
                 [[(+ m (* gain off)) (- s (product gain (product h s)))
                   (+ loss (total (+ (log spread) (/ (square off) spread))))] nil]))
        [[m s loss] _] (scan step [(full [2 1] 0.0 f32) (identity-matrix 2) (full [] 0.0 f32)] ys)
        loss (* 0.5 loss)
        [ga gq gr] (gradients loss [a q r])]
    {:m (reshape m [2]) :s s :loss loss :ga ga :gq gq :gr gr}))""",
        {"ys": (7, 1), "a": (2, 2), "q": (), "r": ()},
        kalman,
        {"ga": ("a", "loss"), "gq": ("q", "loss"), "gr": ("r", "loss")},
    ),
    "graph network": Unusual(
        """(entry e [(x [6 4] f32) (w [4 8] f32) (source [11] i32) (target [11] i32)]
  (let [count (reshape (max (bincount target 6) 1.0) [6 1])
        y (over [k 0 3 1] [y x]
            (let [said (relu (matmul-transposed (join [(rows y source) (rows y target)] 1) w))]
              (tanh (+ y (/ (segment-sum said target 6) count)))))
        loss (total (* y y y))
        [gx gw] (gradients loss [x w])]
    {:y y :loss loss :gx gx :gw gw}))""",
        {"x": (6, 4), "w": (4, 8), "source": (6, (11,)), "target": (6, (11,))},
        graph,
        {"gx": ("x", "loss"), "gw": ("w", "loss")},
    ),
    "a policy through its environment": Unusual(
        """(entry e [(s [4 2] f32) (w [5 3] f32) (v [5] f32)]
  (let [step (fn [[s gain] _]
               (let [[angle speed] (map (fn [x] (reshape x [4])) (split s [1 1] 1))
                     seen (stack [(sin angle) (cos angle) speed] 1)
                     force (contract [n] (tanh (matmul-transposed seen w)) [n k] v [k])
                     speed (max -2.0 (min 2.0 (+ speed (* 0.05 (+ (* 9.8 (sin angle)) (* 3.0 force))))))
                     angle (+ angle (* 0.05 speed))]
                 [[(stack [angle speed] 1)
                   (- gain (+ (- 1.0 (cos angle)) (* 0.1 speed speed) (* 0.001 force force)))] nil]))
        [[s gain] _] (scan step [s (full [4] 0.0 f32)] 15)
        loss (- (mean gain 0))
        [gw gv] (gradients loss [w v])]
    {:s s :loss loss :gw gw :gv gv}))""",
        {"s": (4, 2), "w": (5, 3), "v": (5,)},
        policy,
        {"gw": ("w", "loss"), "gv": ("v", "loss")},
    ),
    "experts of a capacity": Unusual(
        """(entry e [(x [8 4] f32) (r [3 4] f32) (w [3 4 4] f32)]
  (let [p (softmax (matmul-transposed x r)) expert (argmax p) hot (one-hot expert 3)
        place (sum (* hot (- (cumsum hot 0) 1.0)))
        keep (select (< place 2.0) 1.0 0.0)
        into (+ (* 2 expert) (min (cast place i32) 1))
        held (reshape (segment-sum (* x (reshape keep [8 1])) into 6) [3 2 4])
        out (tanh (contract [e c o] held [e c i] w [e o i]))
        y (* (rows (reshape out [6 4]) into) (reshape (* keep (sum (* hot p))) [8 1]))
        loss (total (square y))
        [gx gr gw] (gradients loss [x r w])]
    {:y y :loss loss :gx gx :gr gr :gw gw}))""",
        {"x": (8, 4), "r": (3, 4), "w": (3, 4, 4)},
        experts,
        {"gx": ("x", "loss"), "gr": ("r", "loss"), "gw": ("w", "loss")},
    ),
    "a transducer's loss": Unusual(
        """(defn add-logs [a b] (let [m (max a b)] (+ m (log (+ (exp (- a m)) (exp (- b m)))))))
(entry e [(b [5 4] f32) (k [5 4] f32)]
  (let [[silent said] [(- (abs b)) (- (abs k))]
        nothing (full [] -1e30 f32)
        zero (full [] 0.0 f32)
        start (nth (scan (fn [a x] [(+ a x) a]) zero (slice said [0 0] [nil 4])) 1)
        step (fn [[a said] [down x]] (let [a (add-logs down (+ a said))] [[a x] a]))
        row (fn [before [blank said]] [(nth (scan step [nothing zero] [(+ before blank) said]) 1) nil])
        [ways _] (scan row start [(slice silent [0 0] [4 4]) (slice said [1 0] [4 4])])
        loss (- (+ (slice ways [3] [nil]) (slice silent [4 3] [nil nil])))
        [gb gk] (gradients loss [b k])]
    {:loss loss :gb gb :gk gk}))""",
        {"b": (5, 4), "k": (5, 4)},
        transducer,
        {"gb": ("b", "loss"), "gk": ("k", "loss")},
    ),
    "attention to the best keys": Unusual(
        """(entry e [(q [6 4] f32) (k [9 4] f32) (v [9 4] f32)]
  (let [s (* 0.5 (matmul-transposed q k))
        least (stop-gradient (slice (first (top-k s 3)) [0 2] [6 1]))
        y (product (softmax (select (>= s least) s -1e30)) v)
        loss (total (square y))
        [gq gk gv] (gradients loss [q k v])]
    {:y y :loss loss :gq gq :gk gk :gv gv}))""",
        {"q": (6, 4), "k": (9, 4), "v": (9, 4)},
        sparse,
        {"gq": ("q", "loss"), "gk": ("k", "loss"), "gv": ("v", "loss")},
    ),
    "learning to learn": Unusual(
        """(entry e [(w [3] f32) (x [4 3] f32) (y [4] f32) (x2 [5 3] f32) (y2 [5] f32)]
  (let [off (fn [w x y] (mean (square (- (contract [n] x [n k] w [k]) y)) 0))
        [g] (gradients (off w x y) [w])
        loss (off (- w (* 0.1 g)) x2 y2)
        [gw] (gradients loss [w])]
    {:loss loss :gw gw}))""",
        {"w": (3,), "x": (4, 3), "y": (4,), "x2": (5, 3), "y2": (5,)},
        meta,
        {"gw": ("w", "loss")},
    ),
    "a penalty on slopes": Unusual(
        """(entry e [(x [4 3] f32) (w [5 3] f32) (v [5] f32)]
  (let [[slopes] (gradients (total (contract [n] (tanh (matmul-transposed x w)) [n k] v [k])) [x])
        loss (mean (square (- (sqrt (+ (sum (square slopes)) 1e-6)) 1.0)) 0)
        [gw gv] (gradients loss [w v])]
    {:loss loss :gw gw :gv gv}))""",
        {"x": (4, 3), "w": (5, 3), "v": (5,)},
        penalty,
        {"gw": ("w", "loss"), "gv": ("v", "loss")},
    ),
    "the most probable path": Unusual(
        """(entry e [(s [7 4] f32) (t [4 4] f32)]
  (let [step (fn [d x] (let [m (+ (reshape d [4 1]) t)] [(+ (max-along m 0) x) (argmax (transposed m))]))
        [d back] (scan step (slice s [0 0] [nil 4]) (slice s [1 0] [6 4]))
        last (argmax (reshape d [1 4]))
        [_ path] (scan (fn [place b] (let [place (gather b place 0)] [place place])) last back {:reverse true})]
    {:path (join [(reshape path [6]) last] 0) :best (maximum d)}))""",
        {"s": (7, 4), "t": (4, 4)},
        viterbi,
        {},
    ),
    "until it settles": Unusual(
        """(entry e [(a [4 4] f32) (b [4] f32)]
  (let [a (+ (* 0.2 (matmul-transposed a a)) (identity-matrix 4))
        left (fn [x] (- (contract [i] a [i j] x [j]) b))
        off (fn [x] (> (at (reduce max 0.0 (abs (left x)))) 1e-3))
        [x _ _] (scan (fn [x _] [(- x (* 0.1 (left x))) nil]) (full [4] 0.0 f32) 200 {:while off})]
    {:x x}))""",
        {"a": (4, 4), "b": (4,)},
        settled,
        {},
    ),
    "transport": Unusual(
        """(entry e [(c [5 6] f32) (k [5 6] f32)]
  (let [add-logs (fn [x axis]
                   (let [m (max-along x axis true)]
                     (sum-along (+ m (log (sum-along (exp (- x m)) axis true))) axis)))
        step (fn [[u v] _]
               (let [u (- (add-logs (- v c) 1))]
                 [[u (- (add-logs (- (reshape u [5 1]) c) 0))] nil]))
        [[u v] _] (scan step [(full [5] 0.0 f32) (full [6] 0.0 f32)] 10)
        p (exp (- (+ (reshape u [5 1]) v) c))
        loss (total (* p k))
        [gc] (gradients loss [c])]
    {:p p :loss loss :gc gc}))""",
        {"c": (5, 6), "k": (5, 6)},
        sinkhorn,
        {"gc": ("c", "loss")},
    ),
}
