"""The bytes and operations that the compiler counts of a kernel, against sums worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import seeded
from compiled_models import compile_model

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.ir.mlir import ir, new_context
from lispgpt.ir.structure import kernel_functions
from lispgpt.passes.model.kernel_work import kernel_work
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.work import Amount, Work

GENERATE = Path(__file__).resolve().parents[2] / "examples" / "gpt2_generate.lisp"
WIDTH, HEADS, CONTEXT, VOCAB, PADDED = 768, 12, 1024, 50257, 50304
GPT2 = {"layers": 2, "heads": HEADS, "width": WIDTH, "vocab": VOCAB, "padded-vocab": PADDED, "context": CONTEXT}


@pytest.fixture(scope="module")
def gpt2() -> Artifact:
    return compile_request(Request(GENERATE, "cuda:sm_90", overrides=GPT2, batch=4), Observer())[0]


def work(artifact: Artifact, kernel: str) -> Work:
    found = Work.of(artifact.kernels[kernel])
    assert found is not None
    return found


def of_step(artifact: Artifact, kernel: str) -> Work:
    """Of the kernel with such a name that a greedy step of as many sequences as it says launches."""
    batch = int(kernel.partition("_")[2].partition("x")[0])
    steps = next(e for e in artifact.plan.entries if e.name == "decode-greedy" and e.sizes["batch"] == batch)
    return work(artifact, next(step.kernel for step in steps.launches if step.kernel.startswith(kernel)))


def fixed(nbytes: int, operations: int, matrix: bool = False) -> Work:
    return Work(nbytes, operations, 0, 0, 0, matrix)


def test_a_product_with_bias(gpt2: Artifact) -> None:
    inner, outputs = WIDTH, 3 * WIDTH
    for rows in (1, 16, 128, 1024):
        nbytes = 4 * rows * (inner + outputs) + 2 * inner * outputs + 4 * outputs
        operations = 2 * rows * inner * outputs + rows * outputs
        assert work(gpt2, f"contraction_{rows}x2304") == fixed(nbytes, operations, matrix=rows > 1)


def test_a_product_with_bias_and_residual_of_what_attention_gives(gpt2: Artifact) -> None:
    nbytes = 4 * 1024 * 3 * WIDTH + 2 * WIDTH * WIDTH + 4 * WIDTH
    assert work(gpt2, "contraction_1024x768") == fixed(nbytes, 1024 * (2 * WIDTH * WIDTH + 2 * WIDTH), matrix=True)


def test_a_gather_reads_one_row_for_each_token_of_both_tables(gpt2: Artifact) -> None:
    for rows in (1, 16, 1024):
        # ids, a row of each table, the norm's weight and bias; the residual and what the norm makes of it
        nbytes = rows * (8 + 2 * 2 * WIDTH) + 2 * 4 * WIDTH + 2 * 4 * rows * WIDTH
        # sum of tables, mean, difference, square, its sum, and three of the last line; four for the scale of a row
        operations = rows * (8 * WIDTH + 4)
        assert work(gpt2, f"rows_{rows}x768") == fixed(nbytes, operations)


def test_the_largest_logit_is_looked_for_in_the_vocabulary_without_its_padding() -> None:
    small = compile_model(GENERATE, layers=1, heads=2, width=8, vocab=13, padded_vocab=16, context=16)
    report = 4 * 3  # beside the token: how many logits tie with it, and how far the next one is below, of which size
    assert work(small, "rows_1x3") == fixed(4 * 13 + 4 + report, 8 * 13 + 2)


def test_the_last_row_alone_goes_into_the_logits(gpt2: Artifact) -> None:
    norm, product = 7 * WIDTH + 4, 2 * WIDTH * PADDED
    nbytes = 4 * WIDTH + 2 * 4 * WIDTH + 2 * WIDTH * PADDED + 4 * PADDED
    for entry in gpt2.plan.entries:
        (name,) = (step.kernel for step in entry.launches if "x50304" in step.kernel)
        if entry.sizes["batch"] == 1:
            assert work(gpt2, name) == fixed(nbytes, norm + product)


def test_attention_of_one_row_writes_a_row_and_reads_those_up_to_its_position(gpt2: Artifact) -> None:
    score = 2 * 64 + 1 + 5 + 2 * 64  # product with a key, scale, softmax, product with a value
    nbytes = 4 * 3 * WIDTH + 4 + 2 * 4 * WIDTH + 4 * WIDTH  # query, key and value; position; cache row; result
    found = of_step(gpt2, "attention_1x1x12x64")
    assert found == Work(nbytes, 0, 2 * 4 * WIDTH, HEADS * score, CONTEXT, matrix=False)
    assert found.at([[99]]) == Amount(nbytes + 100 * 8 * WIDTH, 100 * HEADS * score, matrix=False)
    decodes = next(e for e in gpt2.plan.entries if (e.sizes["batch"], e.sizes["positions"]) == (1, 1))
    assert found.at_most(decodes) == found.at([[CONTEXT - 1]])


def test_attention_of_several_sequences_reads_the_rows_of_each(gpt2: Artifact) -> None:
    one, four = of_step(gpt2, "attention_1x1x12x64"), of_step(gpt2, "attention_4x1x12x64")
    assert four == Work(4 * one.bytes, 0, one.position_bytes, one.position_operations, CONTEXT, matrix=False)
    positions = seeded.rng().integers(0, CONTEXT, (4, 1)).tolist()
    alone = [one.at([row]) for row in positions]
    assert four.at(positions).nbytes == sum(amount.nbytes for amount in alone)
    assert four.at(positions).operations == sum(amount.operations for amount in alone)


def test_attention_of_many_rows_is_divided_into_writes_and_reads(gpt2: Artifact) -> None:
    written = 2 * 4 * 128 * WIDTH
    assert work(gpt2, "attention_1x128x12x64_write") == fixed(2 * written + 4 * 128, 0)
    reads = work(gpt2, "attention_1x128x12x64")
    assert (reads.bytes, reads.operations) == (2 * 4 * 128 * WIDTH + 4 * 128, 0)
    assert reads.matrix
    found = reads.at([range(10, 138)])
    assert found.nbytes == reads.bytes + 138 * 8 * WIDTH
    assert found.operations == sum(range(11, 139)) * reads.position_operations


def test_key_heads_that_queries_share_are_read_once() -> None:
    program = GENERATE.with_name("llama_tiny.lisp")
    sizes = {"layers": 1, "heads": 6, "kv_heads": 2, "head_width": 4, "width": 10, "hidden": 12, "vocab": 20}
    artifact = compile_model(program, context=24, **sizes)
    found = next(Work.of(f) for name, f in artifact.kernels.items() if name.startswith("attention_1x1x"))
    assert found is not None
    assert (found.position_bytes, found.position_operations) == (2 * 4 * 2 * 4, 6 * (2 * 4 + 1 + 5 + 2 * 4))
    assert found.operations > 0  # the turning of queries and keys


def counted(body: str) -> tuple[int, int]:
    """(bytes, operations) of a kernel %x: 4x8 of f32, %i: 4 of i32 -> %y; the body makes %r, a tensor like %y's."""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(
            f"""
            #whole = affine_map<(n, c) -> (n, c)>
            #row = affine_map<(n, c) -> (n)>
            func.func private @hand(tensor<4x8xf32>) -> tensor<4x8xf32>
            func.func private @k(%a: memref<4x8xf32>, %b: memref<4xi32>, %y: memref<4x8xf32>)
                attributes {{kernel = "generic", tied = [-1]}} {{
              %x = bufferization.to_tensor %a restrict writable : memref<4x8xf32> to tensor<4x8xf32>
              %i = bufferization.to_tensor %b restrict : memref<4xi32> to tensor<4xi32>
              %c0 = arith.constant 0 : index
              %c1 = arith.constant 1 : index
              %c4 = arith.constant 4 : index
              %zero = arith.constant 0.0 : f32
              %empty = tensor.empty() : tensor<4x8xf32>
              {body}
              return
            }}"""
        )
        (kernel,) = kernel_functions(module)
        found = kernel_work(kernel)
    assert (found.position_bytes, found.position_operations, found.context) == (0, 0, 0)
    return found.bytes, found.operations


