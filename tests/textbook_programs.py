"""Programs of textbooks and of odd corners, as unusual_programs.py has them: whole numbers, dynamic programs, solvers,
sums in f64, and gradients through them."""

from __future__ import annotations

from typing import Any

import numpy as np
from unusual_programs import Arrays, Unusual


def collatz(k: Any) -> Arrays:
    out = []
    for v in k:
        v = int(v) + 1
        c = 0
        while v != 1:
            v = v // 2 if v % 2 == 0 else 3 * v + 1
            c += 1
        out.append(c)
    return {"c": np.array(out)}


def sieve(x: Any) -> Arrays:
    p = np.ones(50, int)
    p[:2] = 0
    for i in range(2, 8):
        if p[i]:
            p[i * i :: i] = 0
    return {"p": p, "count": np.asarray(p.sum())}


def life(k: Any) -> Arrays:
    g = k.copy()
    for _ in range(5):
        s = sum(np.roll(np.roll(g, a, 0), b, 1) for a in (-1, 0, 1) for b in (-1, 0, 1)) - g
        g = ((s == 3) | (g == 1) & (s == 2)).astype(int)
    return {"g": g}


def floyd(d: Any) -> Arrays:
    d = np.abs(d).copy()
    for k in range(6):
        d = np.minimum(d, d[:, k : k + 1] + d[k : k + 1])
    return {"d": d, "loss": d.sum()}


def edit(a: Any, b: Any) -> Arrays:
    D = np.zeros((7, 6), int)
    D[:, 0] = range(7)
    D[0] = range(6)
    for i in range(1, 7):
        for j in range(1, 6):
            D[i, j] = min(D[i - 1, j] + 1, D[i, j - 1] + 1, D[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
    return {"n": np.asarray(D[-1, -1])}


def gaussian_process(x: Any, y: Any, s: Any) -> Arrays:
    k = np.exp(-0.5 * (x[:, None] - x) ** 2 * np.exp(s)) + 0.3 * np.eye(6)
    return {"loss": 0.5 * (y @ np.linalg.solve(k, y) + np.linalg.slogdet(k)[1])}


def softdtw(x: Any, y: Any) -> Arrays:
    D = (x[:, None] - y) ** 2
    R = np.full((6, 8), 1000000000.0)
    R[0, 0] = 0
    for i in range(1, 6):
        for j in range(1, 8):
            R[i, j] = D[i - 1, j - 1] - np.logaddexp.reduce([-R[i - 1, j], -R[i, j - 1], -R[i - 1, j - 1]])
    return {"loss": R[-1, -1]}


def conv3(x: Any, w: Any, b: Any) -> Arrays:
    y = np.zeros((2, 3, 4, 2, 3))
    xp = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0), (0, 0)))
    for i in range(3):
        for j in range(4):
            for k in range(2):
                y[:, i, j, k] = np.einsum("bxyzc,ocxyz->bo", xp[:, i : i + 3, j : j + 3, k : k + 2], w)
    y = np.tanh(y + b)
    return {"y": y, "loss": (y**2).sum()}


def pull(q: Any) -> Any:
    apart = q[:, None] - q
    return -(apart / ((apart**2).sum(-1, keepdims=True) + 0.1) ** 1.5).sum(1)


def bodies(q32: Any, v32: Any) -> Arrays:
    q, v = q32, v32
    for _ in range(8):
        v = v + 0.01 * pull(q)
        q = q + 0.02 * v
    return {"q": q, "loss": (q**2).sum() + (v**2).sum()}


def lcg(k: Any) -> Arrays:
    out = []
    s = k.astype(np.int64)
    for _ in range(10):
        s = (s * 6364136223 + 1442695) % (1 << 31)
        out.append(s >> 7)
    return {"r": np.array(out)}


def median(x: Any, y: Any) -> Arrays:
    s = np.sort(x, 1)
    m = s[:, 2]
    q = np.abs(y - m).sum()
    inv = np.argsort(np.argsort(x, 1), 1)
    return {"rank": inv, "loss": q + (s * np.arange(5)).sum()}


def adam(w: Any, x: Any, y: Any) -> Arrays:
    m = np.zeros(3)
    v = np.zeros(3)
    ls = []
    for t in range(1, 7):
        off = x @ w - y
        ls.append((off**2).mean())
        g = 2 * x.T @ off / 5
        m = 0.9 * m + 0.1 * g
        v = 0.99 * v + 0.01 * g * g
        w = w - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 0.001)
    return {"w": w, "ls": np.array(ls), "loss": ((x @ w - y) ** 2).mean()}


