"""The page that follows the server of a study, in a real browser, when one of the sites is killed."""

import subprocess
from pathlib import Path

import pytest

from tests.flower.served import ROOT, drafted, served_sites
from tests.flower.test_site_processes import MANY, tables
from tests.report.browser import Page
from tests.report.conftest import browser

__all__ = ["browser"]
pytestmark = [pytest.mark.network, pytest.mark.browser, pytest.mark.timeout(1800, method="signal")]


def test_a_site_elsewhere_that_is_killed_is_seen_to_be_missing_and_to_come_back(tmp_path, browser):
    frames, look = tables(MANY), Page(browser, Path("unused"))
    study = drafted(frames, "ill")
    one = study.analyses[0].model_copy(update={"alpha": 0.01, "cv": None, "select": None})
    with served_sites(tmp_path, frames) as world:
        path = world.agreed("study.toml", study.model_copy(update={"analyses": (one,)}))
        command = world.command(path, "out", "--watch")
        with subprocess.Popen(
            command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        ) as server:
            assert server.stderr is not None
            url = next(line.split()[-1] for line in server.stderr if line.startswith("Watch it at"))
            browser.get(url)
            look.until(lambda: "listening at" in look.one(".facts").text)
            look.until(lambda: look.all("#exchanges tbody tr"))
            world.kill("basel")
            look.until(lambda: look.one(".facts").text.endswith("waiting for basel"))
            assert look.texts("#sites tbody th") == list(frames)
            assert look.texts("#sites tbody tr:nth-child(2) td")[1] != "answered"
            assert look.one("#verdict").text == "… running"
            world.start("basel")
            server.stderr.read()
            look.until(lambda: look.one("#verdict").text == "✓ converged")
        assert server.returncode == 0
    assert any("basel" in words for words in look.texts("#happened li"))
    assert look.texts("#sites tbody tr:nth-child(2) td")[1] == "answered"
    assert look.overflow() <= 0
    assert look.errors() == []
