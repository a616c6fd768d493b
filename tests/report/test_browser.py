"""The report in a real browser: what is drawn, what the switches do, what the pointer shows."""

from urllib.parse import quote

import pandas as pd
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.actions.pointer_input import PointerInput
from selenium.webdriver.common.keys import Keys

from cofed.report import write_report
from tests.report.browser import NARROW, Page
from tests.report.sample import HOSTILE, METHODS, config, write_run

pytestmark = pytest.mark.browser

NAMES = ["overview", "lasso", "panels", "sweep", "hostile"]
ALL = ["", "lasso", "panels", "sweep", quote(HOSTILE)]


@pytest.mark.parametrize("run", ALL, ids=NAMES)
def test_every_page_renders_without_a_complaint_or_a_request(page, run):
    page.open(run)
    assert page.one("h1").text
    assert page.browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    drawn = page.read("main", "path.line", "item.getAttribute('d')")
    assert len(drawn) >= 3
    assert all("L" in path and "NaN" not in path for path in drawn)


def test_the_overview_leads_to_the_runs_and_counts_their_claims(page):
    page.open()
    assert [tile.text.split("\n") for tile in page.all(".tile")] == [
        ["4", "runs"],
        ["3", "claims hold"],
        ["1", "claims do not hold"],
        ["2", "claims not judged"],
    ]
    assert "config.json is not valid JSON" in page.one(".notice").text
    page.one("input[type=search]").send_keys("data sets")
    assert page.texts(".card strong") == ["Three data sets"]
    page.one("input[type=search]").send_keys(Keys.CONTROL + "a", Keys.DELETE)
    page.one(".filters select").send_keys("does not hold")
    assert page.texts(".card strong") == ["A federated LASSO"]
    page.one(".card").click()
    page.until(lambda: page.one("h1").text == "A federated LASSO")
    assert page.one("#side a[aria-current]").text.startswith("lasso")
    page.one(".turn a:last-child").click()
    page.until(lambda: page.one("h1").text == "Three data sets")
    page.browser.back()
    page.until(lambda: page.one("h1").text == "A federated LASSO")


def test_claims_show_their_verdicts_figures_and_reasons(page, runs):
    page.open("lasso")
    assert page.texts(".claims .verdict") == ["✓ holds", "✗ does not hold", "\N{EN DASH} not judged"]
    assert "Density in the end: 1.000." in page.texts(".measured")[0]
    assert "none is tuned" in page.texts(".why")[0]
    page.press(page.one(".claims summary"))
    shown = page.one(".figures").text.split("\n")
    ends = runs.numbers[runs.numbers["round"] == 40].groupby("algorithm")["density"].mean()
    assert shown[::2] == [f"density {label}" for label in ends.index]
    assert [float(value) for value in shown[1::2]] == pytest.approx(ends.tolist(), rel=1e-4)


def test_the_horizontal_axis_can_be_switched(page):
    page.open("lasso")
    assert page.labels()[-1] == "communication round"
    rounds = page.paths()
    sent = page.changes(lambda: page.choose("Horizontal axis", "Megabytes"))
    assert page.labels()[-1] == "megabytes sent"
    page.changes(lambda: page.choose("Horizontal axis", "Seconds"))
    assert page.labels()[-1] == "seconds"
    page.changes(lambda: page.choose("Horizontal axis", "Rounds"))
    assert page.paths() == rounds != sent


def test_a_sweep_is_drawn_over_its_own_axis(page):
    page.open("sweep")
    assert page.labels()[-1] == "rounds allowed"
    assert page.texts("fieldset legend") == ["Scale of x", "Scale of y"]
    assert len(page.plot().find_elements("css selector", "circle.dot")) == 4 * len(METHODS)


def test_both_scales_can_be_logarithmic(page):
    page.open("lasso")
    linear, ticks = page.paths(), page.labels()
    assert "0" in ticks
    page.changes(lambda: page.choose("Scale of y", "Log"))
    assert page.labels() != ticks
    page.changes(lambda: page.choose("Scale of x", "Log"))
    assert "0" not in page.labels()  # round 0 has no logarithm
    page.changes(lambda: page.choose("Scale of x", "Linear"))
    page.changes(lambda: page.choose("Scale of y", "Linear"))
    assert page.paths() == linear


def test_metrics_are_chosen(page):
    page.open("lasso")
    assert page.texts("figcaption strong") == ["F1 of the support", "objective", "density", "loss"]
    page.one("[data-column=density]").click()
    page.one("[data-column=prox_gradient]").click()
    assert page.texts("figcaption strong") == ["F1 of the support", "objective", "loss", "norm of the prox-gradient"]
    assert page.one("[data-column=density]").get_attribute("aria-pressed") == "false"
    page.until(lambda: len(page.all(".plot path.line")) == 4 * len(METHODS))