def slopes(x: Any, w: Any) -> Any:
    y = np.tanh(w @ x)
    return 2 * w.T @ (y * (1 - y**2))


def hessian(x: Any, v: Any, w: Any) -> Arrays:
    return {"hv": (slopes(x + 1e-6 * v, w) - slopes(x - 1e-6 * v, w)) / 2e-6}


def vsolve(a: Any, b: Any) -> Arrays:
    A = a @ a.transpose(0, 2, 1) * 0.3 + np.eye(3)
    s = np.linalg.solve(A, b[..., None])[..., 0]
    return {"s": s, "loss": (s**3).sum()}


def runs(k: Any) -> Arrays:
    starts = np.concatenate([[1], (k[1:] != k[:-1]).astype(int)])
    ids = np.cumsum(starts) - 1
    return {"len": np.bincount(ids, minlength=12), "count": np.asarray(ids[-1] + 1)}


def prefixmax(x: Any) -> Arrays:
    m = np.maximum.accumulate(x, 1)
    return {"m": m, "loss": (m**2).sum()}


def fftconv(x: Any, k: Any) -> Arrays:
    y = np.real(np.fft.ifft(np.fft.fft(x) * np.fft.fft(k)))
    return {"y": y, "loss": (y**2).sum()}


def knapsack(k: Any, x: Any) -> Arrays:
    w = k + 1
    v = np.abs(x)
    best = np.zeros(11)
    for wi, vi in zip(w, v, strict=True):
        n = best.copy()
        for c in range(wi, 11):
            n[c] = max(best[c], best[c - wi] + vi)
        best = n
    return {"best": best, "loss": best.sum()}


def kmeans(x: Any, c: Any) -> Arrays:
    c = c.copy()
    for _ in range(4):
        a = ((x[:, None] - c) ** 2).sum(-1).argmin(1)
        for j in range(3):
            if (a == j).any():
                c[j] = x[a == j].mean(0)
    return {"c": c}


def rnnrev(x: Any, w: Any, u: Any) -> Arrays:
    h = np.zeros((2, 4))
    ys = []
    for t in range(5, -1, -1):
        h = np.tanh(x[t] @ w.T + h @ u.T)
        ys.append(h)
    ys = np.array(ys[::-1])
    s = []
    h = np.zeros((2, 4))
    for t in range(6):
        h = 0.5 * h + ys[t] * x[t].sum(-1, keepdims=True)
        s.append(h)
    s = np.array(s)
    return {"s": s, "loss": (s**2).sum()}


def early(x: Any, w: Any) -> Arrays:
    h = x.copy()
    n = 0
    for _ in range(20):
        if not (h**2).sum() > 0.5:
            break
        h = np.tanh(w @ h) * 0.8
        n += 1
    return {"h": h, "n": np.asarray(n), "loss": (h**3).sum()}


def tconv(x: Any, w: Any) -> Arrays:
    y = np.zeros((1, 8, 2))
    for i in range(4):
        for k in range(2):
            y[:, 2 * i + k] += np.einsum("bc,co->bo", x[:, i], w[:, :, k])
    return {"y": y, "loss": np.sin(y).sum()}


