from types import SimpleNamespace

import pytest
from bigtable.tables_on_disk import model_of_mixed

from vfg.bigtable import text_files


@pytest.fixture(scope="session")
def model():
    """A linear model of the mixed table."""
    return model_of_mixed()


@pytest.fixture
def csv_work(monkeypatch):
    """How often CSV files are opened, and parsed to their end, from now on."""
    work = SimpleNamespace(opens=0, parses=0)
    open_bytes, reader = text_files.open_bytes, text_files._reader

    class CountingReader:
        def __init__(self, *arguments):
            self.inner = reader(*arguments)
            self.schema = self.inner.schema

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.inner.close()

        def __iter__(self):
            yield from self.inner
            work.parses += 1

    def counting_open(*arguments):
        work.opens += 1
        return open_bytes(*arguments)

    monkeypatch.setattr(text_files, "_reader", CountingReader)
    monkeypatch.setattr(text_files, "open_bytes", counting_open)
    return work