def test_panels_stand_side_by_side(page):
    page.open("panels")
    assert page.texts("figcaption span") == ["data set 1", "data set 2", "data set 3"]


def test_the_range_over_seeds_can_be_hidden(page):
    page.open("lasso")
    assert len(page.all(".plot path.band")) == 4 * len(METHODS)
    page.one("#spread").click()
    page.until(lambda: not page.all(".plot path.band"))
    page.open("panels")
    assert not page.all("#spread")


def test_levels_to_compare_with_are_drawn(page):
    page.open("lasso")
    assert page.one(".legend .level").text == "truth"
    assert len(page.all(".plot line.level")) == 2  # of density and F1


def test_dragging_zooms_and_the_button_resets(page):
    page.open("lasso")
    whole, ticks = page.paths(), page.labels()
    zoomed = page.changes(lambda: page.move(-60).click_and_hold().move_by_offset(120, 4).release().perform())
    assert page.plot().get_attribute("data-zoomed") == "true"
    assert page.labels() != ticks
    page.changes(lambda: page.one("#reset").click())
    assert page.paths() == whole != zoomed
    page.changes(lambda: page.move(-60, -40).click_and_hold().move_by_offset(120, 80).release().perform())
    page.changes(lambda: page.move(0).double_click().perform())
    assert page.paths() == whole


def test_the_wheel_zooms_a_chart_that_was_chosen_and_else_scrolls(page):
    page.open("lasso")
    whole = page.paths()
    assert page.wheel() is False
    assert page.paths() == whole
    page.move(0).click().perform()
    page.changes(page.wheel)
    assert page.plot().get_attribute("data-zoomed") == "true"


