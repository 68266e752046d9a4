"""What commands show of an index or an evaluation: tables, curves, plots."""
