"""Fitted imputers that many tests ask, and none changes."""

import pytest
from imputation.mixed_tables import light, linear, mixed, numbers


@pytest.fixture(scope="session")
def straight():
    return linear().fit(numbers()[1])


@pytest.fixture(scope="session")
def curved():
    return light().fit(numbers()[1])


@pytest.fixture(scope="session")
def every_kind():
    return light().fit(mixed())


@pytest.fixture(params=["straight", "curved"])
def fitted(request):
    """A fitted imputer of numbers, linear or bent."""
    return request.getfixturevalue(request.param)
