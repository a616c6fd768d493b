"""`cofed advise`: what it recommends, what it leaves out by name, what it refuses in a sentence."""

import io
import json

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

import cofed
from cofed.advise import show, words
from cofed.advise.advice import advise
from cofed.advise.table import Columns, prepare, read
from cofed.cli import app


def table(spread=0.0, n=150, sites="abc", seed=0):
    """Logistic regression at three sites whose coefficients differ by `spread`."""
    rng = np.random.default_rng(seed)
    parts = []
    for name in sites:
        w = np.array([1.0, -1.0]) + spread * rng.normal(size=2)
        X = rng.normal(size=(n, 2))
        y = (rng.random(n) < 1 / (1 + np.exp(-X @ w))).astype(int)
        parts.append(pd.DataFrame({"site": name, "age": 50 + 10 * X[:, 0], "dose": X[:, 1], "ill": y}))
    return pd.concat(parts, ignore_index=True)


def command(tmp_path, df, *options):
    path = tmp_path / "data.csv"
    df.to_csv(path, index=False)
    return CliRunner(env={"COLUMNS": "140"}).invoke(app, ["advise", str(path), *options])


@pytest.fixture(scope="module")
def alike():
    return advise(prepare(table(), Columns("ill", "site")))


def test_sites_that_are_alike_share(alike):
    assert alike.better == "shared"
    assert alike.apart.difference < 0
    assert "One model for all sites" in words.recommendation(alike) or alike.recommendation == "prox"


def test_sites_that_are_unlike_do_not():
    found = advise(prepare(table(spread=4.0), Columns("ill", "site")))
    assert found.better == "local"
    assert found.risks[0] < found.risks[-1]
    assert found.sure > 0.95


def test_the_page_says_what_the_figures_say(alike):
    page = show.page(alike)
    assert page.count("<svg") == 1
    assert f"{alike.risks[-1]:.4f}" in page
    for name in ("a", "b", "c"):
        assert f"<td>{name}</td>" in page
    assert "http" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    ).replace("https://matplotlib.org", "")
    said = json.loads(show.as_json(alike))
    assert said["recommendation"] == alike.recommendation
    assert len(said["held_out_loss"]) == len(said["strengths"])
    assert said["strengths"][-1] is None


def test_names_of_sites_cannot_break_the_page():
    df = table(sites=["<script>alert(1)</script>", "b&b", "c"])
    page = show.page(advise(prepare(df, Columns("ill", "site"))))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_names_of_sites_are_no_markup(tmp_path):
    done = command(tmp_path, table(sites=["[/red] x", "[bold]b[/bold]", "c"]), "--target", "ill", "--client", "site")
    assert done.exit_code == 0, done.output
    assert "[/red] x" in done.output
    assert "[bold]b[/bold]" in done.output


