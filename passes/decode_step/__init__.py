"""A decode step in one launch: its layers are split over clusters of blocks, which exchange sums of what they have."""
