"""Values keep their names from one text to the next, and whatever the text before was, the IR is the same."""

from __future__ import annotations

import re

import pytest
from golden_ir import FOLDER, Golden
from seeded import rng

from lispgpt.ir.mlir import ir, new_context, passmanager
from lispgpt.passes.kernel_texts import KernelTexts
from lispgpt.passes.text_changes import changes, summary
from lispgpt.passes.value_names import Names

BEFORE = """module {
  func.func @f(%arg0: index, %arg1: memref<64xf32>) -> f32 {
    %c8 = arith.constant 8 : index
    %c8_0 = arith.constant 8 : index
    %0 = arith.addi %arg0, %c8 : index
    %1 = arith.addi %arg0, %c8_0 : index
    %2 = memref.load %arg1[%0] : memref<64xf32>
    %3 = memref.load %arg1[%1] : memref<64xf32>
    %4 = arith.addf %2, %3 : f32
    return %4 : f32
  }
}
"""
SIBLINGS = """module {
  func.func @f(%arg0: index, %arg1: i1, %arg2: memref<4xindex>) {
    scf.for %arg3 = %arg0 to %arg0 step %arg0 {
      %0 = arith.addi %arg3, %arg0 : index
      memref.store %0, %arg2[%arg3] : memref<4xindex>
    }
    scf.if %arg1 {
      %0 = arith.muli %arg0, %arg0 : index
      memref.store %0, %arg2[%0] : memref<4xindex>
    } else {
      %0 = arith.subi %arg0, %arg0 : index
      memref.store %0, %arg2[%0] : memref<4xindex>
    }
    scf.for %arg3 = %arg0 to %arg0 step %arg0 {
      %0 = arith.divui %arg3, %arg0 : index
      memref.store %0, %arg2[%arg3] : memref<4xindex>
    }
    return
  }
  func.func @g(%arg0: i1) -> i32 {
    cf.br ^bb2
  ^bb1:
    %0 = arith.addi %1, %1 {note = "%0 }{ \\22"} : i32
    return %0 : i32
  ^bb2:
    %1 = arith.constant 3 : i32
    cf.cond_br %arg0, ^bb1, ^bb3(%1 : i32)
  ^bb3(%2: i32):
    return %2 : i32
  }
}
"""


def printed(text: str, passes: str = "") -> str:
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        if passes:
            passmanager.PassManager.parse(f"builtin.module({passes})").run(module.operation)
        return str(module)


def test_what_a_pass_leaves_keeps_its_names() -> None:
    names = Names(BEFORE)
    assert names.name(printed(BEFORE, "cse")).splitlines()[2:-2] == [
        "    %c8 = arith.constant 8 : index",
        "    %0 = arith.addi %arg0, %c8 : index",
        "    %2 = memref.load %arg1[%0] : memref<64xf32>",
        "    %4 = arith.addf %2, %2 : f32",
        "    return %4 : f32",
    ]
    again = names.name(printed(BEFORE, "cse").replace("addf %1, %1", "mulf %1, %1"))
    assert "%4 = arith.mulf %2, %2" in again, "another op of the same values"


def test_a_value_that_is_new_has_a_name_that_none_had() -> None:
    lines = BEFORE.replace("    %0 = ", "    %9 = arith.muli %arg0, %arg0 : index\n    %0 = ")
    assert "%5 = arith.muli %arg0, %arg0" in Names(BEFORE).name(printed(lines))


def test_aliases_keep_their_numbers() -> None:
    text = "#map = affine_map<(d0) -> (d0)>\n#map1 = affine_map<(d0) -> (d0 + 1)>\n"
    op = '  "test"() {{a = {0}, s = "#map"}} : () -> ()\n'
    both, one = (
        text + op.format("[#map, #map1]"),
        text.split("\n")[1].replace("#map1", "#map") + "\n" + op.format("#map"),
    )
    names = Names()
    assert names.name(both) == both
    assert names.name(one) == text.split("\n")[1] + "\n" + op.format("#map1")


@pytest.mark.parametrize("before", ["", BEFORE, SIBLINGS])
@pytest.mark.parametrize("after", [BEFORE, SIBLINGS])
def test_the_ir_is_the_same_whatever_was_before(before: str, after: str) -> None:
    named = Names(before).name(printed(after))
    assert printed(named) == printed(after)


def test_regions_side_by_side_have_names_of_their_own() -> None:
    names = Names()
    names.name(printed(SIBLINGS))
    other = re.sub(r"    scf.if.*?else \{\n.*?\n    \}\n", "", printed(SIBLINGS), flags=re.DOTALL)
    kept = names.name(other)
    assert kept.count("= arith.divui") == 1
    assert re.search(r"(%\w+) = arith.divui", kept)[1] in names.name(printed(SIBLINGS))  # type: ignore[index]


GOLDENS = sorted(FOLDER.glob("*/*.mlir"))


@pytest.mark.drawn
@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_inputs_of_all_passes_are_the_same_under_names_of_any_others(path: object) -> None:
    texts = [printed(Golden.read(each).before) for each in (path, *rng().choice(GOLDENS, 2))]  # type: ignore[arg-type]
    names = Names(texts[2])
    names.name(texts[1])
    named = names.name(texts[0])
    assert printed(named) == texts[0]
    for symbol, _ in KernelTexts(named).bodies():
        with new_context():
            assert ir.Module.parse(KernelTexts(named).whole(symbol)).operation.verify(), symbol


def test_long_constants_stand_ahead() -> None:
    values = ", ".join(map(str, range(100)))
    text = f"""module {{
      memref.global "private" constant @g : memref<100xi32> = dense<[{values}]> {{alignment = 64 : i64}}
      llvm.mlir.global external constant @t("{"a" * 300}") {{addr_space = 0 : i32}}
      func.func @f() -> tensor<100xi32> {{
        %0 = arith.constant {{note = "dense<[{values}]> : tensor<100xi32>"}} dense<[{values}]> : tensor<100xi32>
        return %0 : tensor<100xi32>
      }}
    }}"""
    named = Names().name(printed(text))
    assert printed(named) == printed(text)
    body = named.partition("module {")[2]
    assert "= #numbers {alignment" in body and "constant @t(#text" in body and "} #numbers" in body
    assert "dense" not in body.replace('"dense<', "")


def test_a_difference_is_told_by_function() -> None:
    names = Names()
    before = names.name(printed(BEFORE))
    after = names.name(printed(BEFORE, "cse"))
    lines = list(changes(before, after))
    assert lines[0] == "@@ @f @@"
    assert [line[1:].strip() for line in lines if line[0] == "+"] == ["%4 = arith.addf %2, %2 : f32"]
    assert summary(lines) == "1 function, 4 lines less, 1 more"
    assert not list(changes(before, before.replace("\n  ", "\n      "))), "however far in a line stands"
