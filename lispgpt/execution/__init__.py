"""Compiled entries with their weights on a device, and the text that they generate."""
