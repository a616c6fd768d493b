"""The server of the page: one page, one stream of events, on this machine only."""

import asyncio
import contextlib
import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, StreamingResponse
from starlette.routing import Route

from cofed.report.assembly import assembled

HOST = "127.0.0.1"
PAUSE = 0.2  # seconds between two looks into the file
QUIET = 50  # looks after which a browser is told that the server is still there
LATE = 10  # seconds that a page has to come, where the fit was faster than the browser
PATIENCE = 3  # seconds that open pages have to hear the end


class WatchPage:
    """A page that follows the events of a fit, as long as this context lasts.

    It is reached from this machine only, at an address with a secret in it, so that other users of the machine do not
    find it. It shows what the server of a fit knows anyway: names of sites, counts, bytes, and the certificate.

    Parameters
    ----------
    events : Path
        The file of a fit's events, lines of JSON as `cofed fit` writes them.
    port : int, default=0
        Where to listen; 0 takes a free one.

    Attributes
    ----------
    url : str
        The page's address.

    Examples
    --------
    >>> from pathlib import Path
    >>> import tempfile, urllib.request
    >>> from cofed.watch.server import WatchPage
    >>> file = Path(tempfile.mkdtemp()) / "progress.jsonl"
    >>> _ = file.write_text('{"kind": "end"}\\n')
    >>> with WatchPage(file) as page:
    ...     urllib.request.urlopen(f"{page.url}events").read()
    b'id: 1\\ndata: {"kind": "end"}\\n\\n'
    """

    def __init__(self, events: Path, port: int = 0):
        self.listening = socket.create_server((HOST, port))
        place = f"/{secrets.token_urlsafe(16)}/"
        self.url = f"http://{HOST}:{self.listening.getsockname()[1]}{place}"
        self.visited = threading.Event()
        settings = uvicorn.Config(
            application(events, place, self.visited),
            log_config=None,
            lifespan="off",
            timeout_graceful_shutdown=PATIENCE,
        )
        self.server = uvicorn.Server(settings)
        self.thread = threading.Thread(target=self.server.run, args=([self.listening],), daemon=True)

    def show(self) -> None:
        """Open the page in a browser, where there is a screen: elsewhere one would open in the terminal."""
        if sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
            webbrowser.open(self.url)

    def __enter__(self) -> "WatchPage":
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.visited.wait(LATE)
        self.server.should_exit = True
        self.thread.join()
        self.listening.close()


def application(events: Path, place: str, visited: threading.Event) -> Starlette:
    """The page and its stream below a secret path; requests for other hosts are refused, so no site of the web can ask.

    Parameters
    ----------
    events : Path
        The file that is followed.
    place : str
        The path, with a slash at both ends.
    visited : threading.Event
        Set when somebody follows.
    """

    async def page(request: Request) -> HTMLResponse:
        text = assembled("fit.html", ("page.css", "fit.css"), "watch.js", {"title": "A fit"}, connect="'self'")
        return HTMLResponse(text, headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})

    async def stream(request: Request) -> StreamingResponse:
        visited.set()
        last = request.headers.get("last-event-id", "")
        begin = int(last) if last.isdecimal() else 0
        return StreamingResponse(
            followed(events, begin), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    routes = [Route(place, page), Route(f"{place}events", stream)]
    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])
    return Starlette(routes=routes, middleware=[hosts])


async def followed(path: Path, begin: int) -> AsyncIterator[str]:
    """The lines of a file after the first `begin`, as server-sent events, until the one that says that all is over."""
    number, looks, rest = 0, 0, b""
    with contextlib.ExitStack() as opened:
        while not path.exists():
            await asyncio.sleep(PAUSE)
        file = opened.enter_context(open(path, "rb"))
        while True:
            *lines, rest = (rest + file.read()).split(b"\n")
            for line in lines:
                number += 1
                if number > begin:
                    yield f"id: {number}\ndata: {line.decode()}\n\n"
                if b'"kind": "end"' in line:
                    return
            looks = 0 if lines else looks + 1
            if looks % QUIET == QUIET - 1:
                yield ": still here\n\n"
            await asyncio.sleep(PAUSE)
