"""Makes `python -m unibio.cli` the same as the command `unibio`."""

from unibio.cli import main

if __name__ == "__main__":
    main()
