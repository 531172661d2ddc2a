"""`python -m r2med` is the command `r2med`."""

from r2med.cli import main

main()
