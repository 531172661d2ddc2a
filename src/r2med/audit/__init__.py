"""Train and evaluation data apart: what training must leave out."""
