"""Where tensors that cross kernels lie: buffers that callers name, states in place, and one arena for the rest."""
