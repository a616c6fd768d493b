"""The built site in a real browser, from its files. `make test-docs` builds it first."""

import re

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.pages import ROOT

SITE = ROOT / "docs" / "_build" / "html"
# Loaded without a click: scripts, styles, fonts and pictures; not links to read on.
LOADED = re.compile(r"""<(?:script|img|link|source|iframe)\b[^>]*?(?:src|href)=["'](https?:)?//""")

pytestmark = pytest.mark.docs


def wait(browser, holds):
    """Wait for what a script of the page does; the limit is for what never happens."""
    return WebDriverWait(browser, 120, 0.05).until(lambda _: holds())


def find(browser, selector):
    """All elements of a selector that are shown."""
    return [one for one in browser.find_elements(By.CSS_SELECTOR, selector) if one.is_displayed()]


# From files, and not from a server, the search cannot fetch the texts below the titles that it finds.
UNFETCHED = ("blocked by CORS policy", "net::ERR_FAILED", "searchtools.js")


@pytest.fixture
def site(browser):
    """The first page, in a wide window."""
    metrics = {"width": 1400, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get((SITE / "index.html").as_uri())
    yield browser
    severe = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert [message for message in severe if not any(words in message for words in UNFETCHED)] == []


def test_no_page_loads_anything_from_elsewhere():
    pages = list(SITE.rglob("*.html"))
    assert len(pages) > 100
    assert not [page.name for page in pages if LOADED.search(page.read_text())]
    styles = "".join(style.read_text() for style in SITE.rglob("*.css"))
    assert not re.search(r"""url\(["']?(https?:)?//""", styles)


def test_one_gets_from_the_first_page_to_an_algorithm(site):
    next(one for one in find(site, "header a") if one.text == "Algorithms").click()
    next(one for one in find(site, "article a") if one.text == "FedDualAvg").click()
    assert site.find_element(By.TAG_NAME, "h1").text.startswith("FedDualAvg")
    assert "z <- z - eta_c G_k(x)" in site.find_element(By.CSS_SELECTOR, "dl.algorithm").text
    (picture,) = find(site, "article figure img")
    assert site.execute_script("return arguments[0].complete && arguments[0].naturalWidth", picture) > 500


def test_the_search_finds_a_page_by_a_word_of_its_text(site):
    site.get((SITE / "search.html").as_uri() + "?q=FedDualAvg")
    wait(site, lambda: len(find(site, "#search-results li")) > 3)
    assert any("feddualavg" in (one.get_attribute("href") or "") for one in find(site, "#search-results a"))


def test_every_picture_of_the_gallery_is_there(site):
    site.get((SITE / "gallery" / "index.html").as_uri())
    pictures = find(site, ".sphx-glr-thumbcontainer img")
    assert len(pictures) >= 12
    assert all(one.get_attribute("alt").startswith("The figure of: ") for one in pictures)
    wait(site, lambda: all(site.execute_script("return arguments[0].naturalWidth", one) > 100 for one in pictures))


def test_a_link_to_an_example_leads_to_its_page_and_not_to_its_script():
    for page, example in (("start/researcher", "plot_01_curse_of_primal_averaging"), ("runs", "plot_15_stragglers")):
        text = (SITE / f"{page}.html").read_text()
        assert f"gallery/{example}.html" in text
        assert f"{example}.py" not in text


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("adding-an-algorithm", "cofed.AbstractRegularizer"),
        ("algorithms/index", "cofed.topologies.ring"),
        ("api/names/cofed.estimators.FederatedLassoCV", "estimators"),
    ],
)
def test_a_name_in_the_text_leads_to_its_page(page, name):
    text = (SITE / f"{page}.html").read_text()
    assert re.search(rf'<a [^>]*href="[^"]*\b{re.escape(name)}\.html"', text)


def test_all_columns_of_the_table_of_algorithms_are_seen(site):
    site.get((SITE / "choose.html").as_uri())
    (table,) = find(site, "#which-algorithm table")
    assert site.execute_script("return arguments[0].scrollWidth <= arguments[0].clientWidth", table)


# What a click on the button puts into the clipboard, by either of the browser's ways.
CATCH = """
window.copied = [];
document.addEventListener('copy', event => copied.push(event.target.value || getSelection().toString()), true);
if (navigator.clipboard) navigator.clipboard.writeText = async text => { copied.push(text); };
"""
TEXT = "return document.querySelector(arguments[0].dataset.clipboardTarget).textContent"


@pytest.mark.parametrize(
    ("page", "first"), [("regularizers/l1", "import jax.numpy as jnp"), ("start/researcher", "import cofed")]
)
def test_code_can_be_copied_without_its_prompts_and_runs(site, page, first):
    site.get((SITE / f"{page}.html").as_uri())
    wait(site, lambda: site.find_elements(By.CSS_SELECTOR, "article button.copybtn"))
    site.execute_script(CATCH)
    buttons = site.find_elements(By.CSS_SELECTOR, "article button.copybtn")
    button = next(one for one in buttons if "import" in site.execute_script(TEXT, one))
    site.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    ActionChains(site).move_to_element(button).click().perform()
    wait(site, lambda: site.execute_script("return window.copied.length"))
    text = site.execute_script("return window.copied[0]")
    assert text.startswith(first)
    assert ">>>" not in text
    assert "[1.0, 0.0]\n" not in text  # what the example prints
    if page.startswith("regularizers"):
        exec(text, {})


def test_dark_mode_and_a_phone(site):
    def background():
        return site.execute_script("return getComputedStyle(document.body).backgroundColor")

    before = background()
    site.execute_script("document.documentElement.dataset.theme = 'dark'")
    assert background() != before
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    site.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    for page in ("index", "estimators", "algorithms/feddualavg", "results/README"):
        site.get((SITE / f"{page}.html").as_uri())
        assert site.execute_script("return document.documentElement.scrollWidth") <= 390, page


# Words that end right of the window, but for those inside a box of the text that scrolls by itself.
CUT = """
const scrolls = (one) => one.tagName !== 'ARTICLE' && (['auto', 'scroll'].includes(getComputedStyle(one).overflowX)
    ? one.getBoundingClientRect().right <= innerWidth + 1 : scrolls(one.parentElement));
const walker = document.createTreeWalker(document.querySelector('article'), NodeFilter.SHOW_TEXT);
const range = document.createRange(), cut = [];
while (walker.nextNode()) {
    range.selectNodeContents(walker.currentNode);
    const above = walker.currentNode.parentElement, box = range.getBoundingClientRect();
    if (box.width && box.right > innerWidth + 1 && !above.closest('.copybtn, .headerlink, script') && !scrolls(above))
        cut.push(above.tagName + ': ' + walker.currentNode.data.slice(0, 60));
}
return cut;
"""


def test_on_a_phone_no_page_of_the_reference_is_cut_at_the_right(site):
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    site.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    pages = sorted([*(SITE / "api").rglob("*.html"), *(SITE / "algorithms").glob("*.html")])
    assert len(pages) > 250
    cut = {}
    for page in pages:
        site.get(page.as_uri())
        found = site.execute_script(CUT)
        if found:
            cut[page.stem] = found
    assert cut == {}
