"""Reports of indexes, evaluations and plans: tables, JSON data, curves, plots."""
