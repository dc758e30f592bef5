"""The baseline MIWAE: its density, and that it uses what is known of a row."""

import numpy as np
import pytest
import torch

from experiments.baselines import miwae


def test_the_density_is_that_of_students_t() -> None:
    values, freedom = torch.linspace(-4.0, 4.0, 9), torch.linspace(3.0, 9.0, 9)
    expected = torch.distributions.StudentT(freedom).log_prob(values)
    torch.testing.assert_close(miwae.student_log_density(values, freedom), expected)


def test_weights_have_the_posterior_in_them() -> None:
    """With a decoder that tells nothing, mean weights are the density of the seen cells."""
    models = miwae.Models(2, [0], "cpu")
    with torch.no_grad():
        models.decoder[-2].zero_()
        models.decoder[-1].zero_()
        # A posterior wider than the prior, so that weights have little variance.
        models.encoder[-2].zero_()
        models.encoder[-1].fill_(0.1)[..., miwae.LATENT :] = np.log(np.expm1(1.2))
    rows, seen = torch.tensor([[[0.5, -1.0]]]), torch.tensor([[[1.0, 0.0]]])
    weights, _ = models.log_weights(rows, seen, 20_000)
    scale = torch.tensor(np.log(2.0) + miwae.LEAST_SCALE)
    freedom = torch.tensor(np.log(2.0) + miwae.LEAST_FREEDOM)
    expected = torch.distributions.StudentT(freedom, 0.0, scale).log_prob(torch.tensor(0.5))
    found = weights.logsumexp(dim=1) - np.log(20_000)
    assert found.item() == pytest.approx(expected.item(), abs=0.03)


def test_missing_cells_follow_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(miwae, "EPOCHS", 60)
    random = np.random.default_rng(0)
    tables, missing = [], []
    for slope in (1.0, -1.0):
        cause = random.normal(size=(256, 1))
        tables.append(cause * [1.0, slope, 1.0] + 0.1 * random.normal(size=(256, 3)))
        missing.append(random.random((256, 3)) < 0.2)
    shown = [np.where(gone, np.nan, table) for table, gone in zip(tables, missing, strict=True)]
    filled = miwae.impute(shown, shown, [0, 1])
    for one, table, gone in zip(filled, tables, missing, strict=True):
        np.testing.assert_array_equal(one[~gone], table[~gone])
        assert np.square(one - table)[gone].mean() < 0.5 * np.square(table)[gone].mean()
