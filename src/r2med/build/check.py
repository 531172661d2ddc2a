"""Check if a frozen benchmark can be trusted: one verdict per check, with threshold and advice.

The thresholds are our own choice. A failed check changes no file; its verdict says what to do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from r2med.audit.within import SelfAudit, audit_self
from r2med.build.answers import names_answer
from r2med.build.folder import BuildFolder, BuildRecord, hash_file
from r2med.build.judged_texts import AGAINST
from r2med.build.pool import Candidate, Find, load_pool
from r2med.build.probes import probe_task
from r2med.build.review import read_review
from r2med.build.searching import run_system
from r2med.errors import DataError, MissingError
from r2med.execution.resources import Resources
from r2med.judge.calibration import word_overlaps
from r2med.judge.effects import fill_holes, kendall_tau
from r2med.measure.scores import measure
from r2med.runs import Run
from r2med.settings import setting, settings_identity
from r2med.storage import write_file
from r2med.tables import Tabular, make_table, table_columns
from r2med.tasks.load import load_task
from r2med.tasks.task import Judgements, Queries, Task

METRIC, DEPTH = "ndcg@10", 10
_SAME_SOURCES = "Add distractor collections of the same type of source in [corpus]."
#: What to do where a probe finds the positives, in the order of the verdicts.
PROBE_ADVICE: Mapping[str, str] = {
    "length": f"Positives differ in length. {_SAME_SOURCES}",
    "typography": f"Positives come from sources with another typography. {_SAME_SOURCES}",
    "wording": f"Positives are worded differently. {_SAME_SOURCES}",
    "opening": f"Positives begin with the same words. {_SAME_SOURCES}",
    "person": "Age or occupation give positives away. Remove the documents that items come from.",
    "answers": "Positives name answers in another way than other passages. Add distractors about "
    "the same diseases, tests and drugs.",
    "style": f"Function words and punctuation give positives away. {_SAME_SOURCES}",
    "words": "Words give positives away without the query. Judge more candidates about the same "
    "subjects, or add distractors about them.",
    "owners": "Most positives serve one query, so other queries give them away. Add items about "
    "the same subjects.",
}


@dataclass(frozen=True)
class CheckSettings:
    """The table `[check]` of build.toml; the default thresholds are our own choice."""

    systems: tuple[str, ...] = ()
    """Systems to check with; by default those of the pool."""
    least_judged: float = setting(default=0.8, least=0, most=1)
    """Share of the first ten results that must be judged, for every system."""
    least_tau: float = setting(default=0.9, least=-1, most=1)
    """Smallest Kendall's tau between the orders of systems with and without the documents that only
    one system or view found.
    """
    most_rank_change: int = setting(default=1, least=0)
    """Largest change in a system's rank if the documents that only it found are left out."""
    most_hole_gap: float = setting(default=0.2, least=0, most=1)
    """Largest gap between the scores with all unjudged documents irrelevant and all relevant."""
    most_probe: float = setting(default=0.65, least=0.5, most=1)
    """Largest preference for positives that a rule may have without reading the query; the smallest
    allowed preference is 1 minus this.
    """
    most_probe_gain: float = setting(default=0.05, least=0, most=1)
    """Largest gain in BM25's nDCG@10 from correcting scores by other queries or by answers."""
    most_overlap: float = setting(default=0.8, least=0.5, most=1)
    """Largest share of (positive, negative) pairs in which the positive has more query words."""
    audit: bool = True
    """Whether all texts are compared with each other, which takes time on large corpora."""


@dataclass(frozen=True)
class CheckVerdict:
    """One figure of a check, its threshold, and advice for a figure that fails."""

    check: str
    subject: str
    """The system, view or probe; empty for the whole benchmark."""
    value: float | None
    threshold: str
    passed: bool | None
    """Whether the figure meets the threshold; None if it cannot be measured."""
    advice: str


