"""Where EM starts."""

import pytest
import torch

from vfg.gaussian.em import initialisation
from vfg.gaussian.em.initialisation import leading_eigenvectors


@pytest.mark.parametrize("used", [1, 3])
def test_leading_eigenvectors_of_wide_matrices_are_those_of_all(monkeypatch, used):
    generator = torch.Generator().manual_seed(0)
    loadings = torch.randn(60, 3, generator=generator, dtype=torch.float64)
    scales = torch.tensor([5.0, 3.0, 2.0], dtype=torch.float64)
    covariance = (loadings * scales) @ (loadings * scales).mT + torch.eye(60, dtype=torch.float64)
    exact = leading_eigenvectors(covariance, used)
    monkeypatch.setattr(initialisation, "EXACT_COLUMNS", 10)
    found = leading_eigenvectors(covariance, used)
    torch.testing.assert_close(found[0], exact[0], rtol=1e-6, atol=0.0)
    cosines = (found[1] * exact[1]).sum(0).abs()
    torch.testing.assert_close(cosines, torch.ones_like(cosines), rtol=1e-6, atol=0.0)
    assert abs(found[2] - exact[2]) < 1e-6 * exact[2]
    torch.testing.assert_close(exact[0], torch.linalg.eigvalsh(covariance)[-used:])
