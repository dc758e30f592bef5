"""Estimators in the manner of scikit-learn."""

from vfg.tabular.imputer import VFGImputer

__all__ = ["VFGImputer"]
