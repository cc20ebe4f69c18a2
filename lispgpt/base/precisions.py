"""What products with short weights read: activations in F32 ("exact"), or in BF16 ("fast")."""

EXACT, FAST = PRECISIONS = ("exact", "fast")
