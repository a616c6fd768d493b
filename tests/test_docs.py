"""The code on the pages of the documentation runs as it stands there."""

import ast
import importlib
import inspect
import itertools
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from typer.main import get_command

import cofed
from cofed.cli import app
from cofed.cli.algorithms import describe_all
from tests import pages
from tests.pages import PAGES, ROOT, blocks
from tests.report import sample
from tests.sites import worlds as tables
from tests.sites.audit import worlds as audit_logs
from tests.test_loaders import RUN, write_idx, write_mask, write_scans

LANGUAGES = {"python", "sh", "toml", "json", "text"}
ELSEWHERE = {"docs/network.md"}  # it needs Flower: tests/flower has it
# What else must hold at the end of a page, and what the page must have written.
CHECKS = {
    "README.md": "assert (abs(result.model.coef[:5]) > 0.5).all()\n",
    "docs/tour.md": """
assert (abs(model.coef_[:5]) > 0.5).all()
assert (abs(model.coef_) > 1e-6).sum() < 25
assert own.personal_models.coef.shape == (4, 50)
""",
    "docs/start/researcher.md": """
assert all(result.history["objective"][-1] < result.history["objective"][0] for result in results.values())
assert len(results) == 3
assert tuning.best.client_lr in rates
""",
    "docs/start/statistician.md": """
assert lasso.certificate_.converged
assert (lasso.coef_[:3] != 0).all()
""",
    "docs/disk.md": """
assert (third["X"] == federation.client(names[2])[0]).all()
assert abs(result.model.coef[0] - 1) < 0.1
""",
    "docs/data.md": """
assert by_digit.X.shape[2:] == (28, 28)
assert held_out.n_clients == 14
assert scans.source.startswith("Haxby 2001, ")
""",
    "docs/survival.md": """
assert found.log_rank.p_value < 0.01
assert model.predict_survival(X[:2], site="Oslo", times=[0, 1e6])[:, 0].tolist() == [1, 1]
""",
    "docs/site-effects.md": "assert found.table.p_value['dose'] < 0.01 < found.table.p_value['age']\n",
    "docs/policy.md": """
from cofed.sites.policy import Policy, parse_policy
assert parse_policy(default_policy_toml()) == Policy()
""",
    "docs/loggers.md": "assert result.history['round'][-1] < 100_000\n",
    "docs/experiments.md": "assert len(EXPERIMENTS) == 1\nassert ahead.seconds > 0\n",
    "docs/adding-an-algorithm.md": """
HeavyBall(0.1)
import numpy as np
X, noise = np.random.default_rng(0).normal(size=(200, 5)), np.random.default_rng(1).standard_cauchy(size=200)
lasso = model.fit(X, X[:, 0] + noise, clients=np.arange(200) % 3)
assert lasso.certificate_.converged
assert 0.5 < lasso.coef_[0] < 1.5
""",
    "docs/transformers.md": """
assert imputer.n_missing_.sum() == 60
assert np.abs(np.abs(PCA(4).fit(filled).components_) - np.abs(pca.components_)).max() < 1e-10
assert encoder.get_feature_names_out().tolist() == ["ward_A", "ward_infrequent_sklearn"]
""",
    "docs/estimators.md": "assert '4 of 10 features in use' in str(model.summary())\n",
    "docs/families.md": "assert (abs(both.coef_[:, 0]) > 3).all()\nassert 0.5 < cox.coef_[0] < 1.1\n",
    "docs/fit.md": "assert model.support_[:2].all()\nassert not model.support_[2]\nassert len(sites.exchanges) <= 5\n",
    "docs/studies.md": """
assert sites.feature_names == ("age", "sex[male]", "ward[B]", "ward[C]", "pressure")
assert approved("kept", study)
assert outside_approved("kept", study.design("main")) is None
assert "not part of a study" in outside_approved("kept", sites.design)
assert [variable.name for variable in found.variables] == list(tables["Oslo"].columns)
""",
    "docs/privacy.md": "assert model.privacy_.shares == 19\nassert 0.015 < model.coef_[0] < 0.025\n",
    "docs/audit.md": "assert found.holds\nassert len(found.lines) == 1\n",
    "docs/runs.md": "assert positive(cofed.models.Weights(jnp.array([1.0, -1.0]))) == 0.5\n",
    "docs/compression.md": "assert method.compressor.bits == 1\n",
}
WRITTEN = {
    "docs/tour.md": {"runs", "history.parquet", "ring.png"},
    "docs/disk.md": {"phones.parquet", "phones.parquet.cofed"},
    "docs/loggers.md": {"rows.csv", "runs"},
    "docs/studies.md": {"kept"},
    "docs/audit.md": {"kept"},
    "docs/estimators.md": {"path.png", "cv.png", "diabetes.safetensors"},
    "docs/site-effects.md": {"forest.png"},
    "docs/survival.md": {"curves.png", "cox.safetensors"},
    "docs/fit.md": {"hospitals"},
}


