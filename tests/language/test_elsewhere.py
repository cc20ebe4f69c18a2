"""What PyTorch, JAX, papers and other Lisps call otherwise is pointed to what is here, by forms that compile."""

from __future__ import annotations

import re

import pytest
from language.evaluating import evaluated

from lispgpt.base.errors import UserError
from lispgpt.language.core.elsewhere import ADVICE, WITH_MORE, advice, hint
from lispgpt.reference import language
from lispgpt.reference.entry import find

NAMES = """
(require nn arrays algebra convolutions scan)
(config vocab 8  context 8  layers 1  heads 2  width 6  n 4  m 6  i 0  j 1)
(weights (table [8 width]) (w [width width]) (b [width]) (weight [width] {:init 1}) (bias [width])
         (gate [width width]) (up [width width]) (down [width width]) (qkv [18 width])
         (taps [3 3 3 3]) (channel-weight [3]) (channel-bias [3]) (a-p [2 4 6]) (a-q [2 6 4]))
(state (kv [layers batch 2 heads context 3]) (means [3]) (variances [3]))
"""
ENTRY = "(entry f [(x [4 6] f32) (images [1 8 8 3] f32) (ids [2] i32)] (let [{}\n{}] x))\n"
BOUND = """y x  layer (fn [x l] x)  p a-p  q a-q  k x  v x  step (fn [s x] [(+ s x) s])
           state (slice x [0 0] [nil 6])"""
"""What stands in the advice for what a reader has."""
HELD = {"(batch-norm x weight bias means variances 1e-5)": "(batch-norm images channel-weight channel-bias means "
        "variances 1e-5)",
        "(group-norm-of-images images channels weight bias 1e-5)": "(group-norm-of-images images 3 channel-weight "
        "channel-bias 1e-5)"}  # fmt: skip
OTHERWISE = tuple(
    """(def name|(defn|(loop|(func.return|(gradients|(weights|(state|(training|(fn |(require|(error|(str|(merge
    |(attention|(attend |(lowered-by|((turning-by|(matmul-transposed (last|(swiglu|(cross-entropy|(first|(rest
    |(nth|(count|(range|(shape|(rank|(dim|(fold + 0|(map|(concat [|(mod|(quot|(tensor [i n] i)""".replace(
        "\n    ", ""
    ).split("|")
)
"""How those begin that declare, give no tensor, or are of another entry's inputs."""


def forms(said: str) -> list[str]:
    """The whole forms in a text."""
    found, depth, start = [], 0, 0
    for at, letter in enumerate(said):
        if letter in "([":
            start, depth = (at, 1) if not depth else (start, depth + 1)
        elif letter in ")]":
            depth -= 1
            found += [said[start : at + 1]] if not depth and said[start] == "(" else []
    return found


def ours() -> set[str]:
    """The names of forms and of the library."""
    return {entry.name for entry in (*language.forms(), *language.library(examples=False))}


def test_each_form_of_the_advice_compiles() -> None:
    told = [form for said in dict.fromkeys([*ADVICE.values(), *WITH_MORE.values()]) for form in forms(said)]
    tried = [form for form in told if not form.startswith(OTHERWISE) and "…" not in form]
    evaluated(NAMES + ENTRY.format(BOUND, "\n".join(f"_ {HELD.get(form, form)}" for form in tried)))
    assert len(tried) > 70


def test_each_name_of_the_advice_is_in_the_reference() -> None:
    known = ours()
    variables = {"x", "step", "func.return"}
    for words, said in ADVICE.items():
        heads = {head for form in forms(said) for head in re.findall(r"\(+([a-z][^][(){} ]*)", form)}
        heads = {head for head in heads if not re.search(rf"weights .*\({head} |state .*\({head} |\({head} l\)", said)}
        assert heads - variables <= known, words


def test_no_word_is_said_twice_or_is_a_name_of_ours() -> None:
    words = [word for group in ADVICE for word in group.split()]
    assert len(words) == len(set(words))
    assert ours() & set(words) <= {"matmul"}  # that of the library's kernels is seen by schedules alone


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("swish", "(silu x)"),
        ("float32", "the type is f32"),
        ("u8", "(saturate x u8)"),
        ("F.silu", "did you mean `silu`?"),
        ("nn.functional.gelu_new", "(gelu x)"),
        ("LayerNorm", "did you mean `layer-norm`?"),
        ("torch.nn.RMSNorm", "did you mean `rms-norm`?"),
        ("jnp.einsum", "did you mean `einsum`?; (require algebra)"),
        ("nn.Linear", "did you mean `linear`?"),
        ("Hardswish", "(relu (+ x 3.0))"),
        ("torch.matmul", "(matmul-transposed x w)"),
        ("Mish", "(tanh (softplus x))); (require scan) brings `softplus`"),
    ],
)
def test_a_program_is_told(name: str, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)) as raised:
        evaluated(f"(require nn)\n(weights (table [8 8]))\n(entry f [tokens positions] ({name} (rows table tokens)))",
                  shapes=[(1, 1)])  # fmt: skip
    assert raised.value.render().startswith("t.lisp:3:30: error: there is no ")


@pytest.mark.parametrize(("form", "said"), [("(maximum x x)", "(max x y)"), ("(sum x 0)", "(sum-along x 0)")])
def test_who_gives_more_is_told(form: str, said: str) -> None:
    """Not where the function is the program's own."""
    program = "(entry f [(x [4 6] f32)] {})"
    with pytest.raises(UserError, match=re.escape("takes 1 argument [x] and got 2; ") + ".*" + re.escape(said)):
        evaluated(program.format(form))
    with pytest.raises(UserError) as raised:
        evaluated("(defn maximum [x] x) (defn sum [x] x)" + program.format(form))
    assert said not in raised.value.render()


def test_a_value_is_told_too() -> None:
    with pytest.raises(UserError, match=re.escape("`swish` is not defined; x times its sigmoid is (silu x)")):
        evaluated("(require nn)\n(def activation swish)\n(entry f [tokens positions] (activation tokens))")


def test_the_reference_says_it() -> None:
    with pytest.raises(UserError, match=re.escape("the reference has no `swish`; x times its sigmoid is (silu x)")):
        find(language.library(examples=False), "swish")
    with pytest.raises(UserError, match="did you mean `silu`"):
        find(language.library(examples=False), "SiLU")
    assert advice("gelu_new") == advice("GELU-tanh") and not hint("nothing-like-it", [])
