"""Trials: kills, flipped bits and odd inputs, at counts that `--trials N` multiplies."""