@pytest.fixture
def real_data(tmp_path_factory):
    """Files like those of MNIST and of Haxby's scans, but small."""
    folder = tmp_path_factory.mktemp("data")
    pixels, labels = np.random.default_rng(0).integers(0, 256, (60, 28, 28)), np.arange(60) % 10
    for part in ("train", "t10k"):
        write_idx(folder / "mnist" / f"{part}-images-idx3-ubyte", pixels)
        write_idx(folder / "mnist" / f"{part}-labels-idx1-ubyte", labels)
    write_scans(folder / "haxby-slice", [RUN] * 8, header=False)
    write_mask(folder / "haxby-slice" / "mask.nii.gz")
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_all_code_is_between_fences_that_name_its_language(page):
    text = (ROOT / page).read_text()
    assert text.count("\n```") % 2 == 0
    assert {block.language for block in blocks(page)} <= LANGUAGES
    outside = "".join(part for place, part in enumerate(text.split("```")) if place % 2 == 0)
    assert not [line for line in outside.split("\n") if line.startswith("    ")]


def anchors(path):
    """The places on a page that a link can name."""
    heads = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES)
def test_links_to_our_own_pages_lead_there(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text()):
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        if "://" not in link:
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


@pytest.mark.docs
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python") and page not in ELSEWHERE])
def test_the_python_of_a_page_runs_as_it_stands(page, tmp_path, real_data):
    assert page in CHECKS, "say what must hold at the end of this page"
    pages.run(page, tmp_path, CHECKS[page], COFED_DATA=str(real_data))
    assert {path.name for path in tmp_path.iterdir()} == WRITTEN.get(page, set())


def test_a_page_whose_code_fails_is_noticed(tmp_path, monkeypatch):
    (tmp_path / "page.md").write_text("# Page\n\n```python\nx = 1\n```\n\ntext\n\n```python\nassert x == 2\n```\n")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    with pytest.raises(AssertionError, match="line 10, in <module>"):
        pages.run("page.md", tmp_path)


def test_what_users_choose_from_is_on_the_tour():
    rooms = (cofed.algorithms, cofed.gossip, cofed.regularizers, cofed.losses)
    names = {name for room in rooms for name in room.__all__ if name in cofed.__all__ and "Abstract" not in name}
    text = (ROOT / "docs" / "tour.md").read_text()
    missing = {name for name in names - {"topologies", "Zero"} if f"`{name}" not in text}
    assert not missing, f"name {missing} in docs/tour.md"


def test_the_site_knows_how_to_draw_every_algorithm_and_regularizer(monkeypatch):
    """Here, too, as the site takes long to build and has an environment of its own."""
    monkeypatch.syspath_prepend(ROOT / "docs" / "_extensions")
    by_algorithm, by_regularizer = (importlib.import_module(f"{kind}_pages") for kind in ("algorithm", "regularizer"))
    needed = {method["name"] for method in describe_all() if by_algorithm.required(method)}
    needed |= {name for name in cofed.regularizers.__all__ if "Abstract" not in name}
    missing = needed - set(by_algorithm.DRAWN) - set(by_regularizer.DRAWN)
    assert not missing, f"{missing} lacks a row in DRAWN of docs/_extensions/algorithm_pages.py or regularizer_pages.py"


