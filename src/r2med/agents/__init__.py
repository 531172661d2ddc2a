"""Agents as systems: what they searched, read and answered, from any source, and its scores."""
