"""The examples in the docstrings of this room run as they are printed."""

import doctest
import importlib
import pkgutil

import pytest

import cofed.regularizers as R

MODULES = ["cofed.mirrors", *(f"cofed.regularizers.{module.name}" for module in pkgutil.iter_modules(R.__path__))]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_every_public_class_has_an_example():
    for name in set(R.__all__) - {"AbstractNorm", "AbstractRegularizer"}:
        assert ">>>" in (getattr(R, name).__doc__ or ""), name
