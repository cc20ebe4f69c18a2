"""Kernels without a product: rows (norms, softmax, sums), elementwise ops, scatters, and whatever is left."""
