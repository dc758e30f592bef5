"""Shared by all folders: specs as JSON, files, extras, small linear algebra, cached modules."""
