"""Agreement of reviewers with each other and with judges, and the reviewers' attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from r2med.errors import MissingError
from r2med.judge.agreement import AgreementTable, Statistic, measure_agreement
from r2med.judge.calibration import Calibration, calibrate
from r2med.judge.review import AttentionCheck, ReviewQueue, ReviewStore, check_attention
from r2med.judge.store import JudgementSet
from r2med.tables import Tabular
from r2med.tasks.task import Task


@dataclass(frozen=True, eq=False)
class ReviewReport(Tabular):
    """Results of a review: agreement, attention, and judges against people."""

    task: str
    agreement: AgreementTable
    """Agreement of all reviewers and judges, in pairs."""
    alpha_of_reviewers: Statistic
    """Krippendorff's alpha of the reviewers alone; its value is None with one reviewer."""
    judges: tuple[Calibration, ...]
    """Calibration of each judge against the labels of people."""
    attention: tuple[AttentionCheck, ...]
    pairs: int
    disagreements: int
    """Pairs with different labels that are not settled."""
    settled: int
    open_pairs: int
    """Pairs without a final label, which the figures of judges leave out."""

    is_drawn = True

    def to_arrow(self) -> pa.Table:
        """One row per pair of raters."""
        return self.agreement.to_arrow()

    def to_json(self) -> dict[str, Any]:
        """All figures as JSON values."""
        return {
            "task": self.task,
            "pairs": self.pairs,
            "disagreements": self.disagreements,
            "settled": self.settled,
            "open_pairs": self.open_pairs,
            "agreement": self.agreement.to_json(),
            "alpha_of_reviewers": asdict(self.alpha_of_reviewers),
            "judges": [calibration.to_json() for calibration in self.judges],
            "attention": [asdict(check) for check in self.attention],
        }


def report_review(
    task: Task, queue: ReviewQueue, store: ReviewStore, sets: Sequence[JudgementSet]
) -> ReviewReport:
    """Compare all reviewers with each other and with each judge.

    Raises:
        MissingError: No pair is labelled.
    """
    labels = store.labels()
    if not labels:
        raise MissingError(
            f"no pair of {task.name} is labelled. Run: r2med review --task {task.name} "
            "--reviewer NAME"
        )
    reviewed = {pair for rated in labels.values() for pair in rated}
    raters = dict(labels)
    for judged in sets:
        grades = {pair: grade for pair, grade in judged.grades().items() if pair in reviewed}
        if grades and judged.rubric.scale == queue.rubric.scale:
            raters[f"judge {judged.name}"] = grades
    labels_of_people = store.final_labels(queue.rubric)
    decided = {pair: queue.rubric.is_relevant(label) for pair, label in labels_of_people.items()}
    relevance = {pair: relevant for pair, relevant in decided.items() if relevant is not None}
    return ReviewReport(
        task=task.name,
        agreement=measure_agreement(raters, queue.rubric.scale),
        alpha_of_reviewers=measure_agreement(labels, queue.rubric.scale).alpha,
        judges=tuple(
            calibrate(
                judged.name, judged.grades(), relevance, judged.rubric, task, reference="people"
            )
            for judged in sets
        ),
        attention=tuple(check_attention(queue, store)),
        pairs=len(reviewed),
        disagreements=len(store.disagreements()),
        settled=len(store.settled_decisions()),
        open_pairs=len(reviewed - labels_of_people.keys()),
    )
