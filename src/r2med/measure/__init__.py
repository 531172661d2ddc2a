"""Measure runs: metrics as trec_eval computes them, their intervals, and significance tests."""

from r2med.measure.metrics import HEADLINE, Metric, parse_metric
from r2med.measure.scores import Scores, measure

__all__ = ["HEADLINE", "Metric", "Scores", "measure", "parse_metric"]
