"""The page on which a program, its passes, kernels and machine code are seen side by side."""
