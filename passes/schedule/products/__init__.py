"""Skinny products on GPUs: few rows or columns, by subgroups that share out k, or by matrix instructions."""
