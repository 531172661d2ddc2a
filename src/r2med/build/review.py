"""Labels of people for a sample of the candidates, and whether the people agree well enough.

The review works like `r2med review`, on the working task of the build. Labels that people settled
or agree on replace the grades of the judge when the benchmark is frozen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from r2med.build.folder import BuildFolder, BuildRecord
from r2med.build.judge import find_judgement_set
from r2med.build.working_task import hash_inputs, load_working_task
from r2med.errors import MissingError
from r2med.judge.agreement import measure_agreement
from r2med.judge.log import Warn
from r2med.judge.review import ReviewQueue, ReviewStore, build_queue
from r2med.judge.review_report import ReviewReport, report_review
from r2med.judge.store import Pair
from r2med.settings import setting, settings_identity
from r2med.tasks.task import Task


@dataclass(frozen=True)
class ReviewSettings:
    """The table `[review]` of build.toml; R2MED's authors do not publish their values."""

    size: int = setting(default=200, least=1)
    """Pairs in the queue of every reviewer."""
    reviewers: int = setting(default=2, least=1)
    """Number of people who must have labelled pairs."""
    least_agreement: float = setting(default=0.67, least=-1, most=1)
    """Krippendorff's alpha that must be reached."""


@dataclass(frozen=True)
class ReviewState:
    """Progress of the review and agreement of its reviewers, for the freeze and the card."""

    reviewers: int
    pairs: int
    """Number of pairs with a label."""
    shared_pairs: int
    """Number of pairs with labels of at least two people."""
    alpha: float | None
    least_agreement: float
    wanted_reviewers: int
    disagreements: int

    @property
    def is_reached(self) -> bool:
        """Whether enough people labelled pairs, and their alpha reaches `least_agreement`."""
        is_enough = self.reviewers >= self.wanted_reviewers
        if self.wanted_reviewers == 1:
            return is_enough
        return is_enough and self.alpha is not None and self.alpha >= self.least_agreement

    def __str__(self) -> str:
        if not self.reviewers:
            return "No person has reviewed the judgements."
        if self.alpha is None:
            return (
                f"{self.reviewers} reviewer(s) labelled {self.pairs} pairs; agreement is not "
                f"known, declared is an alpha of {self.least_agreement:.2f}."
            )
        verdict = "reaches" if self.is_reached else "does NOT reach"
        return (
            f"{self.reviewers} reviewers labelled {self.pairs} pairs ({self.shared_pairs} by two "
            f"or more): Krippendorff's alpha {self.alpha:.3f} {verdict} the declared "
            f"{self.least_agreement:.2f}."
        )


@dataclass(frozen=True)
class OpenReview:
    """A review that people can work on."""

    task: Task
    store: ReviewStore
    queue: ReviewQueue


def open_review(folder: BuildFolder, *, warn: Warn) -> OpenReview:
    """Open the review of a build; create its queue, or extend the stored queue.

    Raises:
        UsageError: The judge stage has not finished, or is out of date.
    """
    settings = folder.stage_settings("review", ReviewSettings)
    task, _ = load_working_task(folder)
    judgement_set = find_judgement_set(folder, task, warn)
    store = _open_store(folder, task, warn)
    queue = store.open(build_queue(task, [judgement_set], size=settings.size))
    return OpenReview(task, store, queue)


def report_build_review(folder: BuildFolder, *, warn: Warn) -> ReviewReport:
    """Return agreement of the reviewers with each other and with the judge.

    Raises:
        MissingError: No pair is labelled.
    """
    task, _ = load_working_task(folder)
    store = _open_store(folder, task, warn)
    if not store.exists or not store.labels():
        raise MissingError(
            f"no pair of {folder.path} is labelled. Run: r2med build review {folder.path} "
            "--reviewer NAME"
        )
    return report_review(task, store.queue(), store, [find_judgement_set(folder, task, warn)])


def record_review(folder: BuildFolder, *, warn: Warn) -> tuple[BuildRecord, ReviewState]:
    """Write the record of the review stage; return the record and the state of the review."""
    settings = folder.stage_settings("review", ReviewSettings)
    with folder.hold("review"):
        state, labels = read_review(folder, warn=warn)
        record = BuildRecord(
            stage="review",
            parameters=settings_identity(settings),
            inputs=hash_inputs(folder),
            counts_in={"queued pairs": settings.size},
            counts_out={"labelled pairs": len(labels)},
            figures=_figures(state),
        )
        folder.write_record(record)
    return record, state


def read_review(folder: BuildFolder, *, warn: Warn) -> tuple[ReviewState, dict[Pair, int]]:
    """Return the state of the review, and the label of every pair that people decided."""
    settings = folder.stage_settings("review", ReviewSettings)
    task, _ = load_working_task(folder)
    store = _open_store(folder, task, warn)
    labels: Mapping[str, Mapping[Pair, int]] = store.labels() if store.exists else {}
    counts: dict[Pair, int] = {}
    for rated in labels.values():
        for pair in rated:
            counts[pair] = counts.get(pair, 0) + 1
    alpha = None
    if len(labels) > 1:
        alpha = measure_agreement(labels, store.queue().rubric.scale).alpha.value
    state = ReviewState(
        reviewers=len(labels),
        pairs=len(counts),
        shared_pairs=sum(count > 1 for count in counts.values()),
        alpha=alpha,
        least_agreement=settings.least_agreement,
        wanted_reviewers=settings.reviewers,
        disagreements=len(store.disagreements()) if labels else 0,
    )
    return state, store.final_labels(store.queue().rubric) if labels else {}


def _open_store(folder: BuildFolder, task: Task, warn: Warn) -> ReviewStore:
    return ReviewStore(folder.results_path, task.name, task.suite, warn=warn)


def _figures(state: ReviewState) -> dict[str, Any]:
    return {**vars(state), "is_reached": state.is_reached}
