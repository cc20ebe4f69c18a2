"""Products of many rows on Hopper's warpgroups: bulk copies fill a ring of tiles, warpgroups multiply and store."""
