"""Flower's processes on this machine: a SuperLink, SuperNodes and a run, started and reliably stopped.

Everything that is started carries a mark in its environment, and so do all its children, even those that Flower
detaches: `Processes.stop` ends exactly the processes that carry the mark, by their ids. Where this process is killed, a
guardian does it (`cofed.flower.guardian`).
"""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from cofed._util.files import atomically, private_append, private_folder
from cofed.flower.flwr_types import Process

MARK = "COFED_PROCESSES"
PORTS = (15_000, 32_000)
GRACE = 3.0  # seconds between the polite signal and the last one


class Processes:
    """Processes that were started together, with their logs and Flower's own home in one folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.mark = uuid.uuid4().hex
        self.started: dict[str, subprocess.Popen] = {}
        self.replaced: list[subprocess.Popen] = []  # earlier ones of the same names
        self.guardian: subprocess.Popen | None = None
        private_folder(folder)
        private_folder(folder / "logs")

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def environment(self) -> dict[str, str]:
        """The environment of what is started.

        There is no telemetry, no look for newer versions, and nothing is written into the user's home. Flower finds its
        own programs beside this Python.
        """
        paths = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
        return os.environ | {
            "FLWR_HOME": str(self.folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
            "PYTHONUNBUFFERED": "1",
            "PATH": os.pathsep.join(paths),
            MARK: self.mark,
        }

    def start(self, name: str, *command: str, **environment: str) -> subprocess.Popen:
        """Start a program of Flower; its output goes to a log."""
        self.guard()
        private_folder(self.folder / "flwr")
        with private_append(self.log(name), "ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment() | environment,
                start_new_session=True,  # a Ctrl-C is for us, who stop them in order
                umask=0o077,  # what Flower keeps of messages and states is for the owner alone
            )
        if name in self.started:
            self.replaced.append(self.started[name])
        self.started[name] = process
        return process

    def guard(self) -> None:
        """Have everything ended also where this process is killed."""
        if self.guardian is None:
            self.guardian = subprocess.Popen(
                [sys.executable, "-m", "cofed.flower.guardian"],
                stdin=subprocess.PIPE,  # whose other end nobody but this process holds
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=self.environment(),
                start_new_session=True,
            )

    def log(self, name: str) -> Path:
        """The log of a process."""
        return self.folder / "logs" / f"{name}.log"

    def tail(self, name: str, lines: int = 20) -> str:
        """The end of a log, for a sentence on what went wrong."""
        text = self.log(name).read_text(errors="replace") if self.log(name).exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def ours(self) -> list[Process]:
        """All living processes that carry our mark."""
        return marked(self.mark)

    def family(self, name: str) -> list[Process]:
        """A process and all that it has started, the detached ones included."""
        import psutil

        try:
            root = psutil.Process(self.started[name].pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """End a process and all that it has started."""
        for process in self.family(name):
            send(process, number)
        self.started[name].wait()

    def stop(self) -> None:
        """End everything that carries our mark: first by request, then by force. A second Ctrl-C changes nothing."""
        with undisturbed():
            self.signal_all()

    def signal_all(self) -> None:
        """Send signals until nothing is left."""
        began, number = time.monotonic(), signal.SIGTERM
        while left := self.ours():
            for process in left:
                send(process, number)
            time.sleep(0.2)
            for process in (*self.started.values(), *self.replaced):
                process.poll()
            if time.monotonic() - began > GRACE:
                number = signal.SIGKILL
        for process in (*self.started.values(), *self.replaced):
            process.wait()
        if self.guardian is not None:
            self.guardian.communicate()
            self.guardian = None


def marked(mark: str) -> list[Process]:
    """All living processes that carry a mark."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):  # of another user, or gone by now
            continue
    return found


class TerminationSignal(KeyboardInterrupt):
    """A signal to end, other than Ctrl-C's."""


