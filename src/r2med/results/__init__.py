"""Stored results of systems on tasks, and everything that reads them."""
