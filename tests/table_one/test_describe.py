"""Table 1 from sums and histograms says what the pooled rows say."""

import io
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from rich.console import Console
from typer.testing import CliRunner

import cofed
from cofed.cli import app
from cofed.sites import AbstractSites, MemorySites, QuestionRefused, SiteRows, TableMismatch
from cofed.sites.queries import HistogramMessage, histogram
from cofed.table_one import terminal, write_page
from cofed.table_one.quantiles import QUANTILES
from tests.sites import worlds

finite = st.floats(-1e9, 1e9, allow_subnormal=False)


def check(found: cofed.Description, table: pd.DataFrame, own: np.ndarray) -> None:
    """Every number against pandas, of all rows and of each site's."""
    for variable in found.variables:
        groups = {"": table[variable.name]} | {str(m): table[variable.name][own == m] for m in np.unique(own)}
        for site, values in groups.items():
            one = variable.everywhere if site == "" else variable.by_site[site]
            assert (one.rows, one.missing) == (len(values), values.isna().sum())
            there = values.dropna()
            if variable.levels is not None:
                assert one.counts == tuple((there == level).sum() for level in variable.levels)
                continue
            there = there.to_numpy(float)
            assert variable.binary == bool(table[variable.name].dropna().isin([0, 1]).all())
            if variable.binary:
                assert one.counts == ((there == 0).sum(), (there == 1).sum())
            if not len(there):
                assert np.isnan(one.mean)
                assert all(np.isnan(quantile.value) for quantile in one.quantiles)
                continue
            spread = table[variable.name].astype(float).std(ddof=0)
            assert one.mean == pytest.approx(there.mean(), rel=1e-9, abs=1e-12 * spread)
            if len(there) > 1:
                assert one.sd == pytest.approx(there.std(ddof=1), rel=1e-6, abs=1e-7 * spread)
            for quantile, q in zip(one.quantiles, QUANTILES, strict=True):
                exact = np.quantile(there, q, method="inverted_cdf")
                slack = 4 * np.spacing(np.abs(there).max())
                assert abs(quantile.value - exact) <= quantile.width / 2 + slack


@given(worlds.frames(gaps=True))
def test_tables_are_described_as_pandas_describes_them(world):
    table, own = world
    found = cofed.describe(table.assign(site=own), client="site")
    assert [variable.name for variable in found.variables] == list(table.columns)
    check(found, table, own)
    assert [one.what for one in found.exchanges] == ["columns", "observed", "observed", "histogram", "histogram"]


@given(hnp.arrays(np.float64, st.integers(2, 60), elements=finite), st.integers(1, 3), st.sampled_from([0, 1e6, 1e12]))
def test_quartiles_of_any_numbers_are_exact_to_their_resolution(values, sites, offset):
    own = np.arange(len(values)) % sites
    table = pd.DataFrame({"x": values + offset, "y": np.arange(len(values)) / 7})
    found = cofed.describe(table.assign(site=own), client="site")
    check(found, table, own)


@given(hnp.arrays(np.int64, st.integers(2, 60), elements=st.integers(-50, 50)))
def test_quartiles_of_whole_numbers_are_exact(values):
    table = pd.DataFrame({"x": values, "y": np.arange(len(values)) / 7})
    found = cofed.describe({"a": table})
    for variable in found.variables:
        if variable.name == "x":
            for quantile, q in zip(variable.everywhere.quantiles, QUANTILES, strict=True):
                assert (quantile.value, quantile.width) == (np.quantile(values, q, method="inverted_cdf"), 0)


def test_the_resolution_is_fine(tmp_path):
    values = np.random.default_rng(0).lognormal(size=20_000)
    found = cofed.describe({"a": pd.DataFrame({"x": values[:5000]}), "b": pd.DataFrame({"x": values[5000:]})})
    one = found.variables[0].everywhere
    assert max(quantile.width for quantile in one.quantiles) < 0.003 * one.sd
    edges, counts = found.variables[0].bars
    inside = ((values > edges[:-1, None]) & (values <= edges[1:, None])).sum(axis=1)
    assert counts.tolist() == inside.tolist()
    assert counts.sum() > 0.98 * len(values)


def test_histograms_count_what_numpy_counts():
    X = np.array([[1.0, np.nan], [2.0, 5.0], [2.5, 7.0], [9.0, 5.5]])
    sites = MemorySites(SiteRows.of_sites(("a", "b"), [X[:1], X[1:]], [np.zeros(0)] * 2))
    edges = np.array([[1.0, 2.0, 3.0], [5.0, 6.0, 6.5], [0.0, 1.5, 2.0]])
    message = HistogramMessage(np.array([0, 1, 0]), edges)
    assert sites.ask(histogram, message).tolist() == [[1, 1, 1, 1], [1, 1, 0, 1], [0, 1, 1, 2]]
    assert sites.ask_each(histogram, message)["a"].tolist() == [[1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]]
    assert [one.rounds for one in sites.exchanges] == [1, 1]
    for bad in (HistogramMessage(np.array([2]), edges[:1]), HistogramMessage(np.array([0]), edges[:1, ::-1])):
        with pytest.raises(QuestionRefused):
            sites.ask(histogram, bad)
        with pytest.raises(QuestionRefused):
            sites.ask_each(histogram, bad)


class SumsOnly(AbstractSites):
    """Sites that give no answer of their own."""

    def __init__(self, sites: MemorySites):
        self.inside = sites
        self.names, self.sizes, self.n_features = sites.names, sites.sizes, sites.n_features
        self.feature_names, self.exchanges = sites.feature_names, sites.exchanges

    def exchange(self, query, message):
        return self.inside.exchange(query, message)

    def of_numbers(self):
        raise NotImplementedError

    def of_classes(self):
        raise NotImplementedError

    def with_class_weight(self, weights):
        raise NotImplementedError

    def train(self, *arguments):
        raise NotImplementedError


