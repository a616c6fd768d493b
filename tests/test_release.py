"""What a release is made of agrees with itself: versions, extras, workflows, the paper and its references."""

import re
import tomllib

import pytest

import cofed
from cofed.cli.doctor import PURPOSES
from tests.pages import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_every_file_that_names_the_version_names_this_one():
    assert f"\nversion: {cofed.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == cofed.__version__
    assert not re.search(r"^version = ", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)


def test_every_extra_is_told_by_the_doctor_and_on_the_first_page():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(PURPOSES) == set(extras) - {"docs", "dev"}
    table = (ROOT / "docs" / "start" / "index.md").read_text().split("## Extras")[1]
    assert set(re.findall(r"`([\w-]+)`(?=[^|]*\|[^|]*\|$)", table, re.MULTILINE)) == set(PURPOSES)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_what_is_there(path):
    commands = re.findall(r"- run: (.+)", path.read_text())
    assert commands
    for target in re.findall(r"\bmake (\S+)", "\n".join(commands)):
        assert f"\n{target}:" in (ROOT / "Makefile").read_text(), target


def test_the_paper_has_its_length_its_sections_and_its_references():
    text = (ROOT / "paper" / "paper.md").read_text().split("---\n", 2)[2]
    assert 750 <= len(text.split()) <= 1750
    for section in ("Summary", "Statement of need", "State of the field", "Software design", "References"):
        assert f"\n# {section}\n" in text
    cited = set(re.findall(r"@([a-z]+\d{4})", text))
    assert cited == set(re.findall(r"^@\w+\{(\w+),", (ROOT / "paper" / "paper.bib").read_text(), re.MULTILINE))
