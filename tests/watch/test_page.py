"""The page that follows a fit, by real requests and in a real browser."""

import contextlib
import http.client
import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from cofed.fitting import FitEvents
from cofed.watch import WatchPage
from tests.fitting import hospitals
from tests.report.browser import NARROW, Page

SITES = [{"name": "bergen", "rows": 90}, {"name": "padua", "rows": 60}]


def begin(path: Path) -> FitEvents:
    """A fit of two sites that has begun."""
    events = FitEvents(path)
    events.tell("begin", title="Logistic model of ill", sites=SITES)
    return events


def exchange(events: FitEvents, what: str = "look") -> None:
    events.tell("exchange", what=what, rounds=1, down=1000, up=2000, seconds=0.5)


def end(events: FitEvents) -> None:
    events.tell("end", ok=True, outcome="converged", words="The files are in out.")


def streamed(url: str, after: int | None = None) -> list[tuple[int, dict]]:
    """All events of the stream until it ends, with their numbers."""
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    with urlopen(Request(f"{url}events", headers=headers)) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        text = answer.read().decode()
    found = re.findall(r"id: (\d+)\ndata: (.*)\n\n", text)
    return [(int(number), json.loads(data)) for number, data in found]


def test_the_stream_tells_everything_and_ends_with_the_fit(tmp_path):
    events = begin(tmp_path / "progress.jsonl")
    with WatchPage(events.path) as page:
        exchange(events)
        end(events)
        told = streamed(page.url)
        assert [(number, event["kind"]) for number, event in told] == [(1, "begin"), (2, "exchange"), (3, "end")]
        assert told[0][1]["sites"] == SITES
        assert [number for number, _ in streamed(page.url, after=2)] == [3]  # a browser that comes back


def test_the_page_is_for_this_machine_and_for_who_knows_its_address(tmp_path):
    events = begin(tmp_path / "progress.jsonl")
    end(events)
    with WatchPage(events.path) as page:
        streamed(page.url)
        parts = urlsplit(page.url)
        assert parts.hostname == "127.0.0.1"
        assert len(parts.path) > 20

        def status(path: str, host: str) -> int:
            asked = http.client.HTTPConnection("127.0.0.1", parts.port)
            asked.request("GET", path, headers={"Host": host})
            with contextlib.closing(asked), asked.getresponse() as answer:
                return answer.status

        assert status(parts.path, parts.netloc) == 200
        assert status("/", parts.netloc) == 404
        assert status(parts.path, "evil.example") == 400  # a web page that has made its name point here
        with urlopen(page.url) as answer:
            assert answer.headers["cache-control"] == "no-store"
            policy = re.search(r'Content-Security-Policy" content="([^"]*)"', answer.read().decode())
        assert policy is not None
        assert policy[1].startswith("default-src 'none'; style-src 'sha256-")
        assert policy[1].endswith("connect-src 'self'")
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection("127.0.0.1", parts.port).request("GET", "/")


@pytest.fixture
def look(browser):
    """A page in the browser, which must not complain."""
    shown = Page(browser, Path("unused"))
    yield shown
    browser.get("about:blank")
    assert shown.errors() == []


def tiles(look: Page) -> dict[str, str]:
    values, words = look.texts(".tile b"), look.texts(".tile span")
    return dict(zip(words, values, strict=True))


@pytest.mark.browser
def test_a_fit_is_followed_from_before_its_beginning_to_its_end(look, tmp_path):
    with WatchPage(tmp_path / "progress.jsonl") as page:
        look.browser.get(page.url)
        assert look.one("h1").text == "Waiting for the fit … running"
        events = begin(tmp_path / "progress.jsonl")
        look.until(lambda: look.texts("#sites tbody th") == ["bergen", "padua"])
        for gap in (1e-1, 1e-4, 1e-9):
            exchange(events)
            events.tell("gap", gap=gap, target=1e-12)
        look.until(lambda: tiles(look).get("exchanges") == "3")
        assert tiles(look)["sent and received"] == "9 kB"
        assert tiles(look)["gap"] == "10⁻⁹"
        look.until(lambda: len(look.all("#charts circle.dot")) == 6)  # three gaps, three exchanges
        heights = look.read("#charts .plot", "circle.dot", "Number(item.getAttribute('cy'))")
        assert heights == sorted(heights)  # the gap falls
        assert look.texts("#exchanges tbody th") == ["3", "2", "1"]
        events.tell("trouble", site="padua", words="padua <b>fell</b> silent; asking again")
        look.until(lambda: look.texts(".notice") == ["padua <b>fell</b> silent; asking again"])
        assert look.texts("#sites td.brief, #sites tbody tr:nth-child(2) td")[-2].startswith("in trouble")
        events.tell("heard", site="padua")
        look.until(lambda: not look.all(".notice"))
        end(events)
        look.until(lambda: look.one("#verdict").text == "✓ converged")
    assert look.one("#verdict").text == "✓ converged"  # it stays when the server has gone
    assert look.one(".facts").text == "The files are in out."


@pytest.mark.browser
def test_a_fit_that_vanishes_is_noticed(look, tmp_path):
    """The server of the page lives in the fit's process: where that is killed, no event says so."""
    code = (
        "import sys, time; from pathlib import Path; from cofed.watch import WatchPage\n"
        "with WatchPage(Path(sys.argv[1])) as page: print(page.url, flush=True); time.sleep(600)"
    )
    events = begin(tmp_path / "progress.jsonl")
    with subprocess.Popen([sys.executable, "-c", code, str(events.path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        look.browser.get(process.stdout.readline().strip())
        look.until(lambda: look.one("h1").text == "Logistic model of ill … running")
        process.kill()
        look.until(lambda: look.one("#verdict").text == "✗ connection lost")
    assert [entry for entry in look.errors() if "ERR_" not in entry["message"]] == []


@pytest.mark.browser
def test_a_phone_shows_it_too(look, tmp_path):
    events = begin(tmp_path / "progress.jsonl")
    exchange(events)
    look.size(*NARROW)
    with WatchPage(events.path) as page:
        look.browser.get(page.url)
        look.until(lambda: tiles(look).get("exchanges") == "1")
        assert look.overflow() <= 0
        end(events)


@pytest.mark.browser
def test_a_real_fit_is_followed(look, tmp_path):
    folder = hospitals.write(tmp_path / "sites", hospitals.pooled())
    words = ["fit", folder, "--target", "cost", "--features", "age,sex", "--in-process", "--watch"]
    words += ["--out", tmp_path / "out"]
    command = [sys.executable, "-m", "cofed", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        url = next(line.split()[-1] for line in process.stderr if line.startswith("Watch it at"))
        look.browser.get(url)
        process.stderr.read()
        look.until(lambda: look.one("#verdict").text == "✓ converged")
        assert look.texts("#sites tbody th") == list(hospitals.SIZES)
        assert int(tiles(look)["exchanges"]) == len(look.all("#exchanges tbody tr")) > 0
    assert process.returncode == 0
