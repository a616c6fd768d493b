"""Why Flower's own masks are not used: a pair's mask has a seed of 28 bits, so whoever tries all seeds takes it off."""

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

RANGE = 1 << 22  # of Flower's quantised numbers, by default


def seed_of(shared: bytes) -> int:
    """What `pseudo_rand_gen` makes of a shared key: the parity of its words of 32 bits."""
    return int(np.bitwise_xor.reduce(np.frombuffer(shared, "<u4")))


def shared_keys(count):
    """Keys that pairs of Flower's clients agree on."""
    pairs = [(ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())) for _ in range(count)]
    return [generate_shared_key(one, two.public_key()) for one, two in pairs]


def test_the_seed_of_a_pair_has_28_bits():
    keys = shared_keys(40)
    assert {len(key) for key in keys} == {44}  # text in base64, of whose letters the highest bit is never set
    seeds = np.array([seed_of(key) for key in keys], np.uint32)
    assert not np.bitwise_or.reduce(seeds) & 0x80808080
    [mask] = pseudo_rand_gen(keys[0], RANGE, [(6,)])
    again = np.random.RandomState(seeds[0]).randint(0, RANGE - 1, 6, dtype=np.int64)
    np.testing.assert_array_equal(mask, again)


def test_a_search_takes_the_mask_off():
    """2^14 tries find the answer where half of the seed is given away; all of it, 2^28 tries, takes hours."""
    [key] = shared_keys(1)
    answer = np.array([3, 1, 4, 1, 5, 9])  # an answer of small numbers, which a mask should hide
    masked = (answer + pseudo_rand_gen(key, RANGE, [(6,)])[0]) % RANGE
    seed, found = seed_of(key), []
    for low in range(1 << 14):
        guess = seed & 0x7F7F0000 | (low >> 7) << 8 | low & 0x7F
        left = (masked - np.random.RandomState(guess).randint(0, RANGE - 1, 6, dtype=np.int64)) % RANGE
        if (left < 16).all():
            found.append(left.tolist())
    assert found == [answer.tolist()]
