"""Entry point of ``python -m splitjit``."""

from splitjit._cli.main import run

if __name__ == "__main__":
    run()
