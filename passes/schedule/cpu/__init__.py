"""Products and attention on CPUs: tiles in vector registers, and instructions that multiply pairs of BF16 or bytes."""
