"""A process that ends what another has started, when that one is gone: `python -m cofed.flower.guardian`.

It waits for the end of its standard input, a pipe of the one that it stands in for. The system closes that however its
owner ends, also where the owner was killed and could stop nothing itself.
"""

import os
import signal
import sys
import time

from cofed.flower.processes import GRACE, MARK, marked, send


def end_others(mark: str) -> None:
    """End all other processes that carry a mark: first by request, then by force."""
    began, number = time.monotonic(), signal.SIGTERM
    while left := [process for process in marked(mark) if process.pid != os.getpid()]:
        for process in left:
            send(process, number)
        time.sleep(0.2)
        if time.monotonic() - began > GRACE:
            number = signal.SIGKILL


if __name__ == "__main__":
    sys.stdin.buffer.read()
    end_others(os.environ[MARK])