def test_sites_that_give_sums_only_are_described_together():
    X = np.random.default_rng(1).normal(size=(50, 2))
    sites = MemorySites(SiteRows.of_sites(("a", "b"), [X[:20], X[20:]], [np.zeros(0)] * 2), ("u", "v"))
    own, summed = cofed.describe(sites), cofed.describe(SumsOnly(sites))
    for one, other in zip(own.variables, summed.variables, strict=True):
        assert other.by_site == {}
        assert other.everywhere.mean == pytest.approx(one.everywhere.mean, rel=1e-12)
        for a, b in zip(one.everywhere.quantiles, other.everywhere.quantiles, strict=True):
            assert a.value == pytest.approx(b.value, rel=1e-12)
    assert "b" not in drawn(summed).split()
    assert summed.sites == {"a": 20, "b": 30}


def drawn(found: cofed.Description) -> str:
    """The table as a terminal shows it."""
    screen = Console(width=120, record=True, file=io.StringIO())
    screen.print(terminal(found))
    return screen.export_text()


def folder(path) -> pd.DataFrame:
    """Three hospitals' files; the rows of all."""
    tables = {name: worlds.hospital(50, m, 0.1) for m, name in enumerate(["Bern", "Oslo", "<b>"])}
    for name, table in tables.items():
        table.assign(born="2001-12-31").to_csv(path / f"{name}.csv".replace("<b>", "a & b"), index=False)
    return pd.concat(tables.values())


def test_the_command_prints_and_writes_the_table(tmp_path):
    (tmp_path / "sites").mkdir()
    table = folder(tmp_path / "sites")
    csv, page = tmp_path / "t.csv", tmp_path / "t.html"
    done = CliRunner().invoke(
        app,
        ["describe", str(tmp_path / "sites"), "--csv", str(csv), "--html", str(page)],
        env={"COLUMNS": "120", "TERM": "dumb", "NO_COLOR": "1"},
    )
    assert done.exit_code == 0, done.output
    line = next(line for line in done.output.splitlines() if "mean (sd)" in line)
    assert line.split()[2:4] == [f"{table['age'].mean():.1f}", f"({table['age'].std():.1f})"]
    assert "Not described: born: it holds dates or times" in done.output
    numbers = pd.read_csv(csv, keep_default_na=False, na_values=[""])
    whole = numbers[numbers["site"].isna()].set_index("variable")
    assert whole.loc["age", "mean"] == pytest.approx(table["age"].mean())
    assert whole.loc["age", "p50"] == np.quantile(table["age"].dropna(), 0.5, method="inverted_cdf")
    counts = numbers[(numbers["variable"] == "ward") & (numbers["site"] == "Oslo")].set_index("level")["count"]
    assert counts.to_dict() == pd.read_csv(tmp_path / "sites" / "Oslo.csv")["ward"].value_counts().to_dict()
    text = page.read_text()
    assert text.count("<svg") == 6
    assert "a &amp; b" in text
    assert re.search(r"default-src 'none'; style-src 'sha256-", text)
    assert "<script" not in text
    assert " style=" not in text  # the policy would refuse it


def test_the_page_escapes_names(tmp_path):
    found = cofed.describe({"<i>": pd.DataFrame({"<b>x": [1.0, 2.5], "f": ["<u>", "v"]})})
    write_page(found, tmp_path / "t.html", "<title>")
    text = (tmp_path / "t.html").read_text()
    assert not re.search("<(i|b|u)>", text)
    assert "&lt;b&gt;x" in text


def test_numbers_whose_squares_overflow_are_refused_and_do_not_hang():
    with pytest.raises(ValueError, match="column 'x' has numbers whose squares are too large"):
        cofed.describe({"oslo": pd.DataFrame({"x": [1e300, -2e300, 3.5]}), "rome": pd.DataFrame({"x": [1.0, 2.5]})})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none"], "SITES: there is no file or folder none; expected: a folder with a table per site"),
        (["t.csv"], "is a file; give a folder"),
        (["t.csv", "--client", "y"], "there is no client column 'y'"),
        ([".", "--html", "t.pdf"], "--html: t.pdf must end in .html or .htm"),
        (["t.csv", "--client", "x", "--csv", "t.csv"], "--csv: t.csv is the table that is described; give another"),
        ([".", "--csv", "t.csv"], "--csv: t.csv would be among the tables of the sites in .; give a file in another"),
        ([".", "--csv", "table1.csv"], "--csv: table1.csv would be among the tables of the sites in ."),
        ([".", "--plain"], "--plain is for sites in processes of their own: give --processes, too"),
    ],
)
def test_bad_input_is_refused(tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"x": [1, 2]}).to_csv("t.csv", index=False)
    done = CliRunner().invoke(app, ["describe", *arguments], env={"COLUMNS": "200", "TERM": "dumb"})
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())
    assert pd.read_csv("t.csv")["x"].tolist() == [1, 2]  # a table is never written over


def test_tables_that_do_not_fit_together_are_refused():
    with pytest.raises(TableMismatch, match="column 'x' holds numbers at 'a', but text at 'b'"):
        cofed.describe({"a": pd.DataFrame({"x": [1.0, 2.0]}), "b": pd.DataFrame({"x": ["u", "v"]})})
    with pytest.raises(ValueError, match="needs client="):
        cofed.describe(pd.DataFrame({"x": [1.0]}))
    with pytest.raises(ValueError, match="client= is for one table"):
        cofed.describe({"a": pd.DataFrame({"x": [1.0]})}, client="x")
