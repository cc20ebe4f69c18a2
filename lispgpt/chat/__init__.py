"""Conversations as prompts: chat templates, the tokens of what they render, and what in an answer is reasoning."""
