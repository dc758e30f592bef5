import pytest
from bigtable.tables_on_disk import model_of_mixed


@pytest.fixture(scope="session")
def model():
    """A linear model of the mixed table."""
    return model_of_mixed()
