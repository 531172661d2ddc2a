"""Talking to models over HTTP: which ones there are, what they cost, and what they said before."""
