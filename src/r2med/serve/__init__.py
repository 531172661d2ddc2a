"""Servers on this machine: what all of them share, and the search server for agents."""
