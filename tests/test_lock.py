"""What a site installs is locked: every dependency, in one version, with hashes."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.pages import ROOT

LOCK = ROOT / "requirements" / "site.txt"
EXTRAS = ("flower", "privacy")  # what a site's process needs beside cofed itself
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WANTED = [
    *PROJECT["project"]["dependencies"],
    *(line for extra in EXTRAS for line in PROJECT["project"]["optional-dependencies"][extra]),
    *PROJECT["build-system"]["requires"],
]


def entries() -> list[tuple[Requirement, str]]:
    """Every package of the lock, with the lines that belong to it."""
    parts = re.split(r"^(?=[A-Za-z0-9])", LOCK.read_text(), flags=re.MULTILINE)[1:]
    return [(Requirement(part.split("\\")[0].strip()), part) for part in parts]


ENTRIES = entries()


def test_every_package_has_one_version_and_hashes():
    assert len(ENTRIES) > 50
    for package, lines in ENTRIES:
        assert [one.operator for one in package.specifier] == ["=="], package
        hashes = re.findall(r"--hash=(\S+)", lines)
        assert hashes, package
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", one) for one in hashes), package


@pytest.mark.parametrize("wanted", WANTED)
def test_what_the_project_asks_for_is_locked_in_a_version_that_it_allows(wanted):
    asked = Requirement(wanted)
    found = [one for one, _ in ENTRIES if canonicalize_name(one.name) == canonicalize_name(asked.name)]
    assert found, f"{asked.name} is not locked: make lock"
    for one in found:
        assert asked.specifier.contains(next(iter(one.specifier)).version), f"{one} is not {asked}: make lock"


def test_a_package_that_is_locked_twice_is_for_different_machines():
    names = [package.name for package, _ in ENTRIES]
    for package, _ in ENTRIES:
        assert names.count(package.name) == 1 or package.marker is not None, package


def test_nothing_is_said_of_where_files_come_from():
    assert "://" not in LOCK.read_text()
    assert "--index" not in LOCK.read_text()


def test_the_page_names_every_direct_dependency():
    page = (ROOT / "docs" / "supply-chain.md").read_text()
    for wanted in WANTED:
        assert f"`{Requirement(wanted).name}`" in page
