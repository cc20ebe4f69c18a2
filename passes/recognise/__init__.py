"""What an entry's ops are together: products, attention and its gradients, norms of rows, writes to a cache."""
