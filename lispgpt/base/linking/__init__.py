"""Shared objects in ELF: how they are written, and a linker that makes them of relocatable ones."""
