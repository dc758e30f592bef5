"""The page docs/results.md, written from the files under docs/results."""
