"""The page of a fit in a real browser: what is drawn is what was fitted."""

import pandas as pd
import pytest
from typer.testing import CliRunner

from cofed.cli import app
from cofed.estimators import load
from tests.fitting import hospitals
from tests.report.browser import NARROW, Page, number

pytestmark = pytest.mark.browser
HOSTILE = "</script><b>age"


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """A fit with everything, of tables with a hostile column."""
    where = tmp_path_factory.mktemp("fit")
    table = hospitals.pooled().rename(columns={"age": HOSTILE})
    folder = hospitals.write(where / "sites", table)
    given = ["--target", "cost", "--features", f"{HOSTILE},weight,glucose,distance,sex", "--infer"]
    given += ["--in-process", "--out", str(where / "out")]
    done = CliRunner().invoke(app, ["fit", str(folder), *given])
    assert done.exit_code == 0, done.output
    return where / "out"


@pytest.fixture
def page(browser, out):
    """The page; a test that makes the browser complain has failed."""
    shown = Page(browser, out / "report.html")
    shown.open()
    yield shown
    browser.execute_script("localStorage.clear()")
    assert shown.errors() == []


def test_it_says_what_was_fitted_where_and_how_exactly(page, out):
    assert page.one("h1").text == "Linear model of cost, with an L1 penalty ✓ exact"
    tiles = dict(zip(page.texts(".tile span"), page.texts(".tile b"), strict=True))
    used = int(load(out / "model.safetensors").support_.sum())
    exchanges = pd.read_csv(out / "exchanges.csv")
    assert tiles["features in use"] == f"{used} of 5"
    assert tiles["rows"] == str(sum(hospitals.SIZES.values()))
    assert tiles["exchanges"] == str(exchanges["rounds"].sum())
    assert page.texts("#sites tbody th") == list(hospitals.SIZES)
    assert page.texts("#exchanges tbody td:nth-child(2)") == exchanges["what"].tolist()
    assert "No model whatsoever has an objective that is lower" in page.one("#certificate").text
    assert page.browser.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_coefficients_and_intervals_are_those_of_the_table(page, out):
    table = pd.read_csv(out / "coefficients.csv").set_index("feature")
    if page.all("#others"):
        page.press(page.one("#others"))
    assert page.texts("#coefficients tbody th") == table.index.tolist()
    columns = page.texts("#coefficients thead th")
    for name in ("coef", "low", "high"):
        place = columns.index(name) + 1
        shown = [number(text) for text in page.texts(f"#coefficients tbody td:nth-child({place})")]
        assert shown[1:] == pytest.approx(table[name].tolist()[1:], rel=1e-3)
    # The pictures share one scale: a longer interval, in standard deviations, is a longer line.
    scale = load(out / "model.safetensors").path_.scale
    wide = ((table["high"] - table["low"]).iloc[1:] * scale).to_numpy()
    drawn = page.read(
        "#coefficients", "line.forest-interval[y1='11']", "item.getAttribute('x2') - item.getAttribute('x1')"
    )
    assert [one / drawn[0] for one in drawn] == pytest.approx((wide / wide[0]).tolist(), rel=0.02)


def test_features_can_be_hidden_and_the_path_is_read_from_strong_to_weak(page):
    lines = page.paths()
    assert HOSTILE in lines
    first, *_, last = [float(point.split()[0]) for point in lines[HOSTILE].replace("M", "L").split("L")[1:]]
    assert first > last  # the weakest strength comes first, and is drawn at the right
    hidden = page.changes(lambda: page.press(page.one(f"[data-label='{HOSTILE}'].series")))
    assert HOSTILE not in hidden
    assert len(page.all("line.mark")) == 3  # chosen; min and 1se


def test_the_chosen_strength_is_marked_where_the_curve_is_least(page, out):
    model = load(out / "model.safetensors")
    read = "return [...document.querySelectorAll('.plot')[1].querySelectorAll(arguments[0])].map(item => item.{})"
    marks = page.browser.execute_script(read.format("x1.baseVal.value"), "line.mark")
    [path] = page.browser.execute_script(read.format("getAttribute('d')"), "path.line")
    points = [tuple(map(float, point.split())) for point in path.replace("M", "L").split("L")[1:]]
    lowest = max(points, key=lambda point: point[1])  # the largest distance from the top
    assert marks[0] == pytest.approx(lowest[0], abs=0.5)
    assert marks[1] <= marks[0]  # a stronger penalty is further to the left
    assert model.alpha_ == model.alpha_min_


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_a_phone(page, theme):
    page.prefer(theme)
    page.size(*NARROW)
    page.open()
    assert page.overflow() <= 0
    assert page.colour("body", "backgroundColor") == {"light": "rgb(246, 246, 244)", "dark": "rgb(15, 17, 20)"}[theme]
