"""The code on the page about Flower runs as it stands there, and so does the hospitals' first command."""

import subprocess
import sys

from tests import pages

CHECK = """
assert type(app).__name__ == "ClientApp"
X, y = load({"data": "data/bergen"})
assert len(X) == len(y) > 0
assert "cost" not in X
"""


def test_the_python_of_the_page_runs_as_it_stands(tmp_path):
    (tmp_path / "data").symlink_to(pages.ROOT / "examples" / "hospitals" / "data")
    pages.run("docs/network.md", tmp_path, CHECK)


def test_the_certificates_of_the_example_are_made_as_it_says(tmp_path):
    [line] = [one for one in pages.commands("examples/hospitals/README.md") if "cofed.flower.certificates" in one]
    subprocess.run([sys.executable, *line.split()[1:]], cwd=tmp_path, check=True)
    assert len(list((tmp_path / "certificates").iterdir())) == 4 + 2 * 4
