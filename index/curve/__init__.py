"""Quality and time of the two stages against the number of candidates."""
