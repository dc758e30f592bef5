"""The Fill page: tables that a model fills."""
