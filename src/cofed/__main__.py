"""`python -m cofed` is the command line."""

from cofed.cli import app

app()
