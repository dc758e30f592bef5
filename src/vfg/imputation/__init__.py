"""The ensemble that fills tables: parts, stacking, calibration, `TableModel` and `VFGImputer`."""
