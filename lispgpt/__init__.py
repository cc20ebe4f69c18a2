"""A compiler for a tiny Lisp that describes language models, from S-expressions through MLIR to machine code."""

__version__ = "0.1.0"