@dataclass(frozen=True, eq=False)
class BenchmarkCheck(Tabular):
    """All verdicts on a frozen benchmark."""

    name: str
    queries: int
    verdicts: tuple[CheckVerdict, ...]

    is_drawn = True

    @property
    def failures(self) -> list[CheckVerdict]:
        """Verdicts that failed; checks that could not be measured are not included."""
        return [verdict for verdict in self.verdicts if verdict.passed is False]

    def to_arrow(self) -> pa.Table:
        """One row per verdict."""
        return make_table(table_columns(CheckVerdict), [asdict(v) for v in self.verdicts])

    def to_json(self) -> dict[str, Any]:
        """All verdicts as JSON values."""
        return {
            "name": self.name,
            "queries": self.queries,
            "failures": len(self.failures),
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
        }


def check_build(folder: BuildFolder, resources: Resources) -> BenchmarkCheck:
    """Check the frozen benchmark of a folder, and write check.json.

    Raises:
        MissingError: The benchmark is not frozen.
        DataError: A frozen file differs from the manifest.
    """
    settings = folder.stage_settings("check", CheckSettings)
    with folder.hold("check"):
        manifest = check_manifest(folder)
        task = load_frozen(folder, list(manifest["tasks"]))
        pool = load_pool(folder)
        pool_record = folder.record("pool")
        systems = settings.systems or (pool_record.models if pool_record else ("bm25",))
        runs = {system: run_system(system, task, resources) for system in systems}
        audit = audit_self([task], progress=resources.progress) if settings.audit else None
        verdicts = (
            *_check_judged(runs, task, settings),
            *_check_holes(runs, task, settings),
            *_check_left_out(runs, task, pool, settings),
            *_check_overlap(task, settings),
            *_check_probes(task, settings, resources),
            *_check_answers(task),
            *(_check_audit(audit) if audit else ()),
            _check_review(folder, resources),
        )
        outcome = BenchmarkCheck(folder.benchmark.name, len(task.queries), verdicts)
        write_file(folder.check_path, json.dumps(outcome.to_json(), indent=1) + "\n")
        folder.write_record(
            BuildRecord(
                stage="check",
                parameters=settings_identity(settings),
                models=tuple(systems),
                inputs={"frozen/manifest.json": hash_file(folder.frozen_folder / "manifest.json")},
                counts_in={"checks": len(verdicts)},
                counts_out={"failed": len(outcome.failures)},
            )
        )
    return outcome


def check_manifest(folder: BuildFolder) -> dict[str, Any]:
    """Return the manifest after comparing every frozen file with it.

    Raises:
        MissingError: The benchmark is not frozen.
        DataError: A file is missing or differs.
    """
    path = folder.frozen_folder / "manifest.json"
    if not path.is_file():
        raise MissingError(f"{path} does not exist. Run: r2med build freeze {folder.path}")
    manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for name, expected in manifest["files"].items():
        file = folder.frozen_folder / name
        if not file.is_file() or hash_file(file) != expected:
            problem = "differs from the manifest" if file.is_file() else "is missing"
            raise DataError(f"{file} {problem}. Freeze again: r2med build freeze {folder.path}")
    return manifest


def load_frozen(folder: BuildFolder, names: Sequence[str]) -> Task:
    """Return the frozen benchmark as one task, with its splits joined."""
    tasks = [load_task(folder.frozen_folder / name, name=name) for name in names]
    if len(tasks) == 1:
        return tasks[0]
    columns = [vars(task.queries) for task in tasks]
    queries = Queries(**{k: pa.concat_arrays([c[k] for c in columns]) for k in columns[0]})
    judgements = Judgements(
        pa.concat_arrays([task.judgements.query_ids for task in tasks]),
        pa.concat_arrays([task.judgements.document_ids for task in tasks]),
        np.concatenate([task.judgements.scores for task in tasks]),
    )
    name = folder.benchmark.name
    return replace(tasks[0], name=name, queries=queries, judgements=judgements)


def leave_out(
    judgements: Judgements, pool: Sequence[Candidate], is_left_out: Callable[[Find], bool]
) -> Judgements:
    """Return the judgements without candidates that only left-out finds brought into the pool."""
    only = {
        (candidate.query_id, candidate.document_id)
        for candidate in pool
        if all(is_left_out(find) for find in candidate.found_by)
    }
    pairs = zip(judgements.query_ids.to_pylist(), judgements.document_ids.to_pylist(), strict=True)
    return judgements.filter(pa.array([pair not in only for pair in pairs], pa.bool_()))


