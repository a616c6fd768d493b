"""Masks cancel over all sites and over no fewer, whatever sites collude."""

import itertools

import networkx as nx
import numpy as np
import pytest

from cofed.sites.secure.keys import SiteKeys, is_signed, joined
from cofed.sites.secure.masks import BLOCK, mask, neighbours, pair_secret
from cofed.sites.secure.site_end import RunKeys
from cofed.sites.secure.wide import SCALED, add


def secrets_of(names):
    """For each site, the secret with each neighbour and whether it adds."""
    keys = {name: RunKeys(None) for name in names}
    found = {}
    for name in names:
        found[name] = {}
        for other in neighbours(name, names, "study"):
            first, second = sorted((name, other))
            about = ("study", "run", first, second, keys[first].public, keys[second].public)
            found[name][other] = keys[name].secret_with(keys[other].public, about), name == first
    return found


def total(masks):
    found = masks[0]
    for one in masks[1:]:
        found = add(found, one)
    return found


@pytest.mark.parametrize("many", [2, 3, 10, 40])
def test_masks_cancel_over_all_sites(many):
    secrets = secrets_of([f"site {i}" for i in range(many)])
    masks = [mask(own, "request", SCALED, 5) for own in secrets.values()]
    assert not total(masks).any()
    assert all(one.all() for one in masks)  # a word of a mask is zero once in 2^64


def test_masks_cancel_over_no_fewer_sites():
    secrets = secrets_of(list("abcde"))
    masks = {name: mask(own, "request", SCALED, 2) for name, own in secrets.items()}
    for count in range(1, 5):
        for some in itertools.combinations(masks, count):
            assert total([masks[name] for name in some]).all()


def test_another_request_has_other_masks():
    own = secrets_of(["a", "b"])["a"]
    assert (mask(own, "one", SCALED, 100) != mask(own, "two", SCALED, 100)).all()


def test_the_masks_of_many_numbers_do_not_repeat():
    own = secrets_of(["a", "b"])["a"]
    words = mask(own, "request", SCALED, 3 * BLOCK + 7)
    assert len(np.unique(words)) == words.size
    again = mask(own, "request", SCALED, 3 * BLOCK + 7)
    np.testing.assert_array_equal(words, again)


@pytest.mark.parametrize("many", [2, 33, 34, 60, pytest.param(200, marks=pytest.mark.slow)])
def test_whoever_knows_the_masks_of_31_sites_finds_the_others_connected(many):
    names = [f"site {i}" for i in range(many)]
    graph = nx.Graph([(name, other) for name in names for other in neighbours(name, names, "study")])
    assert nx.node_connectivity(graph) == min(many - 1, 32)


def test_both_sites_of_a_pair_have_the_same_secret_and_nobody_else():
    a, b, c = (RunKeys(None) for _ in range(3))
    secret = pair_secret(a.private, b.public, ["x"])
    assert secret == pair_secret(b.private, a.public, ["x"])
    assert secret not in (pair_secret(c.private, a.public, ["x"]), pair_secret(b.private, a.public, ["y"]))


def test_a_key_that_gives_nothing_secret_is_refused():
    with pytest.raises(ValueError, match="Error computing shared key"):
        pair_secret(RunKeys(None).private, "00" * 32, ["x"])


def test_signatures_are_of_these_words_by_this_key():
    one, two = SiteKeys.new(), SiteKeys.new()
    assert is_signed(one.public, b"words", one.sign(b"words"))
    assert not is_signed(two.public, b"words", one.sign(b"words"))
    for odd in (None, "", "zz", 3, "00" * 64, one.sign(b"words")[:-2]):
        assert not is_signed(one.public, b"words", odd)
    assert not is_signed("zz", b"words", one.sign(b"words"))


def test_parts_cannot_be_joined_otherwise():
    assert len({joined(b"ab", b"c"), joined(b"a", b"bc"), joined(b"abc"), joined(b"", b"abc")}) == 4


def test_keys_are_kept_private_and_found_again(tmp_path):
    keys = SiteKeys.of_folder(tmp_path / "keep")
    again = SiteKeys.of_folder(tmp_path / "keep")
    assert (keys.signing, keys.secret) == (again.signing, again.secret)
    for path in (tmp_path / "keep").iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "keep" / "secret.key").chmod(0o640)
    with pytest.raises(ValueError, match="can be read or changed by others"):
        SiteKeys.of_folder(tmp_path / "keep")
    (tmp_path / "keep" / "secret.key").chmod(0o600)
    (tmp_path / "keep" / "secret.key").write_bytes(b"short")
    with pytest.raises(ValueError, match="damaged: it has 5 bytes, expected 32"):
        SiteKeys.of_folder(tmp_path / "keep")