def test_the_command_writes_a_page_and_a_figure(tmp_path):
    html, figure = tmp_path / "advice.html", tmp_path / "risk.png"
    done = command(
        tmp_path, table(), *("--target", "ill", "--client", "site", "--html", str(html), "--figure", str(figure))
    )
    assert done.exit_code == 0, done.output
    assert "Should these 3 sites share one model?" in done.output
    assert "Site by site" in done.output
    assert html.read_text().startswith("<!doctype html>")
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_used_is_left_out_by_name():
    df = table()
    rng = np.random.default_rng(0)
    df["constant"] = 1.0
    df["twice"] = 2 * df["dose"] + 1
    df["id"] = np.arange(len(df))
    df["note"] = [f"text {i}" for i in range(len(df))]
    df["gaps"] = np.where(rng.random(len(df)) < 0.3, np.nan, 1.0)
    df["sex"] = rng.choice(["f", "m"], len(df))
    df.loc[[3, 9], "age"] = np.nan
    df.loc[df.site == "a", "ill"] = 1
    df.loc[5, "ill"] = np.nan
    tiny = df[df.site == "b"].head(4).assign(site="tiny", id=range(1000, 1004))
    ready = prepare(pd.concat([df, tiny]), Columns("ill", "site"))
    assert ready.federation.feature_names == ("age", "dose", "sex=m")
    assert ready.federation.names == ("b", "c")
    assert ready.excluded["a"] == "its target has one class only"
    assert "only 4 rows" in ready.excluded["tiny"]
    said = " ".join(ready.notes)
    for name in ("constant", "twice", "id", "note", "gaps"):
        assert name in said
    assert "1 of 454 rows are left out: the target 'ill' is missing" in said
    pooled = ready.federation.pooled()[0]
    np.testing.assert_allclose(pooled.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(pooled.std(axis=0), 1, rtol=1e-12)


def test_excels_files_are_read(tmp_path):
    path = tmp_path / "excel.csv"
    path.write_bytes("\ufeffsite;age;ill\n007;1,5;1\n008;2,5;0\n".encode())
    df = read(path, "site")
    assert df["site"].tolist() == ["007", "008"]


def test_a_column_that_varies_only_in_an_excluded_site_is_named():
    df = table().assign(rare=0.0)
    tiny = df[df.site == "b"].head(4).assign(site="tiny", rare=[0.0, 1.0, 2.0, 3.0])
    ready = prepare(pd.concat([df, tiny]), Columns("ill", "site"))
    assert "rare" not in ready.federation.feature_names
    assert any("rare" in note for note in ready.notes)


def test_rows_of_a_group_stay_together():
    df = table()
    df["person"] = np.arange(len(df)) // 3
    ready = prepare(df, Columns("ill", "site", group="person"))
    assert "person" not in ready.federation.feature_names
    for fold, group in zip(ready.federation.fold_of(5, 0, ready.groups), ready.groups, strict=True):
        for label in set(group):
            assert len(set(fold[group == label])) == 1


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        (lambda rng, n: rng.normal(size=n), "linear"),
        (lambda rng, n: rng.choice(["yes", "no"], n), "logistic"),
        (lambda rng, n: rng.choice([True, False], n), "logistic"),
        (lambda rng, n: rng.choice(["red", "green", "blue"], n), "multinomial"),
        (lambda rng, n: rng.integers(0, 6, n), "linear"),
    ],
)
def test_the_target_chooses_the_model(target, kind):
    df = table()
    df["ill"] = target(np.random.default_rng(0), len(df))
    assert prepare(df, Columns("ill", "site")).kind == kind


