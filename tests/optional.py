"""Packages that a machine may lack: the tests that use one are skipped there, and no others."""

import pytest


class Package:
    """A package that is imported when it is first used; a test that uses it is skipped without it.

    Lists of parameters are made while tests are collected, where a use would skip the whole module:
    write `lambda: polars.DataFrame(...)` there and call it in the test.
    """

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        if attribute.startswith("__"):  # what collectors of tests ask of every object
            raise AttributeError(attribute)
        return getattr(pytest.importorskip(self._name), attribute)


polars = Package("polars")