def _mean_score(run: Run, judgements: Judgements, metric: str, queries: pa.Array) -> float:
    scores = measure(run, judgements, [metric], ties="list").at(queries)
    return float(scores[metric].mean())


def _check_judged(
    runs: Mapping[str, Run], task: Task, settings: CheckSettings
) -> Iterator[CheckVerdict]:
    queries = task.judgements.query_ids.unique()
    for system, run in runs.items():
        share = _mean_score(run, task.judgements, f"judged@{DEPTH}", queries)
        yield CheckVerdict(
            f"judged@{DEPTH}",
            system,
            share,
            f"at least {settings.least_judged:g}",
            share >= settings.least_judged,
            "Raise [pool] depth to at least 10, add this system to the pool, or let the judge "
            "decide more of the undecided pairs.",
        )


def _check_holes(
    runs: Mapping[str, Run], task: Task, settings: CheckSettings
) -> Iterator[CheckVerdict]:
    queries = task.judgements.query_ids.unique()
    for system, run in runs.items():
        low, high = (
            _mean_score(run, fill_holes(run, task, DEPTH, score), METRIC, queries)
            for score in (0, 1)
        )
        gap = abs(high - low)
        yield CheckVerdict(
            f"{METRIC} bounds",
            system,
            gap,
            f"at most {settings.most_hole_gap:g}",
            gap <= settings.most_hole_gap,
            f"The score lies between {low:.3f} and {high:.3f}, depending on unjudged documents. "
            "Judge deeper.",
        )


def _check_left_out(
    runs: Mapping[str, Run], task: Task, pool: Sequence[Candidate], settings: CheckSettings
) -> Iterator[CheckVerdict]:
    """Yield how the order of systems changes without the finds of each system and each view."""
    systems = dict.fromkeys(find.system for candidate in pool for find in candidate.found_by)
    views = dict.fromkeys(find.view for candidate in pool for find in candidate.found_by)
    for system in systems:
        reduced = leave_out(task.judgements, pool, lambda find, s=system: find.system == s)  # type: ignore[misc]
        yield from _compare_orders("system", system, runs, task, reduced, settings)
    for view in views:
        reduced = leave_out(task.judgements, pool, lambda find, v=view: find.view == v)  # type: ignore[misc]
        yield from _compare_orders("view", view, runs, task, reduced, settings)


def _compare_orders(
    group: str,
    name: str,
    runs: Mapping[str, Run],
    task: Task,
    reduced: Judgements,
    settings: CheckSettings,
) -> Iterator[CheckVerdict]:
    positive = reduced.query_ids.filter(pa.array(reduced.scores > 0))
    queries = positive.unique()
    check = f"leave out {group}"
    if not len(queries) or len(runs) < 2:
        yield CheckVerdict(
            f"{check}: tau", name, None, f"at least {settings.least_tau:g}", None,
            "Nothing remains to compare; check with at least two systems.",
        )  # fmt: skip
        return
    before = np.array([_mean_score(run, task.judgements, METRIC, queries) for run in runs.values()])
    after = np.array([_mean_score(run, reduced, METRIC, queries) for run in runs.values()])
    tau = kendall_tau(before, after)
    yield CheckVerdict(
        f"{check}: tau",
        name,
        tau,
        f"at least {settings.least_tau:g}",
        None if tau is None else tau >= settings.least_tau,
        f"The order of systems depends on what {name} alone found. Pool more systems and deeper.",
    )
    if name in runs:
        index = list(runs).index(name)
        change = abs(_rank(before, index) - _rank(after, index))
        yield CheckVerdict(
            f"{check}: rank",
            name,
            float(change),
            f"at most {settings.most_rank_change}",
            change <= settings.most_rank_change,
            f"A system like {name} that was not pooled would be ranked unfairly. Pool more "
            "systems of different families.",
        )


def _rank(scores: np.ndarray[Any, Any], index: int) -> int:
    return int((scores > scores[index]).sum()) + 1


