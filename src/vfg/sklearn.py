"""Estimators that follow the conventions of scikit-learn."""

from vfg.imputation.imputer import VFGImputer

__all__ = ["VFGImputer"]
