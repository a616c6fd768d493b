"""A few real runs on disk, their page, and a browser to look at it."""

import dataclasses
import shutil
from pathlib import Path

import jax
import pandas as pd
import pytest

from cofed.report import write_report
from tests.report import sample
from tests.report.browser import Page, start


@dataclasses.dataclass(frozen=True)
class Sample:
    """Runs in a folder, the page of them, and the numbers that the runs gave."""

    folder: Path
    page: Path
    numbers: pd.DataFrame


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Sample:
    """Four runs, and one that cannot be read."""
    folder = tmp_path_factory.mktemp("runs")
    with jax.numpy_dtype_promotion("standard"):
        numbers = sample.write_all(folder)
    broken = folder / "broken"
    shutil.copytree(folder / "sweep", broken)
    (broken / "config.json").write_text("{")
    return Sample(folder, write_report([folder], folder / "report.html").path, numbers)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """One browser for all tests; skips where there is none."""
    yield from start(tmp_path_factory.mktemp("profile"))


@pytest.fixture
def page(browser, runs):
    """The page of the runs; a test that makes the browser complain has failed."""
    shown = Page(browser, runs.page)
    yield shown
    browser.execute_script("localStorage.clear()")
    assert shown.errors() == []