BAD = {
    "no such column": ("--target il --client site", "no target column 'il'; did you mean 'ill'"),
    "one site": ("--target ill --client one", "has the one value 1: there is nothing to compare"),
    "no target": ("--target empty --client site", "the target 'empty' is missing in every row"),
    "constant target": ("--target one --client site", "nothing to predict"),
    "same column": ("--target ill --client ill", "must be different columns"),
    "no feature": ("--target ill --client site --features nope", "no feature column 'nope'"),
    "target as feature": ("--target ill --client site --features ill", "cannot be a feature"),
    "unknown model": ("--target ill --client site --model magic", "there is no model 'magic'"),
    "text for a linear model": ("--target word --client site --model linear", "holds text"),
    "tiny sites": ("--target ill --client person", "fewer than two sites can be compared"),
    "page": ("--target ill --client site --html page.doc", "must end in .html"),
    "folder": ("--target ill --client site --html folder.html", "is a folder"),
    "folds": ("--target ill --client site --folds 1", "from 2 to 50"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_a_sentence(case, tmp_path):
    options, expected = BAD[case]
    (tmp_path / "folder.html").mkdir()
    options = options.replace("folder.html", str(tmp_path / "folder.html"))
    df = table(n=20).assign(one=1, empty=np.nan, word="a")
    df.loc[3, "word"] = "b"
    df["person"] = np.arange(len(df))
    done = command(tmp_path, df, *options.split())
    assert done.exit_code == 2
    assert expected in " ".join(done.output.replace("│", " ").split()), done.output
    assert "Traceback" not in done.output


def test_files_that_are_no_tables_get_a_sentence(tmp_path):
    runner = CliRunner(env={"COLUMNS": "200"})
    (tmp_path / "a.parquet").write_bytes(b"no")
    (tmp_path / "a.xlsx").write_bytes(b"no")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "twice.csv").write_text("y,s,age,age\n1,a,2,3\n")
    (tmp_path / "latin.csv").write_bytes("y,s,âge\n1,a,2\n".encode("latin-1"))
    for name, words_ in (
        ("a.parquet", "could not be read as Parquet"),
        ("a.xlsx", "give a .csv or a .parquet file"),
        ("twice.csv", "the column 'age' is there twice"),
        ("latin.csv", "is not UTF-8 text"),
        ("empty.csv", "could not be read as CSV"),
        ("absent.csv", "there is no file"),
    ):
        done = runner.invoke(app, ["advise", str(tmp_path / name), "--target", "y", "--client", "s"])
        assert done.exit_code == 2
        assert words_ in " ".join(done.output.replace("│", " ").split())


def test_many_sites_stay_readable(tmp_path):
    """Reasons are a table, numbers are whole at 80 columns, and a verdict says on how many sites it rests."""
    rng = np.random.default_rng(0)
    sizes = [40] * 6 + [12] * 8 + [5] * 7
    df = table(n=60, sites=[f"University Hospital {m:02d}" for m in range(len(sizes))])
    df = pd.concat([own.head(n) for (_, own), n in zip(df.groupby("site"), sizes, strict=True)])
    df["cost"] = 50_000 + 1000 * df.dose + 2000 * rng.normal(size=len(df))
    found = advise(prepare(df.drop(columns="ill"), Columns("cost", "site"), folds=3), folds=3)
    left = words.left_out(found)
    assert left["left out of"].value_counts().to_dict() == {"how different": 8, "all": 7}
    assert "This rests on 6 of 21 sites" in words.difference(found)
    assert "14 of 21 sites" in words.data(found)
    screen = Console(width=80, file=io.StringIO())
    screen.print(show.terminal(found, 80))
    said = screen.file.getvalue()
    shown = words.sites(found).drop(columns="best here")
    for cells in shown.to_numpy().tolist():
        line = next(line for line in said.splitlines() if cells[-2] in line)
        assert [cell for cell in cells[1:] if cell not in line] == []
    assert "is left out:" not in said
    assert show.page(found).count("<td>how different</td>") == 8


def folder_of(tmp_path, df):
    """A table for each site."""
    for name, rows in df.groupby("site"):
        rows.drop(columns="site").to_csv(tmp_path / f"{name}.csv", index=False)
    return tmp_path


@pytest.mark.parametrize(("spread", "verdict"), [(0.0, "share"), (3.0, "separate")])
def test_a_folder_of_sites_is_judged_by_sums(tmp_path, spread, verdict):
    """The answer of `cofed.advise_sites`, in the terminal, on a page, in a figure and as JSON."""
    df = table(spread, sites="abcd")
    folder = folder_of(tmp_path, df.assign(note="x"))
    few = df[df.site == "a"].head(6).assign(site="e")
    folder_of(tmp_path, few.assign(note="x"))
    options = ["--target", "ill", "--drop", "note"]
    page, drawing = tmp_path / "out" / "page.html", tmp_path / "out" / "figure.svg"
    done = CliRunner(env={"COLUMNS": "100"}).invoke(
        app, ["advise", str(folder), *options, "--html", str(page), "--figure", str(drawing)]
    )
    assert done.exit_code == 0, done.output
    assert "This rests on 4 of 5 sites" in " ".join(done.output.replace("│", " ").split())
    assert page.read_text().count("<tr>") == 1 + 4 + 1 + 1
    assert "<svg" in drawing.read_text()
    found = json.loads(CliRunner().invoke(app, ["advise", str(folder), *options, "--json"]).stdout)
    whole = pd.concat([df, few], ignore_index=True)
    wanted = cofed.advise_sites("binomial", whole[["age", "dose"]], whole.ill, clients=whole.site)
    assert found["verdict"] == wanted.verdict == verdict
    assert found["R_squared"] == pytest.approx(wanted.R_squared, rel=1e-9)
    assert {name: one["rows"] for name, one in found["sites"].items()} == dict.fromkeys("abcd", 150)
    assert list(found["left_out"]) == ["e"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--target ill --group age", "--group is for the cross-validation of one table"),
        ("--target ill --model multinomial", "--model multinomial is for one table of all rows"),
        ("--target ill --model magic", "--model must be linear, logistic, poisson, got 'magic'"),
        ("--target ill --drop nope", "--drop: there is no column 'nope'"),
        ("--target nope", "'nope'"),
        ("--target kind", "the target 'kind' has 3 classes, and sums tell of two"),
        ("--target ill --features ill", "the target 'ill' cannot be a feature"),
        ("--target ill --plain", "--plain is for sites in processes of their own"),
    ],
)
def test_bad_input_of_a_folder_gets_a_sentence(tmp_path, options, said):
    df = table(n=30)
    folder = folder_of(tmp_path, df.assign(kind=np.array(["u", "v", "w"])[np.arange(len(df)) % 3]))
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["advise", str(folder), *options.split()])
    assert done.exit_code == 2, done.output
    assert said in " ".join(done.output.replace("│", " ").split())