PROGRAMS: dict[str, Unusual] = {
    "a sequence of Collatz's": Unusual(
        """(entry e [(k [6] i32)]
 (let [step (fn [[v c] _]
    (let [done (= v 1) even (= (mod v 2) 0) next (select even (quot v 2) (+ (* 3 v) 1))]
      [[(select done v next) (+ c (select done (cast 0 i32) (cast 1 i32)))] nil]))
   [[_ c] _ steps] (scan step [(+ k 1) (full [6] 0 i32)] 300 {:while (fn [[v c]] (> (at (reduce max 0 v)) 1))})]
     {:c c}))""",
        {"k": (40, (6,))},
        collatz,
        {},
    ),
    "a sieve": Unusual(
        """(entry e [(x [1] f32)]
 (let [start (tensor [i 50] (select (< i 2) (: 0 i32) (: 1 i32)))
   step (fn [p j] (let [q (+ j 2)]
      [(tensor [i 50] (select (and (= (at p q) 1) (>= i (* q q)) (= (mod i q) 0)) (: 0 i32) (at p i))) nil]))
   [p _] (scan step start 6)] {:p p :count (reduce + 0 p)}))""",
        {"x": (1,)},
        sieve,
        {},
    ),
    "a game of life": Unusual(
        """(entry e [(k [8 9] i32)]
 (let [step (fn [g _]
    (let [s (fold + (- g) (for [a [0 1 7]] (fold + (full [8 9] 0 i32) (for [b [0 1 8]] (roll (roll g a 0) b 1)))))]
      [(cast (or (= s 3) (and (= g 1) (= s 2))) i32) nil]))
   [g _] (scan step k 5)] {:g g}))""",
        {"k": (2, (8, 9))},
        life,
        {},
    ),
    "shortest ways": Unusual(
        """(entry e [(d [6 6] f32)]
 (let [step (fn [m k] [(tensor [i 6 j 6] (min (at m i j) (+ (at m i k) (at m k j)))) nil])
   [m _] (scan step (abs d) 6) loss (total m) [gd] (gradients loss [d])] {:d m :loss loss :gd gd}))""",
        {"d": (6, 6)},
        floyd,
        {"gd": ("d", "loss")},
    ),
    "edits from one text to another": Unusual(
        """(entry e [(a [6] i32) (b [5] i32)]
 (let [first-row (tensor [j 6] (cast j i32))
   row (fn [[before i] ca]
     (let [cell (fn [left [up diagonal cb]]
             (let [v (min (+ up 1) (+ left 1) (+ diagonal (cast (!= ca cb) i32)))] [v v]))
           i (+ i 1)
           [_ cells] (scan cell i [(slice before [1] [5]) (slice before [0] [5]) b])]
       [[(join [(reshape i [1]) cells] 0) i] nil]))
   [[last _] _] (scan row [first-row (full [] 0 i32)] a)] {:n (slice last [5] [nil])}))""",
        {"a": (3, (6,)), "b": (3, (5,))},
        edit,
        {},
    ),
    "a Gaussian process": Unusual(
        """(entry e [(x [6] f32) (y [6] f32) (s [] f32)]
 (let [k (+ (tensor [i 6 j 6] (exp (* -0.5 (exp (at s)) (square (- (at x i) (at x j)))))) (* 0.3 (identity-matrix 6)))
   c (cholesky k) half (solve k (reshape y [6 1]))
   loss (+ (* 0.5 (dot y (reshape half [6]))) (sum (log (tensor [i 6] (at c i i)))))
   [gx gs] (gradients loss [x s])] {:loss loss :gx gx :gs gs}))""",
        {"x": (6,), "y": (6,), "s": ()},
        gaussian_process,
        {"gx": ("x", "loss"), "gs": ("s", "loss")},
    ),
    "time warped softly": Unusual(
        """(entry e [(x [5] f32) (y [7] f32)]
 (let [d (tensor [i 5 j 7] (square (- (at x i) (at y j))))
   soft (fn [a b c] (let [m (min a b c)] (- m (log (+ (exp (- m a)) (exp (- m b)) (exp (- m c)))))))
   far (full [] 1e9 f32)
   row (fn [[before corner] costs]
     (let [cell (fn [[left diagonal] [up cost]] (let [v (+ cost (soft up left diagonal))] [[v up] v]))
           [_ cells] (scan cell [far corner] [before costs])] [[cells far] nil]))
   [[last _] _] (scan row [(full [7] 1e9 f32) (full [] 0.0 f32)] d)
   loss (slice last [6] [nil]) [gx gy] (gradients loss [x y])] {:loss loss :gx gx :gy gy}))""",
        {"x": (5,), "y": (7,)},
        softdtw,
        {"gx": ("x", "loss"), "gy": ("y", "loss")},
    ),
    "a convolution of three dimensions": Unusual(
        """(entry e [(x [2 3 4 3 2] f32) (w [3 2 3 3 2] f32) (b [3] f32)]
 (let [y (tanh (+ (convolution x w {:padding [1 1 0]}) b)) loss (total (square y)) [gx gw gb] (gradients loss [x w b])]
  {:y y :loss loss :gx gx :gw gw :gb gb}))""",
        {"x": (2, 3, 4, 3, 2), "w": (3, 2, 3, 3, 2), "b": (3,)},
        conv3,
        {"gx": ("x", "loss"), "gw": ("w", "loss"), "gb": ("b", "loss")},
    ),
    "bodies in f64": Unusual(
        """(entry e [(q32 [4 3] f32) (v32 [4 3] f32)]
 (let [[q v] [(cast q32 f64) (cast v32 f64)]
   pull (fn [q] (let [apart (tensor [i 4 j 4 k 3] (- (at q i k) (at q j k)))
        r (+ (sum (square apart)) 0.1)]
       (- (sum (transpose (/ apart (reshape (* r (sqrt r)) [4 4 1])) [0 2 1])))))
   step (fn [[q v] _] (let [v (+ v (* 0.01 (pull q))) q (+ q (* 0.02 v))] [[q v] nil]))
   [[q v] _] (scan step [q v] 8) loss (+ (total (square q)) (total (square v)))
   [gq gv] (gradients loss [q32 v32])] {:q q :loss loss :gq gq :gv gv}))""",
        {"q32": (4, 3), "v32": (4, 3)},
        bodies,
        {"gq": ("q32", "loss"), "gv": ("v32", "loss")},
    ),
    "random numbers in i64": Unusual(
        """(entry e [(k [5] i32)]
 (let [step (fn [s _]
               (let [s (mod (+ (* s (cast 6364136223 i64)) (cast 1442695 i64)) (cast 2147483648 i64))]
                 [s (quot s (cast 128 i64))]))
  [_ r] (scan step (cast k i64) 10)] {:r r}))""",
        {"k": (1000, (5,))},
        lcg,
        {},
    ),
    "ranks and medians": Unusual(
        """(entry e [(x [4 5] f32) (y [4] f32)]
 (let [s (sort x) m (slice s [0 2] [4 nil])
   loss (+ (sum (abs (- y m))) (total (* s (tensor [i 5] (cast (cast i i32) f32)))))
   [gx gy] (gradients loss [x y])]
  {:rank (argsort (argsort x)) :loss loss :gx gx :gy gy}))""",
        {"x": (4, 5), "y": (4,)},
        median,
        {"gx": ("x", "loss"), "gy": ("y", "loss")},
    ),
    "a gradient through Adam": Unusual(
        """(entry e [(w [3] f32) (x [5 3] f32) (y [5] f32)]
 (let [lossof (fn [w] (mean (square (- (contract [n] x [n k] w [k]) y)) 0))
  step (fn [[w m v] i]
    (let [l (lossof w) [g] (gradients l [w]) t (+ 1.0 (cast (cast i i32) f32))
          m (+ (* 0.9 m) (* 0.1 g)) v (+ (* 0.99 v) (* 0.01 g g))
          mh (/ m (- 1.0 (exp (* t (log 0.9))))) vh (/ v (- 1.0 (exp (* t (log 0.99)))))]
     [[(- w (/ (* 0.1 mh) (+ (sqrt vh) 1e-3))) m v] l]))
  [[w2 _ _] ls] (scan step [w (full [3] 0.0 f32) (full [3] 0.0 f32)] 6)
  loss (lossof w2) [gw gx] (gradients loss [w x])] {:w w2 :ls ls :loss loss :gw gw :gx gx}))""",
        {"w": (3,), "x": (5, 3), "y": (5,)},
        adam,
        {"gw": ("w", "loss"), "gx": ("x", "loss")},
    ),
    "a Hessian times a vector": Unusual(
        """(entry e [(x [4] f32) (v [4] f32) (w [3 4] f32)]
 (let [slope (fn [x] (first (gradients (sum (square (tanh (contract [i] w [i k] x [k])))) [x])))
   [_ hv] (jvp slope x v)] {:hv hv}))""",
        {"x": (4,), "v": (4,), "w": (3, 4)},
        hessian,
        {},
    ),
    "equations for each row": Unusual(
        """(entry e [(a [4 3 3] f32) (b [4 3] f32)]
 (let [s (vmap (fn [[a b]] (reshape (solve (+ (* 0.3 (product a (transposed a))) (identity-matrix 3))
   (reshape b [3 1])) [3])) [a b])
  loss (total (* s s s)) [ga gb] (gradients loss [a b])] {:s s :loss loss :ga ga :gb gb}))""",
        {"a": (4, 3, 3), "b": (4, 3)},
        vsolve,
        {"ga": ("a", "loss"), "gb": ("b", "loss")},
    ),
    "runs of equal numbers": Unusual(
        """(entry e [(k [12] i32)]
 (let [starts (tensor [i 12] (select (or (= i 0) (!= (at k i) (at k (max 0 (- i 1))))) 1.0 0.0))
  ids (cast (- (cumsum starts 0) 1.0) i32)] {:len (bincount ids 12) :count (+ 1 (slice ids [11] [nil]))}))""",
        {"k": (2, (12,))},
        runs,
        {},
    ),
    "greatest so far": Unusual(
        """(entry e [(x [3 6] f32)]
 (let [[_ ys] (scan (fn [m c] (let [m (max m c)] [m m])) (full [3] -1e30 f32) (transposed x)) m (transposed ys)
   loss (total (square m)) [gx] (gradients loss [x])] {:m m :loss loss :gx gx}))""",
        {"x": (3, 6)},
        prefixmax,
        {"gx": ("x", "loss")},
    ),
    "a convolution by Fourier's transform": Unusual(
        """(entry e [(x [3 12] f32) (k [3 12] f32)]
 (let [z (full [3 12] 0.0 f32) [a b] (fft x z) [c d] (fft k z)
   [y _] (inverse-fft (- (* a c) (* b d)) (+ (* a d) (* b c))) loss (total (square y))
   [gx gk] (gradients loss [x k])] {:y y :loss loss :gx gx :gk gk}))""",
        {"x": (3, 12), "k": (3, 12)},
        fftconv,
        {"gx": ("x", "loss"), "gk": ("k", "loss")},
    ),
    "a knapsack": Unusual(
        """(entry e [(k [6] i32) (x [6] f32)]
 (let [step (fn [best [w v]] (let [w (+ w 1)]
     [(tensor [c 11] (let [from (- (cast c i32) (at w))] (if (>= from 0)
       (max (at best c) (+ (at best from) (at v))) (at best c)))) nil]))
  [best _] (scan step (full [11] 0.0 f32) [k (abs x)]) loss (sum best) [gx] (gradients loss [x])]
    {:best best :loss loss :gx gx}))""",
        {"k": (5, (6,)), "x": (6,)},
        knapsack,
        {"gx": ("x", "loss")},
    ),
    "nearest means": Unusual(
        """(entry e [(x [20 2] f32) (c [3 2] f32)]
 (let [step (fn [c _] (let [d (tensor [n 20 j 3 k 2] (square (- (at x n k) (at c j k))))
      a (argmax (- (sum d))) n (bincount a 3)
      s (segment-sum x a 3) m (/ s (reshape (max n 1.0) [3 1]))]
     [(tensor [j 3 k 2] (select (> (at n j) 0.0) (at m j k) (at c j k))) nil]))
  [c _] (scan step c 4)] {:c c}))""",
        {"x": (20, 2), "c": (3, 2)},
        kmeans,
        {},
    ),
    "back and forth in chunks": Unusual(
        """(entry e [(x [6 2 3] f32) (w [4 3] f32) (u [4 4] f32)]
 (let [zero (full [2 4] 0.0 f32)
  [_ ys] (scan (fn [h x] (let [h (tanh (+ (linear x w) (linear h u)))] [h h])) zero x {:reverse true :chunk 3})
  [_ s] (scan (fn [h [y x]] (let [h (+ (* 0.5 h) (* y (reshape (sum x) [2 1])))] [h h])) zero [ys x] {:chunk 2})
  loss (total (square s)) [gx gw gu] (gradients loss [x w u])] {:s s :loss loss :gx gx :gw gw :gu gu}))""",
        {"x": (6, 2, 3), "w": (4, 3), "u": (4, 4)},
        rnnrev,
        {"gx": ("x", "loss"), "gw": ("w", "loss"), "gu": ("u", "loss")},
    ),
    "a gradient through an early end": Unusual(
        """(entry e [(x [4] f32) (w [4 4] f32)]
 (let [[h _ n] (scan (fn [h _] [(* 0.8 (tanh (contract [i] w [i k] h [k]))) nil]) x 20
   {:while (fn [h] (> (at (sum (square h))) 0.5))})
  loss (sum (* h h h)) [gx gw] (gradients loss [x w])] {:h h :n n :loss loss :gx gx :gw gw}))""",
        {"x": (4,), "w": (4, 4)},
        early,
        {"gx": ("x", "loss"), "gw": ("w", "loss")},
    ),
    "a convolution turned round": Unusual(
        """(entry e [(x [1 4 3] f32) (w [3 2 2] f32)]
 (let [y (transposed-convolution x w {:strides 2}) loss (total (sin y)) [gx gw] (gradients loss [x w])]
   {:y y :loss loss :gx gx :gw gw}))""",
        {"x": (1, 4, 3), "w": (3, 2, 2)},
        tconv,
        {"gx": ("x", "loss"), "gw": ("w", "loss")},
    ),
}
