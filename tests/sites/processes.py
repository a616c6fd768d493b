"""Sites whose rows are in processes of their own: this process never has them."""

import functools
import multiprocessing
from multiprocessing.connection import Connection

import jax
import numpy as np

from cofed.sites import AbstractSites, SiteRows
from cofed.sites.exchanges import Exchange, Exchanges
from cofed.sites.queries import QUERIES


def site(connection: Connection, name: str, make) -> None:
    """A site's process: it makes its own rows, and answers questions about them until it is told to end."""
    jax.config.update("jax_enable_x64", True)
    rows = SiteRows.of_sites((name,), *([part] for part in make()))
    labels = rows
    while (asked := connection.recv()) is not None:
        what, content = asked
        if what == "about":
            columns = rows.y.shape[1] if rows.y.ndim == 2 else 1
            connection.send((len(rows.X), rows.X.shape[1], np.unique(rows.y).tolist(), columns))
        elif what == "classes":
            labels = rows if content is None else rows.with_labels(np.searchsorted(content, rows.y).astype(np.int32))
            connection.send(None)
        else:
            connection.send((QUERIES[what].refuses(*labels.of_site(0), content), labels.answer(QUERIES[what], content)))


class ProcessSites(AbstractSites):
    """One process for every site, each of which makes its own rows by a function."""

    def __init__(self, makers):
        context = multiprocessing.get_context("spawn")
        self.names, self.connections, self.processes = tuple(makers), [], []
        for name, make in makers.items():
            here, there = context.Pipe()
            process = context.Process(target=site, args=(there, name, make), daemon=True)
            process.start()
            self.connections.append(here)
            self.processes.append(process)
        about = self.tell("about", None)
        self.sizes = tuple(n for n, *_ in about)
        self.n_features, self.feature_names, self.columns = about[0][1], None, about[0][3]
        self.labels = np.unique(np.concatenate([labels for _, _, labels, _ in about]))
        self.exchanges = Exchanges()

    def tell(self, what, content):
        for connection in self.connections:
            connection.send((what, content))
        return [connection.recv() for connection in self.connections]

    def exchange(self, query, message):
        answers = self.tell(query.name, message)
        assert all(reason is None for reason, _ in answers)
        total = functools.reduce(lambda a, b: jax.tree.map(np.add, a, b), [answer for _, answer in answers])
        shapes = jax.tree.map(np.shape, query.shape(message, self.n_features))
        assert jax.tree.map(np.shape, total) == shapes
        return total, 0, 0

    def ask_each(self, query, message):
        answers = self.tell(query.name, message)
        assert all(reason is None for reason, _ in answers)
        self.exchanges.append(Exchange(query.name, 1, 0, 0, 0.0))
        return dict(zip(self.names, (answer for _, answer in answers), strict=True))

    def alone(self, site):
        return OneProcess(self, self.names.index(site))

    def of_numbers(self):
        self.tell("classes", None)
        return self

    def of_responses(self):
        return self.of_numbers(), tuple(f"y{j}" for j in range(self.columns))

    def of_classes(self):
        self.tell("classes", self.labels)
        return self, self.labels

    def with_class_weight(self, weights):
        raise NotImplementedError

    def train(self, plan, w):
        raise NotImplementedError

    def close(self):
        for connection in self.connections:
            connection.send(None)
        for process in self.processes:
            process.join(30)


class OneProcess(ProcessSites):
    """One of the sites by itself."""

    def __init__(self, all_sites, place):
        self.names, self.sizes = (all_sites.names[place],), (all_sites.sizes[place],)
        self.connections, self.n_features, self.feature_names = (
            [all_sites.connections[place]],
            all_sites.n_features,
            None,
        )
        self.exchanges = all_sites.exchanges