def test_a_chart_is_used_by_the_keyboard(page, runs):
    page.open("lasso")
    whole = page.paths()
    page.plot().send_keys(Keys.HOME, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert page.tip()[""] == 2
    assert "FedDualAvg" in page.one(".plot [aria-live]").get_property("textContent")
    page.changes(lambda: page.plot().send_keys("+"))
    page.changes(lambda: page.plot().send_keys("0"))
    assert page.paths() == whole


def expected(numbers: pd.DataFrame, column: str, place: float) -> dict[str, float]:
    """The mean over seeds at a round, by algorithm."""
    return numbers[numbers["round"] == place].groupby("algorithm")[column].mean().to_dict()


@pytest.mark.parametrize("x", [-150, 0, 37, 190])
def test_the_pointer_shows_the_numbers_of_the_run(page, runs, x):
    page.open("lasso")
    page.move(x).perform()
    shown = page.tip()
    place = shown.pop("")
    assert shown.pop("truth") == 1
    assert shown == pytest.approx(expected(runs.numbers, "f1", place), rel=1e-4)
    ranges = dict(zip(page.texts(".tip:not([hidden]) th"), page.texts(".tip:not([hidden]) .range"), strict=True))
    seeds = runs.numbers[(runs.numbers["round"] == place) & (runs.numbers["algorithm"] == "FedMiD")]["f1"]
    assert [float(end) for end in ranges["FedMiD"].split(" to ")] == pytest.approx([seeds.min(), seeds.max()], rel=1e-3)


def test_a_tap_shows_the_numbers_too(page, runs):
    page.size(*NARROW)
    page.open("lasso")
    touch = ActionBuilder(page.browser, mouse=PointerInput("touch", "finger"))
    touch.pointer_action.move_to(page.plot(), 30, 0).pointer_down().pointer_up()
    touch.perform()
    shown = page.tip()
    assert shown["FedMiD"] == pytest.approx(expected(runs.numbers, "f1", shown[""])["FedMiD"], rel=1e-4)


def test_the_pointer_shows_numbers_over_megabytes_too(page, runs):
    page.open("lasso")
    page.changes(lambda: page.choose("Horizontal axis", "Megabytes"))
    page.move(50).perform()
    shown = page.tip()
    assert any(
        text.startswith("≈") for text in page.texts(".tip:not([hidden]) .value")
    )  # bytes of sparse rounds differ
    rounds = runs.numbers.assign(sent=(runs.numbers["bytes_down"] + runs.numbers["bytes_up"]) / 1e6)
    for label in METHODS:
        mean = rounds[rounds["algorithm"] == label].groupby("round")[["sent", "f1"]].mean()
        nearest = (mean["sent"] - shown[""]).abs().idxmin()
        assert shown[label] == pytest.approx(mean["f1"][nearest], rel=1e-4)


def test_the_legend_hides_and_shows_lines(page):
    page.open("lasso")
    entry = page.one(".series[data-label=FedMiD]")
    left = page.changes(entry.click)
    assert set(left) == {"FedAvg", "FedDualAvg"}
    assert entry.get_attribute("aria-pressed") == "false"
    page.move(0).perform()
    assert "FedMiD" not in page.tip()
    assert set(page.changes(entry.click)) == set(METHODS)
    ActionChains(page.browser).double_click(page.one(".series[data-label=FedAvg]")).perform()
    page.until(lambda: set(page.paths()) == {"FedAvg"})
    ActionChains(page.browser).double_click(page.one(".series[data-label=FedAvg]")).perform()
    page.until(lambda: set(page.paths()) == set(METHODS))


def test_the_theme_follows_the_system_until_it_is_switched(page):
    light, dark = "rgb(246, 246, 244)", "rgb(15, 17, 20)"
    page.open("lasso")
    assert page.colour("body", "backgroundColor") == light
    assert page.colour("path[data-label=FedDualAvg]", "stroke") == "rgb(0, 114, 178)"
    assert page.colour("path[data-label=FedAvg]", "stroke") == "rgb(0, 0, 0)"
    page.one("#theme").click()
    assert page.colour("body", "backgroundColor") == dark
    assert page.colour("path[data-label=FedDualAvg]", "stroke") == "rgb(0, 114, 178)"
    assert page.colour("path[data-label=FedAvg]", "stroke") == "rgb(242, 242, 242)"
    page.open("lasso")
    assert page.colour("body", "backgroundColor") == dark  # the choice is kept
    page.one("#theme").click()
    assert page.colour("body", "backgroundColor") == light
    page.one("#theme").click()
    page.prefer("dark")
    page.until(lambda: page.colour("body", "backgroundColor") == dark)
    assert "System" in page.one("#theme").text


def test_hostile_text_is_shown_as_text(page):
    page.open(quote(HOSTILE))
    assert not page.all("#broken, main img, main b[id]")
    assert page.one("h1").get_property("textContent") == HOSTILE
    assert HOSTILE in page.texts(".series span")
    assert page.texts("figcaption span")[0] == HOSTILE
    assert HOSTILE in page.texts("figcaption strong")
    page.move(0).perform()
    assert HOSTILE in page.tip()


ODD = {
    "huge": [1e-250, 1e250, 1.0, 2.0],
    "infinite": [1.0, float("inf"), float("nan"), 1e308],
    "zero": [0.0, 0.0, 0.0, 0.0],
    "constant": [5.0, 5.0, 5.0, 5.0],
    "negative": [-1e-9, -3.0, -1e12, -2.0],
    "denormal": [5e-324, 1e-300, 1e-310, 1e-320],
}


@pytest.mark.parametrize("scales", ["Linear", "Log"])
def test_odd_numbers_are_drawn_where_they_can_be(browser, tmp_path, scales):
    numbers = pd.DataFrame({"algorithm": "FedAvg", "round": range(4)} | ODD)
    write_run(tmp_path / "odd", numbers, config("odd", "Odd numbers"), [])
    page = Page(browser, write_report([tmp_path], tmp_path / "report.html").path)
    page.open("odd")
    for column in set(ODD) - set(page.texts("figcaption strong")):
        page.press(page.one(f"[data-column={column}]"))
    page.choose("Scale of y", scales)
    page.until(lambda: len(page.all(".plot path.line")) == len(ODD))
    drawn = page.read("main", ".plot", "item.querySelector('path.line').getAttribute('d') + item.textContent")
    assert not [chart for chart in drawn if "NaN" in chart or "Infinity" in chart]
    assert sum("no positive values" in chart for chart in drawn) == (2 if scales == "Log" else 0)
    assert page.errors() == []


@pytest.mark.parametrize("run", ALL, ids=NAMES)
def test_a_narrow_window_needs_no_scrolling_sideways(page, run):
    page.size(*NARROW)
    page.open(run)
    assert page.overflow() <= 0
    if run:
        page.move(40).perform()
        page.tip()
        for details in page.all("summary"):
            page.press(details)
        assert page.overflow() <= 0
        assert not page.one("#side").is_displayed()
        assert page.one("#jump").is_displayed()


def test_tables_are_sorted_by_their_heads(page):
    page.open("lasso")
    column = page.texts("#final th[scope=col]").index("objective")
    head = page.all("#final th[scope=col]")[column]

    def values():
        rows = page.all("#final tbody tr")
        return [float(row.find_elements("css selector", "th, td")[column].text.split("\n")[0]) for row in rows]

    head.find_element("css selector", "button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert values() == sorted(values())
    head.find_element("css selector", "button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert values() == sorted(values(), reverse=True)


def test_hyperparameters_and_configuration_can_be_read(page):
    page.open("lasso")
    row = page.one("#hyperparameters tbody tr").text.split()
    assert " ".join(row) == "FedAvg client_lr 0.01 0.001 0.001, 0.01, 0.1 tuned"
    assert not page.one(".config").is_displayed()
    page.press(page.one("#configuration summary"))
    assert page.one(".config").is_displayed()
    assert "yuan_lasso" in page.one(".config").text
