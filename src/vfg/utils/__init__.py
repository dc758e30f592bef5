"""Shared by all rooms: specs as JSON, files, extras, small linear algebra, cached modules."""
