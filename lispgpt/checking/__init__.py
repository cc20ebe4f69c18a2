"""Whether a device computes what a model says, and if not, which kernel is the first that does not."""
