"""Tile programs to what chips execute, by capability."""
