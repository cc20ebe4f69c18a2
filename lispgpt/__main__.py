"""`python -m lispgpt`."""

from lispgpt.cli import main

main()
