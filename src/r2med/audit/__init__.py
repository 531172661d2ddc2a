"""Train and evaluation data apart: fingerprints of texts, and what training must leave out."""