def stored(place: str = "%y") -> str:
    return (
        f"bufferization.materialize_in_destination %r in restrict writable {place} : "
        "(tensor<4x8xf32>, memref<4x8xf32>) -> ()"
    )


def test_every_function_of_real_numbers_counts_one_and_conversions_nothing() -> None:
    body = """%r = linalg.generic {indexing_maps = [#whole, #whole], iterator_types = ["parallel", "parallel"]}
        ins(%x : tensor<4x8xf32>) outs(%empty : tensor<4x8xf32>) {
      ^bb0(%in: f32, %out: f32):
        %n = linalg.index 1 : index
        %m = arith.addi %n, %c1 : index
        %h = arith.truncf %in : f32 to bf16
        %f = arith.extf %h : bf16 to f32
        %e = math.tanh %f : f32
        %g = math.fma %e, %in, %f : f32
        %p = arith.cmpf ogt, %g, %zero : f32
        %s = arith.select %p, %g, %zero : f32
        linalg.yield %s : f32
      } -> tensor<4x8xf32>"""
    assert counted(body + stored()) == (2 * 4 * 32, 32 * 4)


def test_slices_of_an_argument_are_read_once_each_and_never_more_than_all_of_it() -> None:
    def sum_of(first: str, second: str) -> str:
        slices = "".join(
            f"%{name} = tensor.extract_slice %x[{place}, 0] [2, 8] [1, 1] : tensor<4x8xf32> to tensor<2x8xf32>\n"
            for name, place in (("p", first), ("q", second))
        )
        return f"""{slices}%small = tensor.empty() : tensor<2x8xf32>
          %s = linalg.generic {{indexing_maps = [#whole, #whole, #whole], iterator_types = ["parallel", "parallel"]}}
            ins(%p, %q : tensor<2x8xf32>, tensor<2x8xf32>) outs(%small : tensor<2x8xf32>) {{
          ^bb0(%in: f32, %on: f32, %out: f32):
            %t = arith.addf %in, %on : f32
            linalg.yield %t : f32
          }} -> tensor<2x8xf32>
          %r = tensor.pad %s low[0, 0] high[2, 0] {{
          ^bb0(%n: index, %c: index):
            tensor.yield %zero : f32
          }} : tensor<2x8xf32> to tensor<4x8xf32>
          """

    assert counted(sum_of("0", "2") + stored()) == (4 * 32 + 4 * 32, 16)
    assert counted(sum_of("0", "1") + stored()) == (4 * 32 + 4 * 32, 16)
    once = sum_of("0", "2").replace("ins(%p, %q", "ins(%p, %p")
    assert counted(once + stored()) == (4 * 16 + 4 * 32, 16)


