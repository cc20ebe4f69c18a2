"""From scheduled kernels to the dialects of chips and of LLVM."""
