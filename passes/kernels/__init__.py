"""Shared parts of the GPU schedules: building ops, reading tensors lazily, and lanes that reduce together."""
