"""The words of the language by their kinds, as tools/editors/generate.py finds them in the compiler."""

DEFINING = (
    "def", "defmacro", "defn", "defstruct", "entry", "extern-fn", "kernel", "schedule",
)  # fmt: skip

SPECIALS = (
    "and", "block", "block-id", "block-size", "call", "call!", "capability", "compilation", "compilation-cpu",
    "compilation-gpu", "cond", "config", "contract", "def", "defgradient", "defmacro", "defn", "defstruct", "do",
    "entry", "error", "extern", "extern-fn", "fn", "for", "generate", "gguf", "grid-size", "hugging-face", "if",
    "inputs", "kernel", "launch", "let", "link-library", "loop", "module", "or", "quasiquote", "quote", "region",
    "require", "require-dialect", "require-macros", "saturate", "schedule", "splice", "state", "tensor", "thread-id",
    "unquote", "update!", "use-dialect", "vararg-call", "weights", "when",
)  # fmt: skip

BUILTINS = (
    "!=", "*", "+", "-", "->", "-inf", "/", ":", "<", "<=", "=", ">", ">=", "abs", "adapt", "adapted", "added-rows",
    "all-weights", "assert", "at", "at-every-position", "batch", "batch-place", "call-with", "cast", "ceil",
    "ceil-div", "concat", "configured", "cons", "contraction", "cos", "count", "devices", "dim", "drawn", "drop",
    "dtype", "elementwise", "entry?", "erf", "every-position", "exp", "expm1", "factors", "filter", "first", "floor",
    "fold", "fp8", "get", "gradients", "in-place", "indices", "inf", "input-name", "input-value", "insert",
    "inserted", "int8", "iq4_xs", "k_mix", "keys", "known-state", "known-weight", "last-multiplied", "layered",
    "list", "list?", "log", "log1p", "log2", "map", "map?", "matching", "max", "merge", "min", "mind-padding", "mod",
    "multiplied", "multiplied-as", "mxfp4", "new", "norm-weight", "not", "nth", "output", "packed-rows", "pi", "pow",
    "print", "print-i64", "println", "q4_0", "q4_k", "q5_k", "q6_k", "q8_0", "quot", "range", "rank", "read-state",
    "recompute", "reduce", "reshape", "rest", "restrict-shapes", "results", "reverse", "round", "row-places?",
    "row-positions", "rsqrt", "scaled", "scan", "select", "shape", "shared", "sin", "slice", "spread", "sqrt",
    "state-as-stored", "state-sizes", "states-like", "stop-gradient", "str", "summed-as", "symbol", "take", "tanh",
    "tensor-type", "text-rows", "text-starts", "transpose", "type", "unpacked-rows", "weight-beside", "weight-dtype",
    "weight-name", "weight-shape", "whole", "whole-texts", "window", "without-window", "write-state",
    "write-state-at-positions",
)  # fmt: skip

CORE = (
    "!=i", "*f", "*i", "+f", "+i", "-f", "-i", "/f", "/i", "<=i", "<i", "=i", ">=i", ">i", "argmax",
    "best-and-report", "best-token", "divided", "first-chosen", "identity", "maximum", "null-ptr", "null?", "ptr-at",
    "ptr-load", "ptr-offset", "ptr-store!", "report-words", "sizes-as-text", "square", "sum",
)  # fmt: skip

TYPES = (
    "bf16", "f16", "f32", "f64", "i1", "i16", "i32", "i64", "i8", "index",
)  # fmt: skip

CONSTANTS = (
    "false", "nil", "true",
)  # fmt: skip
