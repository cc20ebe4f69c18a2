"""Products on GPUs without matrix instructions: few rows or columns, by subgroups or threads that share out k."""
