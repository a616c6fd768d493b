"""Handwritten digits by writer, for the figures that need FEMNIST: the real files, or what stands in for them."""

import numpy as np

import cofed
from cofed.datasets.mnist import Images
from cofed.experiments.specification import Numbers
from cofed.federation import Federation

READS = ("femnist", "mnist")  # datasets of the data folder


def by_writer(n: Numbers, seed: int) -> tuple[Federation, Federation, str]:
    """Training clients, test data, and what they are in words: FEMNIST, or else MNIST dealt out to pseudo-writers.

    `n.writers` and `n.images` say how many, `n.letters`, where there is such a number, whether FEMNIST's letters are
    wanted too; the stand-in has digits only, and its test data are MNIST's own, up to `n.images` of them.
    """
    letters = vars(n).get("letters", False)
    try:
        train = cofed.datasets.femnist(writers=n.writers, digits_only=not letters)
        test = cofed.datasets.femnist(test=True, writers=train.names, digits_only=not letters)
        return train, test, f"FEMNIST, {'digits and letters' if letters else 'digits'} of {train.n_clients} writers"
    except (FileNotFoundError, ImportError):
        images = cofed.datasets.mnist()
    order = np.random.default_rng(seed).permutation(len(images.train_y))[: n.images]
    some = Images(images.train_X[order], images.train_y[order], images.test_X, images.test_y)
    train = cofed.datasets.mnist_by_writer(some, n.writers, seed=seed)
    held_out = images.test_X[: n.images].reshape(-1, 28 * 28), images.test_y[: n.images]
    test = Federation.from_arrays([held_out])
    words = f"a stand-in for FEMNIST: {n.images} images of MNIST dealt out to {n.writers} pseudo-writers by label"
    return train, test, f"{words}, seed {seed}"
