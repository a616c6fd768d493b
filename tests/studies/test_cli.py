"""`cofed study`, by real commands."""

import os
import re
import stat

import pytest
from typer.testing import CliRunner

from cofed import studies
from cofed.cli import app
from cofed.sites.policy import TRIAL, Policy, load_policy, policy_toml
from tests.sites import worlds


def invoke(*arguments: str):
    return CliRunner().invoke(app, ["study", *arguments], env={"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"})


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Two sites' tables; rome has a level that oslo lacks."""
    monkeypatch.chdir(tmp_path)
    oslo = worlds.hospital(60, 0).assign(born="2001-12-31")
    oslo[oslo["ward"] != "ICU"].to_csv("oslo.csv", index=False)
    worlds.hospital(40, 1).to_parquet("rome.parquet")
    return tmp_path


def test_from_a_table_to_an_approved_study(files):
    done = invoke("init", "oslo.csv", "--target", "ill")
    assert done.exit_code == 0, done.output
    assert "Left out: born: it holds dates or times at 'oslo'." in flat(done.output)
    assert invoke("check", "study.toml", "--data", "oslo.csv").exit_code == 0
    done = invoke("check", "study.toml", "--data", "rome.parquet")
    assert done.exit_code == 1
    assert "site 'rome', column 'ward' has 'ICU', but the levels are" in flat(done.output)
    done = invoke("approve", "study.toml", "--data", "rome.parquet")
    assert done.exit_code == 1
    assert not list(files.glob("cofed-site/*/*"))
    text = (files / "study.toml").read_text()
    (files / "study.toml").write_text(re.sub(r'levels = \["ward 2"', 'levels = ["ICU", "ward 2"', text))
    done = invoke("approve", "study.toml", "--data", "rome.parquet", "--keep", "mine")
    assert done.exit_code == 0, done.output
    assert studies.approved(files / "mine", studies.load(files / "study.toml"))
    assert stat.S_IMODE(os.stat(files / "mine").st_mode) == 0o700
    done = invoke("approve", "study.toml", "--data", "rome.parquet", "--keep", "mine", "--withdraw")
    assert done.output.strip() == "Withdrawn."
    study = studies.load(files / "study.toml")
    assert not studies.approved(files / "mine", study)
    (files / "mine" / "approved-studies" / f"{study.digest}.json").mkdir()  # nothing that can be taken back
    done = invoke("approve", "study.toml", "--keep", "mine", "--withdraw")
    assert done.exit_code == 1
    assert "Error: " in done.output


def test_a_folder_of_tables_drafts_the_union_of_levels(files):
    assert invoke("init", ".", "-o", "all.toml").exit_code == 0
    study = studies.load(files / "all.toml")
    assert study.variables["ward"].levels == ("ICU", "ward 2", "ward 10", "Å")
    assert [site.name for site in study.sites] == ["oslo", "rome"]
    assert study.analyses == ()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["init", "none.csv"], 2, "TABLE: there is no file or folder none.csv; expected: a site's table, or a folder"),
        (["init", "oslo.csv", "--target", "il"], 2, "no site has a column 'il' (did you mean 'ill'?); there are"),
        (["init", ".", "--target", "ward", "--family", "binomial"], 2, "two levels, but 'ward' has 4"),
        (["init", "oslo.csv", "--family", "normal"], 2, "--family must be gaussian, mgaussian, binomial,"),
        (["init", "oslo.csv", "-o", "oslo.csv"], 2, "oslo.csv exists already"),
        (["check", "none.toml", "--data", "oslo.csv"], 2, "there is no file none.toml"),
        (["check", "none.toml", "--data", "none.csv"], 2, "--data: there is no file or folder none.csv; expected: the"),
        (["approve", "none.toml", "--data", "none.csv"], 2, "--data: there is no file or folder none.csv; expected"),
        (["key", "--keep", "oslo.csv"], 2, "--keep: oslo.csv or a part of it is a file"),
        (["check", "oslo.csv", "--data", "oslo.csv"], 2, "oslo.csv, "),
    ],
)
def test_bad_input_is_refused(files, arguments, code, said):
    done = invoke(*arguments)
    assert done.exit_code == code
    assert said in flat(done.output)


@pytest.fixture
def keyed(files):
    """A study of two sites whose keys it names, and the fingerprints."""
    assert invoke("init", ".", "-o", "study.toml").exit_code == 0
    lines, prints = {}, {}
    for site in ("oslo", "rome"):
        done = invoke("key", "--keep", site)
        assert done.exit_code == 0, done.output
        lines[site], prints[site] = (line.strip() for line in done.output.splitlines())
        assert re.fullmatch('key = "[0-9a-f]{64}"', lines[site])
        assert invoke("key", "--keep", site).output == done.output  # it is kept
    text = (files / "study.toml").read_text()
    for site, line in lines.items():
        text = text.replace(f'name = "{site}"', f'name = "{site}"\n{line}')
    (files / "study.toml").write_text(text)
    return prints