@pytest.mark.parametrize("name", [method["name"] for method in describe_all()])
def test_the_head_of_an_algorithm_s_file_says_what_its_page_must(name, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "_extensions")
    module = sys.modules[getattr(cofed, name).__module__]
    _, rows, _ = importlib.import_module("algorithm_pages").head(module.__doc__)
    assert {"Problem", "When", "Reference"} <= {key for key, _ in rows}


def test_a_public_value_has_words_of_its_own_and_not_its_classs(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "_extensions")
    module = importlib.import_module("data_docstrings")
    from cofed.sites import policy

    lines = (policy.Policy.__doc__ or "").split("\n")
    module.say_own_words(None, "data", "cofed.sites.policy.TRIAL", policy.TRIAL, None, lines)
    assert lines[0].startswith("No rules, for rows of one's own")
    with pytest.raises(ValueError, match="has no text below the line that makes it"):
        module.say_own_words(None, "data", "cofed.sites.policy.OTHER", object(), None, [])


def test_a_docstring_that_is_a_formula_is_no_signature_and_names_of_files_are_links(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "_extensions")
    module = importlib.import_module("plain_docstrings")
    prox = cofed.NonNegative.prox
    assert module.plain_signature(None, "method", "prox", prox, None, "(v, step)", None) == ("(v, step)", None)
    assert module.plain_signature(None, "class", "L1", cofed.L1, None, "(strength)", None) is None
    said, pages = "Averaged (see cofed.algorithms.fedavg for the update).", {"algorithms/fedavg"}
    assert module.linked(said, "algorithms/fedavg", pages) == "Averaged."
    assert module.linked(said, "api/names/x", pages) == "Averaged (:doc:`the update </algorithms/fedavg>`)."
    assert module.linked(said, "api/names/x", set()) == said


