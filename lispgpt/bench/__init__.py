"""What a model takes on a device, beside what was predicted of it."""
