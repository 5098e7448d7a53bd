"""``python -m splitjit``: see `splitjit._cli.main`."""

from splitjit._cli.main import run

if __name__ == "__main__":
    run()
