"""GGUF files: what their header says, for checkpoints and tokenizers alike."""
