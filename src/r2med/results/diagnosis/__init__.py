"""Where a ranking fails and why, from the data alone."""
