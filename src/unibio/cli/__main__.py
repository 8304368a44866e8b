"""`python -m unibio.cli`."""

from unibio.cli import main

if __name__ == "__main__":
    main()
