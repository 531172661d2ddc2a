"""Where a ranking fails and why, from the data alone."""

from r2med.results.diagnosis.causes import CAUSES, Cause
from r2med.results.diagnosis.diagnose import diagnose, diagnose_ranking
from r2med.results.diagnosis.findings import (
    Diagnosis,
    PositiveFinding,
    QueryFinding,
    TaskDiagnosis,
)

__all__ = [
    "CAUSES",
    "Cause",
    "Diagnosis",
    "PositiveFinding",
    "QueryFinding",
    "TaskDiagnosis",
    "diagnose",
    "diagnose_ranking",
]
