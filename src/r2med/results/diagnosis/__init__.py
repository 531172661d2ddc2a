"""Where a ranking fails and why, from the data alone."""

from r2med.results.diagnosis.causes import CAUSES
from r2med.results.diagnosis.diagnose import diagnose, diagnose_ranking
from r2med.results.diagnosis.findings import Diagnosis, TaskDiagnosis

__all__ = ["CAUSES", "Diagnosis", "TaskDiagnosis", "diagnose", "diagnose_ranking"]
