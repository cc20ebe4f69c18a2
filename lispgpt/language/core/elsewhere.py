"""What PyTorch, JAX, papers and other Lisps call what is here, and how it is written here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from lispgpt.language.core.library import library_names, library_of

__all__ = ["ADVICE", "WITH_MORE", "advice", "alike", "hint"]

_MODULES = ("torch", "nn", "f", "functional", "jax", "jnp", "lax", "np", "numpy", "tf", "keras", "flax", "linen", "mx")
ADVICE = {
    "swish": "x times its sigmoid is (silu x)",
    "gelu-new gelu-tanh gelu-fast gelu-pytorch-tanh approximate-gelu": "GELU by a tanh is (gelu x)",
    "gelu-erf gelu-python gelu-none": "GELU by the error function is (gelu-exact x)",
    "relu6": "it is (min 6.0 (relu x))",
    "relu2 relu-squared": "it is (squared-relu x)",
    "hardswish hard-silu": "it is (* x (/ (min 6.0 (relu (+ x 3.0))) 6.0))",
    "hardsigmoid": "it is (/ (min 6.0 (relu (+ x 3.0))) 6.0)",
    "hardtanh clamp clip": "numbers are kept between two by (max -1.0 (min 1.0 x))",
    "leaky-relu prelu": "it is (select (> x 0.0) x (* 0.01 x))",
    "elu": "it is (select (> x 0.0) x (expm1 x))",
    "mish": "it is (* x (tanh (softplus x)))",
    "logistic expit": "it is (sigmoid x)",
    "log-sigmoid": "it is (- (softplus (- x)))",
    "softmin": "it is (softmax (- x))",
    "glu": "one half times the other's sigmoid is (* x (sigmoid y)); a layer of the kind is (swiglu x gate up down)",
    "reglu": "it is (gated relu x gate up down)",
    "softmax2d soft-max": "over the last dimension it is (softmax x)",
    "layer-norm1d": "it is (layer-norm x weight bias)",
    "rms t5-layer-norm llama-rms-norm root-mean-square-norm": "it is (rms-norm x weight 1e-5)",
    "batch-norm1d batch-norm2d": "it is (batch-norm x weight bias means variances 1e-5)",
    "instance-norm instance-norm2d": "it is (group-norm-of-images images channels weight bias 1e-5)",
    "l2-norm normalize l2-normalize": "rows of length 1 are (/ x (vector-norm x 1 true))",
    "matmul mm dot-general tensordot gemm @": "a product with w's transpose is (matmul-transposed x w), any other "
    "(contract [i j] x [i k] w [k j])",
    "bmm batch-matmul": "it is (contract [b i j] p [b i k] q [b k j])",
    "dense fc fully-connected affine addmm projection": "it is (linear x w b), with w of [outputs inputs]",
    "lm-head unembed": "logits of the last row are (matmul-transposed (last x) table)",
    "embedding embed embedding-lookup wte": "rows of a table are (rows table ids)",
    "index-select": "rows by their numbers are (gather x ids 0)",
    "multi-head-attention multihead-attention mha self-attention sdpa scaled-dot-product-attention flash-attention "
    "flash-attn dot-product-attention": "queries, keys and values side by side are for (attention qkv (kv l) heads), "
    "apart for (attend q k v (kv l)); without a cache it is (attention-to q k v)",
    "kv-cache": "keys and values are kept by (state (kv [layers batch 2 heads context size]))",
    "rotary rope rotary-embedding apply-rotary-pos-emb": "positions are turned by "
    "((turning-by positions pairs (rotary-frequency 10000.0 pairs)) q)",
    "alibi": "scores are lowered by (lowered-by (alibi-slope heads)), behind the cache of `attend`",
    "mlp ffn feed-forward": "it is (linear (gelu (linear x up)) down), or (swiglu x gate up down)",
    "moe mixture-of-experts": "it is `mixture` of (require experts)",
    "conv conv1d conv2d conv3d": "it is (convolution images taps {:strides 1 :padding 1})",
    "conv-transpose1d conv-transpose2d deconvolution": "it is (transposed-convolution images taps)",
    "max-pool1d max-pool2d": "it is (max-pool images 2)",
    "avg-pool average-pool avg-pool1d avg-pool2d": "it is (mean-pool images 2)",
    "interpolate upsample resize": "it is (resize-nearest x 0 8), or (resize-linear x 0 8)",
    "lstm gru rnn while-loop fori-loop": "a step is taken for each row by (scan step state x)",
    "where": "it is (select (> x 0.0) x y)",
    "masked-fill": "it is (select (> x 0.0) -1e30 x)",
    "power ** ^ expt": "it is (pow x 2.0)",
    "add": "it is (+ x y)",
    "sub subtract": "it is (- x y)",
    "mul multiply": "it is (* x y)",
    "div divide true-divide": "it is (/ x y)",
    "neg negative": "it is (- x)",
    "reciprocal": "it is (/ 1.0 x)",
    "remainder fmod %": "of whole numbers it is (mod n m)",
    "floordiv floor-divide //": "of whole numbers it is (quot n m)",
    "eq equal == eq? eqv? equal?": "it is (= x y)",
    "ne not-equal not= /=": "it is (!= x y)",
    "lt less": "it is (< x y)",
    "gt greater": "it is (> x y)",
    "le less-equal": "it is (<= x y)",
    "ge greater-equal": "it is (>= x y)",
    "reduce-sum": "over the last dimension it is (sum x), over another (sum-along x 0)",
    "reduce-max amax": "over the last dimension it is (maximum x), over another (max-along x 0)",
    "reduce-min amin minimum": "it is (min-along x 1)",
    "reduce-mean average avg": "it is (mean x 1)",
    "prod": "it is (product-along x 1)",
    "var": "it is (variance x 1)",
    "std": "it is (sqrt (variance x 1))",
    "norm": "it is (vector-norm x 1), or of a layer (layer-norm x weight bias) and (rms-norm x weight 1e-5)",
    "argmin": "it is (argmax (- x))",
    "cat concatenate vstack": "tensors are joined along a dimension by (join [x y] 0), lists by (concat [1] [2])",
    "hstack": "it is (join [x y] 1)",
    "chunk tensor-split": "it is (split x [2 4] 1)",
    "permute swapaxes moveaxis": "axes are put in another order by (transpose x [1 0])",
    "view flatten ravel unsqueeze squeeze expand-dims": "a tensor has another shape by (reshape x [n 1 m])",
    "broadcast-to expand repeat tile repeat-interleave": "rows are repeated by (tensor [r 3 i n j m] (at x i j))",
    "tril triu causal-mask": "what is on and below the diagonal is (tensor [i n j m] (select (<= j i) (at x i j) 0.0))",
    "arange linspace": "numbers in order are (range n), and in a tensor (tensor [i n] i)",
    "zeros zeros-like": "one number everywhere is (tensor [i n j m] 0.0)",
    "ones ones-like full-like": "one number everywhere is (tensor [i n j m] 1.0)",
    "eye": "it is (identity-matrix n)",
    "diag": "the diagonal of a square matrix is (diagonal w [i i]), its sum (trace w)",
    "to astype convert-element-type type-as": "it is (cast x bf16)",
    "float32 float fp32": "the type is f32",
    "float64 double fp64": "the type is f64",
    "float16 half fp16": "the type is f16",
    "bfloat16": "the type is bf16",
    "int32 int": "the type is i32",
    "int64 long": "the type is i64",
    "int16 short": "the type is i16",
    "bool boolean": "the type is i1: (cast x i1); inputs, weights and states say bool",
    "u8 uint8 ubyte": "what is stored as u8 is read as i32, and made by (saturate x u8)",
    "size": "sizes are (shape x), and one of them (dim x 0)",
    "len length size-of": "a list has (count [1 2]), a tensor (dim x 0) rows",
    "ndim": "it is (rank x)",
    "detach no-grad stop-grad": "it is (stop-gradient x)",
    "checkpoint remat": "what a gradient computes again instead of keeping it is (recompute relu x)",
    "backward grad value-and-grad autograd": "gradients are (gradients loss [w …]), a whole training (training logits)",
    "jit": "everything is compiled as it is",
    "cross-entropy-loss nll-loss": "it is (cross-entropy x targets m), the mean loss and how many were right",
    "mse mse-loss": "it is (square (- x y)), and its mean by (mean … 1)",
    "parameter": "a weight is declared by (weights (w [n m]))",
    "buffer register-buffer": "what lives between runs is (state (s [n m]))",
    "sequential module-list": "layers follow one another by (fold layer x (range layers))",
    "adam": "it is `adamw` of (require training)",
    "lambda": "a function without a name is (fn [x] x)",
    "defun": "a function is (defn name [x] …)",
    "define defvar defparameter": "a name is bound with (def name value)",
    "let* letrec": "`let` binds in turn already",
    "begin progn": "`do` puts forms in a row",
    "set! setq setf": "a name is bound once; `loop` and scf.for carry values that change",
    "while recur dotimes": "(loop [x start] :while condition :do next) repeats",
    "car head": "the first of a list is (first [1 2])",
    "cdr tail": "the rest of a list is (rest [1 2])",
    "second cadr": "it is (nth [1 2] 1)",
    "aref elt vector-ref": "an element of a tensor is (at x i j), of a list (nth [1 2] 1)",
    "append conj": "lists are joined by (concat [1] [2])",
    "mapcar": "it is (map square [1 2])",
    "foldl reduce-left": "it is (fold + 0 [1 2])",
    "assoc": "a map with more is (merge {:a 1} {:b 2})",
    "case match switch elif": "it is (cond (> 1 2) x :else y)",
    "unless": "it is (if (not (> 1 2)) x y)",
    "import include use": "a file or a part of the library is read by (require nn)",
    "throw raise": 'an error is (error "what is wrong" form)',
    "format": 'a text is made by (str "a" 1)',
    "return": "a function's value is its last form, or (func.return x)",
}
"""By words of one meaning, apart by spaces, what is said to who writes one of them.  Capitals, hyphens and underscores
count for nothing, and neither do the modules before a dot: `torch.nn.functional.gelu_new` is `gelu-new`."""
WITH_MORE = {
    "maximum": "the larger of two is (max x y), and the largest along another dimension (max-along x 0)",
    "sum": "over another dimension than the last it is (sum-along x 0)",
}
"""By functions of the library that take more elsewhere, what is said to who gives them more."""


def folded(name: str) -> str:
    """A name as it is looked for: without a module's, capitals, hyphens and underscores."""
    parts = name.replace("/", ".").split(".") if name.strip("./") else [name]
    while len(parts) > 1 and parts[0].lower() in _MODULES:
        parts = parts[1:]
    return ".".join(parts).lower().replace("-", "").replace("_", "")


