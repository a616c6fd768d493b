"""Completion of words in shells: each has its own script, and what the script asks is answered."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.pages import ROOT


def cofed(*words, **variables):
    """The program, under its own name, started from a process that is no shell."""
    start = "import sys; sys.argv[0] = 'cofed'; from cofed.cli import app; app()"
    given = os.environ | {"PYTHONPATH": str(ROOT / "src")} | variables
    return subprocess.run([sys.executable, "-c", start, *words], capture_output=True, text=True, env=given)


@pytest.mark.parametrize(
    ("shell", "first", "rest"),
    [
        ("bash", "_cofed_completion() {", "complete -o default -F _cofed_completion cofed"),
        ("zsh", "#compdef cofed", "_COFED_COMPLETE=complete_zsh cofed"),
        ("fish", "complete --command cofed", "_COFED_COMPLETE=complete_fish"),
    ],
)
def test_each_shell_gets_its_own_script(shell, first, rest, tmp_path):
    shown = cofed("--show-completion", shell)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith(first)
    assert rest in shown.stdout
    installed = cofed("--install-completion", shell, HOME=str(tmp_path))
    assert installed.returncode == 0, installed.stderr
    [path] = [file for file in tmp_path.rglob("*cofed*") if file.is_file()]
    assert str(path) in installed.stdout
    assert path.read_text().strip() == shown.stdout.strip()


@pytest.mark.parametrize("option", ["--show-completion", "--install-completion"])
def test_a_shell_without_a_script_is_refused(option, tmp_path):
    done = cofed(option, "tcsh", HOME=str(tmp_path))
    assert done.returncode == 2
    assert f"{option}: there is none for 'tcsh'; expected bash, zsh or fish" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "asked",
    [
        {"_COFED_COMPLETE": "complete_bash", "COMP_WORDS": "cofed surv", "COMP_CWORD": "1"},
        {"_COFED_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "cofed surv"},
        {
            "_COFED_COMPLETE": "complete_fish",
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            "_TYPER_COMPLETE_ARGS": "cofed surv",
        },
    ],
    ids=lambda asked: asked["_COFED_COMPLETE"],
)
def test_a_script_is_told_how_words_go_on(asked):
    done = cofed(**asked)
    assert "survival" in done.stdout, done.stderr
    assert "describe" not in done.stdout


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("reproduce yuan2021-fig", "yuan2021-fig3"),
        ("race --problems lasso-pl", "lasso-plain"),
        ("race --problems lasso-plain,low", "lasso-plain,low-rank-plain"),
        ("race --algorithms FedD", "FedDualAvg"),
        ("fit --family multi", "multinomial"),
        ("fit --penalty el", "elasticnet"),
        ("fit --select 1", "1se"),
        ("fit --measure mi", "misclassification"),
        ("study init --family po", "poisson"),
    ],
)
def test_values_are_completed_too(words, found):
    """As zsh asks: the answer of a command in pieces, the values among them."""
    done = cofed(_COFED_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS=f"cofed {words}")
    assert re.search(rf"\b{re.escape(found)}\b", done.stdout), done.stderr
    assert words.split()[-1] in done.stdout
    assert "mgaussian" not in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_a_command(tmp_path):
    program = tmp_path / "cofed"
    start = "import sys; sys.argv[0] = 'cofed'; from cofed.cli import app; app()"
    program.write_text(f"#!{sys.executable}\n{start}\n")
    program.chmod(0o755)
    script = tmp_path / "script"
    script.write_text(cofed("--show-completion", "bash").stdout)
    words = f'source {script}; COMP_WORDS=(cofed study app); COMP_CWORD=2; _cofed_completion cofed; echo "$COMPREPLY"'
    paths = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, env=os.environ | paths)
    assert done.stdout.strip() == "approve", done.stderr
