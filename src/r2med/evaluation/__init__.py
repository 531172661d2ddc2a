"""Evaluate systems on tasks: run and measure them, estimate, explain and reproduce results."""
