"""A headless browser, and what the tests do with a page in it."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage"
)
# Charts are drawn in the frame after the page is loaded; those in a closed part of the page are not drawn at all.
DRAWN = """return document.readyState === 'complete' && [...document.querySelectorAll('.plot')]
    .every(plot => !plot.clientWidth || plot.querySelector('.labels'))"""
WIDE, NARROW = (1400, 1000), (390, 844)


def start(profile: Path) -> Iterator[webdriver.Chrome]:
    """A browser with a fresh profile. Where there is none the test is skipped, and fails in continuous integration."""
    program, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if not program or not driver:
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing("there is no chromium with its chromedriver here; `make browser` installs them, as root or by sudo")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for option in [*OPTIONS.split(), f"--user-data-dir={profile}", "--window-size={},{}".format(*WIDE)]:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield browser
    finally:
        browser.quit()


class Page:
    """The report in a browser."""

    def __init__(self, browser: webdriver.Chrome, path: Path):
        self.browser, self.path = browser, path
        self.size(*WIDE)
        self.prefer("light")

    def size(self, width: int, height: int) -> None:
        """The size of the window."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, theme: str) -> None:
        """What the system prefers."""
        media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    def open(self, run: str = "") -> None:
        """A run's page, freshly loaded and drawn, with its first chart in sight."""
        self.browser.get("about:blank")
        self.browser.get(f"{self.path.as_uri()}#{run}")
        self.until(lambda: self.browser.execute_script(DRAWN))
        if run:
            self.until(lambda: self.paths())
            self.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", self.plot())

    def until(self, holds: Any) -> Any:
        """Wait until something holds; the limit is for what never does, far above what a busy machine needs."""
        replaced = [StaleElementReferenceException]  # what is looked at may be drawn anew in this moment
        return WebDriverWait(self.browser, 300, 0.05, ignored_exceptions=replaced).until(lambda _: holds())

    def all(self, selector: str) -> list[WebElement]:
        """All elements of a selector."""
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        """The first element of a selector."""
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """The texts of all elements of a selector, seen or not."""
        return self.read("html", selector, "item.textContent")

    def plot(self, place: int = 0) -> WebElement:
        """A chart."""
        return self.all(".plot")[place]

    def paths(self) -> dict[str, str]:
        """The lines of the first chart, as they are drawn, by label."""
        return dict(self.read(".plot", "path.line", "[item.dataset.label, item.getAttribute('d')]"))

    def labels(self) -> list[str]:
        """The labels at the axes of the first chart."""
        return self.read(".plot", ".labels text", "item.textContent")

    def read(self, within: str, selector: str, what: str) -> list[Any]:
        """Something of all elements of a selector in the first of another, read at once: charts are drawn anew."""
        script = "return [...document.querySelector(arguments[0]).querySelectorAll(arguments[1])].map(item => {})"
        return self.browser.execute_script(script.format(what), within, selector)

    def changes(self, action: Any) -> dict[str, str]:
        """The lines after an action that must change them."""
        before = self.paths()
        action()
        self.until(lambda: self.paths() != before)
        return self.paths()

    def press(self, element: WebElement) -> None:
        """Click on something, which may be out of sight."""
        self.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def choose(self, legend: str, name: str) -> None:
        """Press one of several switches."""
        (field,) = [field for field in self.all("fieldset") if field.find_element(By.TAG_NAME, "legend").text == legend]
        next(label for label in field.find_elements(By.TAG_NAME, "label") if label.text == name).click()

    def move(self, x: int, y: int = 0, place: int = 0) -> ActionChains:
        """The pointer, from the middle of a chart."""
        return ActionChains(self.browser, duration=50).move_to_element_with_offset(self.plot(place), x, y)

    def tip(self) -> dict[str, float | None]:
        """The numbers beside the pointer: that of the horizontal axis, under "", and those of the lines."""
        self.until(lambda: self.one(".tip").is_displayed())
        where = self.one(".tip .where").text
        values = dict(zip(self.texts(".tip:not([hidden]) th"), self.texts(".tip:not([hidden]) .value"), strict=True))
        return {"": number(where.split()[-1])} | {label: number(text) for label, text in values.items()}

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return self.browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth")

    def wheel(self) -> bool:
        """Turn the wheel above the first chart; whether the chart took it, so that the page does not scroll."""
        script = """
            const box = arguments[0].getBoundingClientRect();
            const turn = { deltaY: -200, clientX: box.x + 200, clientY: box.y + 80, cancelable: true };
            return !arguments[0].dispatchEvent(new WheelEvent("wheel", turn));
        """
        return self.browser.execute_script(script, self.plot())

    def colour(self, selector: str, name: str) -> str:
        """A computed colour."""
        return self.browser.execute_script(
            "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]", selector, name
        )

    def errors(self) -> list[dict[str, Any]]:
        """What the browser complained about since the last time."""
        return self.browser.get_log("browser")


def number(text: str) -> float | None:
    """A number as the page writes it; None for a dash."""
    text = (
        text.removeprefix("≈ ")
        .replace("\N{MINUS SIGN}", "-")
        .replace(",", "")
        .replace("\N{MULTIPLICATION SIGN}10", "e")
    )
    text = text.translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-"))
    return None if text == "\N{EN DASH}" else float(text)
