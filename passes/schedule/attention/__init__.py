"""Attention and its gradients on GPUs: one row by its own, tiles of rows, and tiles that copies bring meanwhile."""