# Rooms that only code inside the repository imports from: an algorithm or an experiment that is added there.
INSIDE = ("cofed._util", "cofed.experiments")


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
def test_what_a_page_imports_has_an_entry_in_the_reference(page, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "_extensions")
    reference = importlib.import_module("pages_from_code")
    names = reference.public_names()
    rooms = [room for room in names if room.startswith("cofed.")]
    told = {id(reference.named(name)) for name in itertools.chain(rooms, *names.values())} | {id(cofed.estimators)}
    for node in ast.walk(ast.parse(pages.script(page))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cofed"):
            for name in [] if node.module.startswith(INSIDE) else node.names:
                assert id(reference.named(f"{node.module}.{name.name}")) in told, f"{node.module}.{name.name}"


def test_examples_of_the_reference_import_only_what_is_in_it(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "_extensions")
    reference = importlib.import_module("pages_from_code")
    names = reference.public_names()
    rooms = {room for room in names if room.startswith("cofed.")} | {"cofed", "cofed.estimators", "cofed.regularizers"}
    for name in itertools.chain(*names.values()):
        thing = reference.named(name)
        own = vars(thing) if inspect.isclass(thing) else {}
        texts = [inspect.getdoc(thing) or "", *(inspect.getdoc(own[one]) or "" for one in own if one[0] != "_")]
        used = {room for text in texts for room in re.findall(r">>> from (cofed\S*) import", text)}
        assert used <= rooms, f"an example of {name} imports from {used - rooms}, which has no page"


@pytest.mark.parametrize("page", ["network-index", "estimators-index", "results-index", "extending"])
def test_pages_have_one_title_in_the_table_and_in_the_sidebar(page):
    text = (ROOT / "docs" / f"{page}.md").read_text()
    shown = {there: title.replace("`", "") for title, there in re.findall(r"^\| \[(.*?)\]\((.*?)\.md\)", text, re.M)}
    beside = {there: title for title, there in re.findall(r"^([^|\n]+) <(.+)>$", text, re.M)}
    assert shown == beside


WIDEST = 88  # columns that are seen beside two sidebars, in a window of 1280 pixels


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/") and "/results/" not in page])
def test_code_is_no_wider_than_its_page(page):
    """Text and commands wrap by themselves."""
    for language in ("python", "toml"):
        for block in blocks(page, language):
            assert not [line for line in block.text.split("\n") if len(line) > WIDEST]


def test_lines_of_formulas_break_only_where_one_ends(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "_extensions")
    formulas = importlib.import_module("algorithm_pages").formulas
    assert formulas(["a <- b + c", "+ d;", "e <- `f`"]) == ["a <- b + c + d;", "e <- f"]


def test_every_option_of_a_fit_is_on_its_page():
    options = {name for each in get_command(app).commands["fit"].params for name in each.opts if name.startswith("--")}
    text = (ROOT / "docs" / "fit.md").read_text()
    assert not {name for name in options - {"--help"} if f"`{name}" not in text}


SHELL = [page for page in PAGES if blocks(page, "sh")]
FLOWER = {"flower-superlink", "flower-supernode", "flwr"}
PROGRAMS = {"benchopt", "cofed", "make", "pip", "python", "source", "export", "mkdir", "for", *FLOWER}


@pytest.mark.parametrize("page", SHELL)
def test_shell_code_is_whole_and_of_programs_that_we_know(page):
    for block in blocks(page, "sh"):
        done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
    here = [line for line in pages.commands(page) if not line.startswith(("[", "default", "address", "root-", "END"))]
    assert {line.split()[0] for line in here} - {"done"} <= PROGRAMS


MAKE = [(page, line) for page in SHELL for line in pages.commands(page) if line.startswith("make ")]
OURS = [(page, line) for page in SHELL for line in pages.commands(page) if line.startswith("cofed ")]


@pytest.mark.parametrize(("page", "line"), MAKE)
def test_targets_of_the_makefile_are_there(page, line):
    assert f"\n{line.split()[1]}:" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize(("page", "line"), OURS)
def test_commands_and_their_options_are_known(page, line):
    """Read as the command line reads them: a name or an option that is not there is refused."""
    name, *words = shlex.split(line)[1:]
    command = get_command(app).commands[name]
    if name == "study":  # a group of commands
        command, words = command.commands[words[0]], words[1:]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {word.split("=")[0] for word in words if word.startswith("--")} <= known


@pytest.mark.docs
def test_an_editor_finds_nothing_wrong_in_what_a_user_writes(tmp_path):
    """Types and stubs are right where users meet them first."""
    shown = ["README.md", *(f"docs/{name}.md" for name in ("tour", "families", "privacy", "runs"))]
    shown += [f"docs/start/{road}.md" for road in ("researcher", "statistician")]
    for page in shown:
        code = "\n".join(block.text for block in blocks(page, "python"))
        (tmp_path / f"{page.replace('/', '_')[:-3]}.py").write_text(code)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT / "src")]}))
    command = [
        shutil.which("pyright", path=Path(sys.executable).parent),
        "--pythonpath",
        sys.executable,
        "--outputjson",
    ]
    done = subprocess.run([*command, "."], cwd=tmp_path, capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == len(shown)
    assert not [one["message"] for one in found["generalDiagnostics"] if one["severity"] == "error"]


def ill(folder):
    """Tables as on the tour: who is ill, in which hospital, which patient; and a file for each hospital."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(300, 3)), columns=["age", "pressure", "sugar"])
    table["ill"] = (table["age"] + rng.normal(size=300) > 0).astype(int)
    table["hospital"] = rng.choice(["Oslo", "Rome", "Bern"], size=300)
    table["patient"] = np.arange(300) // 2
    table.to_csv(folder / "patients.csv", index=False)
    (folder / "hospitals").mkdir()
    for site, part in table.drop(columns="patient").groupby("hospital"):
        part.drop(columns="hospital").to_csv(folder / "hospitals" / f"{site}.csv", index=False)


def results(folder):
    """A few runs, and two of them under the names of the page."""
    (folder / "results").mkdir()
    with jax.numpy_dtype_promotion("standard"):
        sample.write_all(folder / "results")
    found = sorted(path for path in (folder / "results").iterdir() if (path / "config.json").exists())
    for name, path in zip("ab", found, strict=False):
        shutil.copytree(path, folder / "results" / name)


def hospitals(folder):
    """Two hospitals' tables, and the first of them alone."""
    (folder / "hospitals").mkdir()
    for seed, name in enumerate(["oslo", "rome"]):
        tables.hospital(50, seed).to_csv(folder / "hospitals" / f"{name}.csv", index=False)
    shutil.copy(folder / "hospitals" / "oslo.csv", folder)


def example(folder):
    """The tables of the repository's example, where a clone has them."""
    shutil.copytree(ROOT / "examples" / "hospitals" / "tables", folder / "examples" / "hospitals" / "tables")


def logs(folder):
    """The logs of two sites after a fit, and those in the folder of a site."""
    paths = audit_logs.fit(folder)
    shutil.copytree(paths["oslo"].parent, folder / "cofed-site")


# What of it is run, and what it then has written; the rest takes hours, or Flower's processes, which have their tests.
RUNS = {
    "docs/start/statistician.md": (["cofed describe", "cofed fit"], example, {"readmitted"}),
    "docs/start/operator.md": (["cofed study"], example, {"study.toml", "cofed-site", "policy.toml"}),
    "docs/tour.md": (["cofed advise"], ill, {"advice.html"}),
    "docs/fit.md": (["cofed fit"], ill, {"ill", "pooled", "again"}),
    "docs/studies.md": (
        ["cofed study", "cofed describe"],
        hospitals,
        {"study.toml", "cofed-site", "table1.csv", "table1.html"},
    ),
    "docs/audit.md": (["cofed audit"], logs, {"audit.html"}),
    "docs/report.md": (["cofed report"], results, {"report.html", "comparison.html"}),
    "docs/experiments.md": (
        ["cofed reproduce --list", "cofed init", "cofed plan", "cofed tune", "cofed run"],
        lambda folder: None,
        {"experiment.toml", "cofed-results"},
    ),
}


SLOW = {"docs/experiments.md"}  # it plans, tunes and runs a whole experiment


@pytest.mark.docs
@pytest.mark.parametrize("page", [pytest.param(page, marks=pytest.mark.slow if page in SLOW else ()) for page in RUNS])
def test_the_commands_of_a_page_run_as_they_stand(page, tmp_path):
    beginnings, prepare, written = RUNS[page]
    prepare(tmp_path)
    before = {path.name for path in tmp_path.iterdir()}
    lines = [line for line in pages.commands(page) if line.startswith(tuple(beginnings))]
    assert len(lines) >= len(beginnings)
    printed = set()
    for line in lines:
        command = [sys.executable, "-m", *shlex.split(line)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        printed |= {*done.stdout.splitlines(), "..."}
    summaries = [block.text for block in blocks(page, "text") if block.text.startswith("Federated")]
    assert {line for text in summaries for line in text.splitlines()} <= printed
    assert {path.name for path in tmp_path.iterdir()} - before == written


@pytest.mark.docs
def test_the_refusal_on_the_page_is_the_one_that_comes(tmp_path):
    [said] = [block.text.strip() for block in blocks("docs/experiments.md", "text")]
    subprocess.run([sys.executable, "-m", "cofed", "init"], cwd=tmp_path, check=True, capture_output=True)
    path = tmp_path / "experiment.toml"
    path.write_text(path.read_text().replace("strength = 0.2", "strenght = 0.2"))
    command = [sys.executable, "-m", "cofed", "run", "experiment.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert " ".join(said.split()) in " ".join((done.stdout + done.stderr).split())