def test_a_gather_reads_no_more_than_its_loops_have_points() -> None:
    body = """%r = linalg.generic {indexing_maps = [#row, #whole], iterator_types = ["parallel", "parallel"]}
        ins(%i : tensor<4xi32>) outs(%empty : tensor<4x8xf32>) {
      ^bb0(%in: i32, %out: f32):
        %n = arith.index_cast %in : i32 to index
        %e = tensor.extract %x[%n, COLUMN] : tensor<4x8xf32>
        linalg.yield %e : f32
      } -> tensor<4x8xf32>"""
    assert counted(body.replace("COLUMN", "%c0") + stored()) == (4 * 4 + 4 * 4 + 4 * 32, 0)
    loops = body.replace("%e =", "%c = linalg.index 1 : index\n%e =").replace("COLUMN", "%c")
    assert counted(loops + stored()) == (4 * 32 + 4 * 4 + 4 * 32, 0)


ROW_WRITES = """%r = scf.for %n = %c0 to STOP step %c1 iter_args(%all = %x) -> (tensor<4x8xf32>) {
    %line = tensor.extract_slice %empty[0, 0] [1, 8] [1, 1] : tensor<4x8xf32> to tensor<1x8xf32>
    %id = tensor.extract %i[%n] : tensor<4xi32>
    %at = arith.index_cast %id : i32 to index
    %put = tensor.insert_slice %line into %all[%at, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<4x8xf32>
    scf.yield %put : tensor<4x8xf32>
  }"""


def test_rows_written_where_a_tensor_is_move_alone() -> None:
    two = ROW_WRITES.replace("STOP", "%c2").replace("%r =", "%c2 = arith.constant 2 : index\n%r =", 1)
    assert counted(two + stored("%a")) == (2 * 4 + 2 * 4 * 8, 0)


def test_rows_written_into_a_copy_move_all_of_it() -> None:
    assert counted(ROW_WRITES.replace("STOP", "%c4") + stored()) == (4 * 4 + 4 * 32 + 4 * 32, 0)


def test_trips_that_are_not_known_count_once() -> None:
    unknown = "%end = tensor.extract %i[%c0] : tensor<4xi32>\n%stop = arith.index_cast %end : i32 to index\n"
    nbytes, _ = counted(unknown + ROW_WRITES.replace("STOP", "%stop") + stored("%a"))
    assert nbytes == 2 * 4 + 4 * 8


def test_named_products_and_what_they_start_from() -> None:
    body = """%w = tensor.empty() : tensor<8x8xf32>
      %r = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x8xf32>) outs(START : tensor<4x8xf32>) -> tensor<4x8xf32>
      """
    filled = "%s = linalg.fill ins(%zero : f32) outs(%empty : tensor<4x8xf32>) -> tensor<4x8xf32>\n"
    assert counted(filled + body.replace("START", "%s") + stored()) == (2 * 4 * 32, 2 * 4 * 8 * 8)


def test_what_is_written_by_hand_is_known_by_its_bytes_alone() -> None:
    body = "%r = func.call @hand(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>\n"
    assert counted(body + stored()) == (2 * 4 * 32, 0)
