"""`python -m unibio.cli`."""

from unibio.cli import main

main()