ENDINGS = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def ending_in_order() -> Iterator[None]:
    """Let SIGTERM, and the closing of the terminal, end the block as Ctrl-C does, so that all is stopped in order."""

    def interrupt(number: int, _: FrameType | None) -> None:
        raise TerminationSignal(signal.Signals(number).name)

    heard = [number for number in ENDINGS if signal.getsignal(number) is not signal.SIG_IGN]  # not under nohup
    before = {number: signal.signal(number, interrupt) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore signals that would break off the block."""
    if threading.current_thread() is not threading.main_thread():  # where signals do not come
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, *ENDINGS)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def send(process: Process, number: int) -> None:
    """Send a signal to a process that may be gone."""
    import psutil

    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody uses now.

    They are below those that the system hands out to outgoing connections, so that none of these takes one before
    Flower does.
    """
    found: list[int] = []
    for _ in range(1000 * count):
        port = random.SystemRandom().randrange(*PORTS)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError(f"no free port on 127.0.0.1 from {PORTS[0]} to {PORTS[1]}")


def listens(port: int) -> bool:
    """Whether somebody answers at a port on loopback."""
    with socket.socket() as one:
        one.settimeout(0.2)
        return one.connect_ex(("127.0.0.1", port)) == 0


class LocalNetwork(Processes):
    """A SuperLink, SuperNodes and runs on loopback; the SuperLink may listen at another address and port.

    They talk over TLS, with authenticated nodes, where `certificates` is a folder that `cofed.flower.certificates` has
    made.
    """

    def __init__(self, folder: Path, certificates: Path | None = None, host: str = "127.0.0.1", port: int = 0):
        super().__init__(folder)
        self.certificates = certificates
        self.host, self.port = host, port or free_ports(1)[0]

    @property
    def address(self) -> str:
        """Where the SuperLink is, for processes on this machine."""
        return f"127.0.0.1:{self.port}"

    def superlink(self, patience: float = 300.0, secret: Path | None = None) -> None:
        """Start the SuperLink and wait until it answers.

        With a file that holds a secret, runs are for the process that knows it (see `cofed.flower.runtime`); without
        one, the SuperLink starts a process for each.
        """
        security = ["--insecure"]
        if self.certificates is not None:
            at = self.certificates
            security = ["--ssl-ca-certfile", str(at / "ca.crt"), "--ssl-certfile", str(at / "server.pem")]
            security += ["--ssl-keyfile", str(at / "server.key"), "--enable-supernode-auth"]
        host = ["--host", self.host, "--port", str(self.port)]
        if secret is not None:
            host += ["--isolation", "process", "--superexec-auth-secret-file", str(secret)]
        process = self.start(
            "superlink", "flower-superlink", *security, *host, "--disable-runtime-dependency-installation"
        )
        self.await_port("superlink", process, self.port, patience)
        trust = "insecure = true"
        if self.certificates is not None:
            trust = f'root-certificates = "{self.certificates / "ca.crt"}"'
        text = f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{self.address}"\n{trust}\n'
        atomically(self.folder / "flwr" / "config.toml", lambda name: Path(name).write_text(text))

    def await_port(self, name: str, process: subprocess.Popen, port: int, patience: float) -> None:
        """Wait until a process answers at its port."""
        began = time.monotonic()
        while not listens(port):
            if process.poll() is not None or time.monotonic() - began > patience:
                raise RuntimeError(f"the {name} did not start; the end of its log:\n{self.tail(name)}")
            time.sleep(0.1)

    def register(self, site: str, key: Path) -> None:
        """Let the SuperLink know a node's public key."""
        self.command("flwr", "supernode", "register", str(key), "here", "--name", site)

    def supernode(self, site: str, *, root: Path | None = None, key: Path | None = None, **config: object) -> None:
        """Start a site's SuperNode; a wrong certificate or key may be given on purpose."""
        security = ["--insecure"]
        if self.certificates is not None:
            security = ["--root-certificates", str(root or self.certificates / "ca.crt")]
            security += ["--auth-supernode-private-key", str(key or self.certificates / f"{site}.key")]
        settings = " ".join(f"{name}={toml(value)}" for name, value in {"site": site, **config}.items())
        port = free_ports(1)[0]
        host = ["--superlink", self.address, "--host", "127.0.0.1", "--port", str(port)]
        self.start(site, "flower-supernode", *security, *host, "--node-config", settings)

    def run(self, app: Path, name: str = "run", **config: object) -> subprocess.Popen:
        """Start a run of a Flower app."""
        settings = " ".join(f"{key}={toml(value)}" for key, value in config.items())
        command = ["flwr", "run", str(app), "here", "--stream"]
        return self.start(name, *command, *(["--run-config", settings] if settings else []))

    def command(self, *command: str, limit: float = 300.0) -> str:
        """A short command of Flower, whose output is given back."""
        done = subprocess.run(
            command, env=self.environment(), capture_output=True, text=True, timeout=limit, check=False, umask=0o077
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command[:3])} failed: {(done.stderr or done.stdout).strip()[-500:]}")
        return done.stdout


def toml(value: object) -> str:
    """A value as it is written in TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    text = str(value)
    if "'" in text or "\n" in text:
        raise ValueError(f"{text!r} has a quote or a line break, which Flower's settings cannot hold")
    return f"'{text}'"
