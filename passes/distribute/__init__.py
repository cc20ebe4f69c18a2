"""What devices share: their parts of the batch and of the optimizer's states, and the sums that they exchange."""
