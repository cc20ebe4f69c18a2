"""How fast a chip moves bytes and does arithmetic at best: what its vendor's datasheet says of one product with it.

Matrix rates are for dense products of bf16 with sums in f32; vector rates are for f32, a multiply-add being two
operations.  Sources, by the part named in each row:
A100, H200: NVIDIA's datasheets "A100 80GB" and "H200" (the latter gives matrix rates with sparsity: half of them).
MI300X, MI355X: AMD's datasheets "AMD Instinct MI300X Accelerator" and "MI355X GPU", both without sparsity.
RX 7900 XTX, RX 9070 XT: AMD's product pages, "peak single precision" (both count dual issue) and "peak half precision",
for the latter "matrix"; bf16 runs at the rate of f16 ("RDNA3" and "RDNA4 Instruction Set Architecture", WMMA).
Ryzen AI Max+ 395: AMD's product page has 40 compute units at 2.9 GHz and LPDDR5X-8000 on 256 bits; a unit does 512
matrix and 256 vector operations a clock, as in RDNA 3.
"""

from __future__ import annotations

from dataclasses import dataclass

TERA = 1e12


@dataclass(frozen=True)
class Rates:
    """part: the product.  bandwidth: bytes/s of memory.  matrix, vector: operations/s on matrix instructions or not."""

    part: str
    bandwidth: float
    matrix: float
    vector: float
