"""Plots for print and screen, drawn by altair (extra `plots`)."""
