"""`cofed fit --epsilon`: a fit from noised sums by command, what it says, and what it refuses."""

import pandas as pd
import pytest

from cofed.cli.private_fits import private, with_privacy
from cofed.estimators import FederatedLogisticRegressionCV, FederatedPoisson, load
from cofed.fitting import FitPlan
from cofed.privacy import Privacy
from cofed.sites import Design, Feature, Target
from cofed.sites.design import RowColumn
from tests.fitting import hospitals
from tests.fitting.test_command import fit
from tests.test_cli import flat

COST = ("--target", "cost", "--features", "age,glucose,sex")
ILL = ("--target", "ill", "--features", "age,glucose")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return hospitals.write(tmp_path_factory.mktemp("sites") / "hospitals", hospitals.pooled())


def test_a_private_fit_says_what_it_cost_and_what_was_guessed(folder, tmp_path):
    guesses = tmp_path / "guesses.csv"
    guesses.write_text("column,centre,spread\ncost,0.5,2\nage,0,1.5\n")
    out = tmp_path / "out"
    # So large an epsilon protects nobody: the noise is far below what the test asks of coefficients.
    result = fit(folder, *COST, "--epsilon", 1e4, "--delta", 1e-5, "--guesses", guesses, "--cv", 3, "--out", out)
    assert result.exit_code == 0, result.output
    assert "privacy       of each row: epsilon" in result.output
    model = load(out / "model.safetensors")
    assert model.privacy == Privacy(1e4, 1e-5, [0, 0, 0], [1.5, 1, 1], 0.5, 2)
    table = pd.read_csv(out / "coefficients.csv").set_index("feature")["coef"]
    assert abs(table["age"] - 1.5) < 0.3
    assert abs(table["glucose"] + 1) < 0.3
    figures = pd.read_csv(out / "summary.csv").set_index("name")["value"]
    assert figures["outcome"] == "private"
    assert 0 < float(figures["epsilon"]) <= 1e4
    assert float(figures["delta"]) == 1e-5
    page = (out / "report.html").read_text()
    assert "private: with noise" in page
    assert "Every row is protected by noise" in page
    assert {"path.png", "cv.png", "study.toml"} <= {file.name for file in out.iterdir()}


REFUSED = {
    "a count": (("--target", "visits", "--features", "age", "--family", "poisson", "--epsilon", 1), "not for poisson"),
    "classes without a strength": ((*ILL, "--epsilon", 1), "takes a strength: give --alpha"),
    "several classes": (("--target", "stage", "--features", "age", "--epsilon", 1), "not for multinomial with l1"),
    "groups": ((*COST, "--penalty", "group", "--alpha", 1, "--epsilon", 1), "not for gaussian with group"),
    "intervals": ((*COST, "--infer", "--epsilon", 1), "leave out --infer"),
    "classes that count alike": ((*ILL, "--alpha", 0.1, "--class-weight", "balanced", "--epsilon", 1), "class-weight"),
    "weights": ((*COST, "--weight", "distance", "--epsilon", 1), "takes neither --weight nor --offset"),
    "nothing": ((*COST, "--epsilon", 0), "--epsilon must be a finite number > 0, got 0"),
    "a certain leak": ((*COST, "--epsilon", 1, "--delta", 1), "--delta must be below 1, got 1"),
    "a delta alone": ((*COST, "--delta", 1e-6), "--delta goes with --epsilon"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_there_is_no_privacy_for_is_refused_before_anything_starts(folder, tmp_path, what):
    given, sentence = REFUSED[what]
    result = fit(folder, *given, "--out", tmp_path / "out")
    assert result.exit_code == 2, result.output
    assert sentence in flat(result.output)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("column,mean\nage,0\n", "must have the columns column, centre, spread"),
        ("column,centre,spread\nage,0,0\n", "must give 'age' a finite centre and a spread > 0"),
        ("column,centre,spread\nage,0,1\nage,1,1\n", "has 'age' twice"),
        ("column,centre,spread\nheight,0,1\n", "there is no column 'height' in the fit"),
    ],
)
def test_guesses_that_mean_nothing_are_refused(folder, tmp_path, text, sentence):
    guesses = tmp_path / "guesses.csv"
    guesses.write_text(text)
    result = fit(folder, *COST, "--epsilon", 1, "--guesses", guesses, "--out", tmp_path / "out")
    assert result.exit_code == 2, result.output
    assert sentence in flat(result.output)


def test_an_analysis_of_a_study_takes_privacy_too():
    age, noise = Feature(name="age"), private(1.0, None, None)
    plain = FitPlan("gaussian", alpha=0.1)
    design = Design(features=(age,), target=Target(name="cost"))
    assert with_privacy(plain, design, None) is plain
    assert with_privacy(plain, design, noise).privacy == noise
    with pytest.raises(ValueError, match="neither weights nor offsets"):
        with_privacy(plain, design.model_copy(update={"weight": RowColumn(name="w")}), noise)


@pytest.mark.parametrize("kind", [FederatedPoisson, FederatedLogisticRegressionCV])
def test_an_estimator_without_privacy_says_who_has_it(kind):
    with pytest.raises(TypeError, match=rf"{kind.__name__} takes no privacy: .*FederatedLasso, .*the page \"privacy\""):
        kind(privacy=Privacy(1))
