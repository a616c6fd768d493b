"""The policy's file: defaults that can be printed, and mistakes that are named."""

import tomllib

import pytest

from cofed import algorithms
from cofed.sites.policy import TRIAL, Policy, PolicyError, default_policy_toml, load_policy, parse_policy, policy_toml
from cofed.sites.queries import QUERIES
from tests.pages import ROOT


def test_the_printed_defaults_are_the_defaults():
    assert parse_policy(default_policy_toml()) == Policy() == parse_policy("")
    assert parse_policy(policy_toml(TRIAL)) == TRIAL


def test_every_key_says_what_it_is_and_where_its_default_comes_from():
    said = default_policy_toml().splitlines()
    keys = [(name, key) for name, table in tomllib.loads(default_policy_toml()).items() for key in table]
    assert len(keys) == sum(" = " in line and not line.startswith("#") for line in said) == 24
    for line, before in zip(said[1:], said, strict=False):
        if line and line[0] not in "#[":
            assert before.startswith("# ")
            assert before.endswith(".")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[rows]\natoms = 3",
            r"line 2: rows.atoms is not a key here \(did you mean 'atom'\?\); allowed are atom, cell",
        ),
        ("[rows]\natom = 0", "line 2: rows.atom is 0; it should be greater than or equal to 1"),
        ('[rows]\natom = "3"', "line 2: rows.atom is '3'; it should be a whole number"),
        ("[points]\n\nper_row = 0.0", "line 3: points.per_row is 0.0; it should be greater than 0"),
        ("[points]\nleverage = 1.5", "line 2: points.leverage is 1.5; it should be less than or equal to 1"),
        ("[points]\nsize = inf", "line 2: points.size is inf; it should be a finite number"),
        ("[points]\ndominance = inf", "line 2: points.dominance is inf; it should be a finite number"),
        ('[sums]\nmasked = "no"', "line 2: sums.masked is 'no'; allowed are 'pinned', 'required' or 'optional'"),
        ('[questions]\nqueries = ["looks"]', r"line 2: 'looks' is no query \(did you mean 'look'\?\); there are sums"),
        (
            '[questions]\nalgorithms = ["FedDualAvgg"]',
            r"line 2: 'FedDualAvgg' is no algorithm \(did you mean 'FedDualAvg'\?\); there are AccSDANE",
        ),
        ('[questions]\nalgorithms = ["clinic."]', r"line 2: 'clinic\.' is no algorithm; there are"),
        ("[updates]\nnorm = -1", "line 2: updates.norm is -1; it should be greater than or equal to 0"),
        ("[updates]\nnorm = inf", "line 2: updates.norm is inf; it should be a finite number"),
        ("[questions]\nqueries = []\nalgorithms = []", "line 2: neither a query nor an algorithm is allowed"),
        ("[row]\natom = 3", r"line 1: row is not a key here \(did you mean 'rows'\?\)"),
        ("rows = 3", "line 1: rows is 3; "),
        ("[rows", "Expected ']'"),
    ],
)
def test_mistakes_are_named_with_their_line(text, sentence):
    with pytest.raises(PolicyError, match=sentence):
        parse_policy(text)


def test_a_file_is_read_and_its_mistakes_name_it(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('[sums]\nsites = 5\n\n[questions]\nqueries = ["sums", "gram"]\n')
    policy = load_policy(path)
    assert (policy.sums.sites, policy.sums.colluding, policy.questions.queries) == (5, 1, ("sums", "gram"))
    path.write_text("[sums]\nsites = 0\nsite = 3\n")
    with pytest.raises(PolicyError) as error:
        load_policy(path)
    assert [line.startswith(f"{path}, line ") for line in str(error.value).splitlines()] == [True, True]
    path.write_bytes(b"\xff")
    with pytest.raises(PolicyError, match="cannot be read"):
        load_policy(path)


def test_a_sum_is_over_two_sites_more_than_may_collude():
    assert Policy().least_sites == 3
    assert Policy(sums={"sites": 3, "colluding": 4}).least_sites == 6


def test_all_queries_can_be_named():
    names = ", ".join(f'"{name}"' for name in QUERIES)
    assert parse_policy(f"[questions]\nqueries = [{names}]").questions.queries == tuple(QUERIES)


def test_all_algorithms_with_a_server_can_be_named_and_those_of_one_s_own():
    names = [*algorithms.__all__, "Compressed", "clinic.methods.Own"]
    listed = ", ".join(f'"{name}"' for name in names)
    assert parse_policy(f"[questions]\nalgorithms = [{listed}]").questions.algorithms == tuple(names)


def test_the_page_names_every_key_and_its_default():
    page = (ROOT / "docs/policy.md").read_text()
    for name, part in Policy():
        for key, value in part:
            assert f"`{name}.{key}`" in page, f"{name}.{key}"
            assert value in ((), ("*",), "pinned") or f"{value:g}" in page.replace(",", ""), f"{name}.{key}"