def test_approving_shows_all_keys_and_refuses_another_than_one_s_own(files, keyed):
    done = invoke("approve", "study.toml", "--data", "rome.parquet", "--keep", "rome")
    assert done.exit_code == 0, done.output
    for site, words in keyed.items():
        assert f"Key of {site}: {words.partition(': ')[2]}" in flat(done.output)
    done = invoke("approve", "study.toml", "--data", "rome.parquet", "--keep", "oslo")
    assert done.exit_code == 2
    assert "the study names another key of 'rome' than the one in its folder" in flat(done.output)
    done = invoke("approve", "study.toml", "--data", "rome.parquet", "--site", "bern", "--keep", "rome")
    assert done.exit_code == 2
    assert "'bern' is not one of the study's sites: oslo, rome" in flat(done.output)


def test_approving_says_which_approved_study_has_nearly_the_same_sites(files, keyed):
    def with_sites(name, *sites, end=""):
        blocks = [f'\n[[sites]]\nname = "{one}"\nkey = "{place}f{"5" * 62}"\n' for place, one in enumerate(sites)]
        (files / name).write_text((files / "study.toml").read_text() + "".join(blocks) + end)
        done = invoke("approve", name, "--data", "rome.parquet", "--keep", "rome")
        assert done.exit_code == 0, done.output
        return "would refuse it once sums of the study 'study' were answered" in flat(done.output), flat(done.output)

    assert not with_sites("four.toml", "bern", "lyon")[0]
    told, words = with_sites("five.toml", "bern", "lyon", "bonn")
    assert told
    assert "both together tell of bonn: agree on releasable = true for who comes or goes" in words
    invoke("approve", "five.toml", "--keep", "rome", "--withdraw")
    assert not with_sites("agreed.toml", "bern", "lyon", "bonn", end="releasable = true\n")[0]


@pytest.mark.parametrize("command", [["release", "--site", "rome"], ["approve", "--data", "rome.parquet"]])
def test_a_misspelt_folder_is_a_sentence_and_no_key_is_made_in_it(files, keyed, command):
    done = invoke(command[0], "study.toml", *command[1:], "--keep", "rmoe")
    assert done.exit_code == 2
    assert "there is no site's key in rmoe; cofed study key makes one" in flat(done.output)
    assert not list(files.glob("rmoe/*"))


def test_a_release_is_of_this_study_and_by_this_site(files, keyed):
    study = studies.load(files / "study.toml")
    done = invoke("release", "study.toml", "--site", "rome", "--keep", "rome")
    assert done.exit_code == 0, done.output
    path = files / "rome.release.json"
    assert studies.read_release(path, study)[0] == "rome"
    other = study.model_copy(update={"analyses": (), "study": study.study.model_copy(update={"name": "other"})})
    with pytest.raises(ValueError, match="is a release of another study"):
        studies.read_release(path, other)
    path.write_text(path.read_text().replace('"rome"', '"oslo"'))
    with pytest.raises(ValueError, match="is not signed by the key that the study names for 'oslo'"):
        studies.read_release(path, study)
    path.write_text("[]")
    with pytest.raises(ValueError, match="is not a site's release"):
        studies.read_release(path, study)
    done = invoke("release", "study.toml", "--site", "rome", "--keep", "rome", "--out", "study.toml/r.json")
    assert done.exit_code == 1
    assert "cannot be written" in flat(done.output)
    done = invoke("release", "study.toml", "--site", "rome", "--keep", "oslo")
    assert done.exit_code == 2
    assert "the study names another key of 'rome'" in flat(done.output)


def test_a_draft_of_a_policy_is_the_default_one(files):
    done = invoke("policy")
    assert done.exit_code == 0, done.output
    assert load_policy(files / "policy.toml") == Policy()
    assert invoke("policy").exit_code == 2  # it is there already


def test_two_sites_cannot_have_one_key(files, keyed):
    text = (files / "study.toml").read_text()
    one, two = re.findall('key = "([0-9a-f]{64})"', text)
    (files / "study.toml").write_text(text.replace(two, one))
    done = invoke("check", "study.toml", "--data", "oslo.csv")
    assert done.exit_code == 2
    assert "another site has the same key" in flat(done.output)
    (files / "study.toml").write_text(text.replace(two, "nonsense"))
    assert invoke("check", "study.toml", "--data", "oslo.csv").exit_code == 2


def test_a_check_says_what_the_sites_own_rules_would_refuse(files):
    worlds.hospital(60, 0).to_csv("bern.csv", index=False)
    assert invoke("init", "bern.csv", "--target", "ill").exit_code == 0
    worlds.hospital(60, 0).drop_duplicates("ward").head(5).to_csv("tiny.csv", index=False)
    done = invoke("check", "study.toml", "--data", "tiny.csv")
    assert done.exit_code == 1
    assert "the rule 'rows' would refuse the analysis 'main': the question is about 4 rows here; 10" in flat(
        done.output
    )
    (files / "policy.toml").write_text(policy_toml(TRIAL))
    assert invoke("check", "study.toml", "--data", "tiny.csv", "--policy", "policy.toml").exit_code == 0
    (files / "policy.toml").write_text("[rows]\nfold = 20\n")
    done = invoke("check", "study.toml", "--data", "bern.csv", "--policy", "policy.toml")
    assert done.exit_code == 1
    assert "the rule 'folds' would refuse the analysis 'main': with 5 folds, one has" in flat(done.output)
    done = invoke("approve", "study.toml", "--data", "tiny.csv")
    assert done.exit_code == 0, done.output  # rules may change, and hold anyway
    assert "Note: the rule 'rows' would refuse" in flat(done.output)
    assert invoke("check", "study.toml", "--data", "bern.csv", "--policy", "none.toml").exit_code == 2
