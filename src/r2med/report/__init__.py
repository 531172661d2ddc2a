"""Showing results: tables for terminals, pages and plots."""
