"""`python -m cofed.cli` is the command line, as `cofed` and `python -m cofed` are."""

from cofed.cli import app

if __name__ == "__main__":
    app()
