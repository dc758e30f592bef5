"""Estimators in the manner of scikit-learn."""

from vfg.imputation.imputer import VFGImputer

__all__ = ["VFGImputer"]
