"""The page of logs in a real browser: what is shown is what the log says."""

import pytest
from typer.testing import CliRunner

from cofed.cli import app
from cofed.sites.audit import AuditLog, verify
from tests.report.browser import NARROW, Page
from tests.sites.audit.worlds import Signer, answer, fit

pytestmark = pytest.mark.browser
HOSTILE = "</script><b>look"


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Two logs, of which one has all kinds of lines, and a copy of it that was changed."""
    where = tmp_path_factory.mktemp("audit")
    paths = fit(where)
    own = AuditLog(paths["oslo"], "oslo", Signer("oslo").sign)
    own.add(answer(7, query=HOSTILE, is_masked=False, sites=()))
    own.add(answer(8, event="refusal", decision="refused", rule="points", size=80, note=f"Not {HOSTILE}."))
    changed = where / "changed" / "oslo" / "audit.jsonl"
    changed.parent.mkdir(parents=True)
    changed.write_bytes(paths["oslo"].read_bytes().replace(b'"size":80', b'"size":81'))
    return paths | {"changed": changed}


@pytest.fixture
def page(browser, logs, tmp_path):
    """Opens the page of some logs; a test that makes the browser complain has failed."""
    shown = Page(browser, tmp_path / "audit.html")

    def opened(*names: str) -> Page:
        given = [word for name in names for word in (str(logs[name]), "--key", Signer(logs[name].parent.name).public)]
        CliRunner().invoke(app, ["audit", *given, "--html", str(shown.path)])
        shown.open()
        return shown

    yield opened
    browser.execute_script("localStorage.clear()")
    assert shown.errors() == []


def test_it_shows_every_line_as_the_log_has_it(page, logs):
    shown, lines = page("oslo"), verify(logs["oslo"]).lines
    assert shown.one("h1").text == "What left oslo ✓ it holds"
    assert [int(text) for text in shown.texts(".lines tbody th")] == [line.seq for line in lines]
    assert shown.texts(".lines tbody td:nth-child(3)") == [line.event for line in lines]
    hashes = [(line.content or "")[:16] or "\N{EN DASH}" for line in lines]
    assert shown.texts(".lines tbody td:nth-child(11)") == hashes
    tiles = dict(zip(shown.texts(".tile span"), shown.texts(".tile b"), strict=True))
    assert tiles == {"answers left": "7", "left": "11.1 kB", "plain, not masked": "1", "refused": "1"}
    assert HOSTILE in " ".join(shown.texts(".summary tbody th"))
    assert f"Not {HOSTILE}." in shown.one(".said").text
    assert shown.browser.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_two_logs_have_a_heading_each_and_witness_each_other(page):
    shown = page("oslo", "rome")
    assert shown.texts(".title h2") == ["oslo ✓ it holds", "rome ✓ it holds"]
    assert "6 of its heads are in the logs of rome." in shown.one(".checked").text


def test_a_changed_log_says_so_first(page):
    shown = page("changed")
    assert shown.one("h1").text == "What left oslo ✗ it does not hold"
    assert "Line 9 is not signed with the site's key." in shown.one(".notice").text


def test_lines_are_sorted_by_a_click(page):
    shown = page("oslo")
    button = shown.all(".lines thead button")[0]
    before = shown.texts(".lines tbody th")
    shown.press(button)
    shown.press(button)
    assert shown.texts(".lines tbody th") == before[::-1]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_a_phone(page, theme):
    shown = page("oslo", "rome")
    shown.prefer(theme)
    shown.size(*NARROW)
    shown.open()
    assert shown.overflow() <= 0
    assert shown.colour("body", "backgroundColor") == {"light": "rgb(246, 246, 244)", "dark": "rgb(15, 17, 20)"}[theme]
