"""Errors of imputers on tables with missing values."""