def _check_overlap(task: Task, settings: CheckSettings) -> Iterator[CheckVerdict]:
    judged = task.judgements.by_query()
    pairs: dict[tuple[str, str], object] = {
        (query_id, document_id): None
        for query_id, scores in judged.items()
        for document_id in scores
    }
    overlaps = word_overlaps(task, pairs)
    wins = total = 0.0
    for query_id, scores in judged.items():
        positives = [overlaps[query_id, d] for d, score in scores.items() if score > 0]
        negatives = [overlaps[query_id, d] for d, score in scores.items() if score <= 0]
        difference = np.subtract.outer(np.array(positives), np.array(negatives))
        wins += float((difference > 0).sum() + 0.5 * (difference == 0).sum())
        total += difference.size
    share = wins / total if total else None
    yield CheckVerdict(
        "lexical overlap",
        "",
        share,
        f"at most {settings.most_overlap:g}",
        None if share is None else share <= settings.most_overlap,
        "Words of the query give the positives away. Lower [freeze] drop_if_lexical_ndcg, or "
        "rewrite queries further from their source.",
    )


def _check_probes(
    task: Task, settings: CheckSettings, resources: Resources
) -> Iterator[CheckVerdict]:
    """Yield verdicts on rules that do not read the query; such rules must not find the positives.

    Each probe is judged by its rule that is farthest from chance.
    """
    table = probe_task(task, resources=resources)
    limits = f"{1 - settings.most_probe:.2f} to {settings.most_probe:.2f}"
    for probe, advice in PROBE_ADVICE.items():
        for against in AGAINST:
            figure = table.farthest(probe, against)
            if figure is not None:
                is_exceeded = figure.exceeds(settings.most_probe, settings.most_probe_gain)
                yield CheckVerdict(
                    f"{probe} probe",
                    f"{figure.feature}, {against}",
                    figure.value,
                    limits,
                    not is_exceeded or figure.is_chance,
                    advice,
                )
    for figure in table.figures:
        if figure.unit == "gain":
            yield CheckVerdict(
                "gain of BM25",
                figure.feature,
                figure.value,
                f"at most {settings.most_probe_gain:g}",
                not figure.exceeds(settings.most_probe, settings.most_probe_gain),
                PROBE_ADVICE[figure.probe],
            )


def _check_answers(task: Task) -> Iterator[CheckVerdict]:
    revealing_ids = [
        query_id
        for (query_id, text), answer in zip(
            task.queries.items(), task.queries.answers.to_pylist(), strict=True
        )
        if answer and names_answer(text, answer)
    ]
    yield CheckVerdict(
        "answers in queries",
        "",
        float(len(revealing_ids)),
        "0",
        not revealing_ids,
        f"Rewrite or delete these items in items.jsonl: {', '.join(revealing_ids[:5])}.",
    )


def _check_audit(audit: SelfAudit) -> Iterator[CheckVerdict]:
    groups = {
        "repeated queries": [
            r for r in audit.repeats if r.issue == "repeated" and r.role == "query"
        ],
        "repeated passages": [
            r for r in audit.repeats if r.issue == "repeated" and r.role != "query"
        ],
        "positives repeated": [r for r in audit.repeats if r.issue == "label noise"],
    }
    advice = {
        "repeated queries": "Delete one of each pair in items.jsonl",
        "repeated passages": "Lower [corpus] near_duplicates, or delete one of each pair",
        "positives repeated": "Lower [corpus] near_duplicates, or delete one of each pair",
    }
    for check, repeats in groups.items():
        examples = ", ".join(f"{repeat.id} and {repeat.other_id}" for repeat in repeats[:3])
        yield CheckVerdict(
            check, "", float(len(repeats)), "0", not repeats, f"{advice[check]}: {examples}."
        )


def _check_review(folder: BuildFolder, resources: Resources) -> CheckVerdict:
    state, _ = read_review(folder, warn=resources.warn)
    return CheckVerdict(
        "agreement of reviewers",
        "",
        state.alpha,
        f"alpha at least {state.least_agreement:g}",
        state.is_reached,
        f"{state} Run: r2med build review FOLDER --reviewer NAME",
    )