@cache
def _by_word() -> dict[str, str]:
    return {folded(word): said for words, said in ADVICE.items() for word in words.split()}


def advice(name: str) -> str | None:
    """How what is called so elsewhere is written here."""
    return _by_word().get(folded(name))


def alike(name: str, known: Iterable[str]) -> str | None:
    """The name among those known that differs in capitals, hyphens, underscores and modules alone."""
    wanted = folded(name)
    return next((each for each in known if folded(each) == wanted and each != name and len(wanted) > 2), None)


def hint(name: str, visible: Iterable[str]) -> str:
    """`; …`: which part of the library has a name, how it is spelled here, or how it is written; empty where nothing is
    known.  visible: the names that a program sees."""
    seen = set(visible)
    if (library := library_of(name)) not in (None, "core"):
        return f"; (require {library}) brings it"
    if same := alike(name, [*seen, *library_names()]):
        return f"; did you mean `{same}`?{_required([same], seen)}"
    if said := advice(name):
        return f"; {said}{_required(re.findall(r'[(]+([^][(){} ]+)', said), seen)}"
    return ""


def _required(names: Iterable[str], seen: set[str]) -> str:
    """What brings those names that a program does not see yet."""
    lacking = {name: file for name in names if name not in seen and (file := library_of(name))}
    return "".join(f"; (require {file}) brings `{name}`" for name, file in lacking.items())
