"""Grade every candidate of the pool with the judges and rubrics of `r2med judge`.

Candidates with a grade between relevant and not relevant are undecided: they are published, but are
neither positives nor negatives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from r2med.build.folder import BuildFolder, BuildRecord, hash_file, read_rows, write_rows
from r2med.build.items import RULES
from r2med.build.pool import Candidate, load_pool
from r2med.build.prompting import find_model
from r2med.build.working_task import check_current, hash_inputs, load_working_task
from r2med.errors import DataError
from r2med.execution.resources import Resources
from r2med.judge.families import families_of
from r2med.judge.judging import Judged, judge_pool, open_set
from r2med.judge.panel import Panel, open_panel
from r2med.judge.pool import Pool, texts_of
from r2med.judge.rubric import find_rubric
from r2med.judge.store import JudgementSet, Pair, texts_hash
from r2med.remote.budget import RequestEstimate
from r2med.settings import setting, settings_identity
from r2med.systems.registry import parts_of
from r2med.tasks.task import Task

_MODEL_FIELDS = ("checkpoint", "query_checkpoint", "document_checkpoint", "base", "model")


@dataclass(frozen=True)
class JudgeSettings:
    """The table `[judge]` of build.toml."""

    judges: tuple[str, ...] = ()
    """Language models that grade; several models vote."""
    rubric: str = "reasoning"
    """A rubric of the package, or a TOML file."""
    samples: int = setting(default=1, least=1)
    combine: Literal["majority", "mean"] = "majority"


@dataclass(frozen=True)
class JudgedCandidate:
    """A candidate with its grade."""

    query_id: str
    document_id: str
    grade: int
    scores: dict[str, float]
    relevant: bool | None
    """None if the grade is undecided."""
    rationale: str


@dataclass(frozen=True)
class JudgeOutcome:
    """The judgements of the stage, and its record."""

    judged: Judged
    record: BuildRecord


@dataclass(frozen=True)
class PreparedJudging:
    """The working task, its pool, and the panel of judges; nothing has been asked yet."""

    task: Task
    pool: Pool
    panel: Panel
    settings: JudgeSettings

    def estimate(self) -> list[tuple[str, RequestEstimate]]:
        """Return the expected calls, tokens and cost of judging, by judge model."""
        from r2med.judge.judging import items_of

        return self.panel.estimate(items_of(self.task, self.pool.ask))


def prepare_judging(
    folder: BuildFolder, resources: Resources, overrides: dict[str, object] | None = None
) -> PreparedJudging:
    """Load the pool and open the judges; nothing is asked yet.

    Raises:
        UsageError: No judge is named, or the pool is out of date.
    """
    settings = folder.stage_settings("judge", JudgeSettings, overrides)
    check_current(folder, "pool")
    task, _ = load_working_task(folder)
    is_file = settings.rubric.endswith(".toml") or "/" in settings.rubric
    rubric = find_rubric(str(folder.resolve(settings.rubric)) if is_file else settings.rubric)
    panel = open_panel(
        settings.judges,
        rubric,
        resources.remote,
        samples=settings.samples,
        combine=settings.combine,
    )
    _warn_of_families(panel, folder, resources)
    return PreparedJudging(task, _to_pool(task, load_pool(folder)), panel, settings)


def judge_candidates(
    folder: BuildFolder, prepared: PreparedJudging, resources: Resources, *, force: bool = False
) -> JudgeOutcome:
    """Judge the candidates without a judgement, and write judged.jsonl.

    Judgements are stored as they arrive, so an interrupted command continues where it stopped.

    Args:
        folder: The benchmark's folder.
        prepared: The pool and the judges.
        resources: Callbacks for warnings and progress.
        force: Overwrite a judged.jsonl that was edited.

    Raises:
        UsageError: judged.jsonl was edited.
        DataError: More than 5 % of the answers cannot be read; judgements so far are kept.
    """
    with folder.hold("judge"):
        folder.check_unedited("judge", force=force)
        task, panel = prepared.task, prepared.panel
        name = f"{panel.rubric.name}-{texts_hash(task)[:8]}-{_panel_key(panel)}"
        depth = max(len(prepared.pool.ask), 1)
        judgement_set = open_set(
            task, panel, folder.results_path, name=name, depth=depth, warn=resources.warn
        )
        outcome = judge_pool(task, prepared.pool, (), panel, judgement_set, show=resources.progress)
        judgement_set.close()
        candidates = list(_judged_candidates(prepared.pool, judgement_set))
        if not candidates:
            raise DataError(f"{folder.path}: no candidate has a grade; see the judge's answers.")
        write_rows(folder.judged_path, (asdict(candidate) for candidate in candidates))
        unreadable = len(prepared.pool.systems) - len(candidates)
        called = Counter(candidate.relevant for candidate in candidates)
        record = BuildRecord(
            stage="judge",
            parameters={**settings_identity(prepared.settings), "set": judgement_set.name},
            models=tuple(chat.llm.name for chat in panel.judges),
            prompts={panel.rubric.name: panel.rubric.hash},
            inputs={**hash_inputs(folder), folder.pool_path.name: hash_file(folder.pool_path)},
            counts_in={"candidates": len(prepared.pool.systems)},
            counts_out={
                "positives": called[True],
                "negatives": called[False],
                "undecided": called[None],
            },
            drops={"unreadable answer": unreadable} if unreadable else {},
            outputs={folder.judged_path.name: hash_file(folder.judged_path)},
            figures={
                "grades": dict(sorted(Counter(str(c.grade) for c in candidates).items())),
                "relevant_from": panel.rubric.relevant_from,
                "irrelevant_to": panel.rubric.irrelevant_to,
            },
        )
        folder.write_record(record)
    return JudgeOutcome(outcome, record)


def load_judged(folder: BuildFolder) -> list[JudgedCandidate]:
    """Return the candidates of judged.jsonl, as written or as people edited them.

    Raises:
        DataError: A row lacks a field, has an unexpected value or repeats a pair; the message names
            the line.
    """
    path = folder.need(folder.judged_path, "judge")
    candidates: dict[Pair, JudgedCandidate] = {}
    for line, row in read_rows(path):
        try:
            candidate = JudgedCandidate(**row)
        except TypeError as problem:
            raise DataError(f"{path}, line {line}: not a judged candidate ({problem}).") from None
        if candidate.relevant is not None and not isinstance(candidate.relevant, bool):
            raise DataError(
                f"{path}, line {line}: 'relevant' is {row['relevant']!r}, expected true, false or "
                "null (undecided)."
            )
        pair = (candidate.query_id, candidate.document_id)
        if pair in candidates:
            raise DataError(f"{path}, line {line}: the pair {pair} is in an earlier line.")
        candidates[pair] = candidate
    return list(candidates.values())


def find_judgement_set(folder: BuildFolder, task: Task, resources_warn: Any) -> JudgementSet:
    """Return the judgement set that the judge stage wrote."""
    from r2med.judge.store import JudgementStore

    check_current(folder, "judge")
    record = folder.record("judge")
    assert record is not None
    store = JudgementStore(folder.results_path, warn=resources_warn)
    return store.find(str(record.parameters["set"]), task)


def _to_pool(task: Task, candidates: Sequence[Candidate]) -> Pool:
    """Return the candidates as a judging pool, which asks once about equal texts for a query."""
    texts = texts_of(task, {candidate.document_id for candidate in candidates})
    first: dict[tuple[str, str], Pair] = {}
    ask: list[Pair] = []
    copies: dict[Pair, Pair] = {}
    systems: dict[Pair, tuple[str, ...]] = {}
    for candidate in candidates:
        if candidate.document_id not in texts:
            raise DataError(
                f"the pool names the passage {candidate.document_id!r}, which the corpus does not "
                "have. Run: r2med build pool"
            )
        pair = (candidate.query_id, candidate.document_id)
        finders = (f"{find.system} ({find.view})" for find in candidate.found_by)
        systems[pair] = tuple(dict.fromkeys(finders))
        original = first.setdefault((candidate.query_id, texts[candidate.document_id]), pair)
        if original == pair:
            ask.append(pair)
        else:
            copies[pair] = original
    return Pool(tuple(ask), copies, {}, systems, judged=0)


def _judged_candidates(pool: Pool, judgement_set: JudgementSet) -> list[JudgedCandidate]:
    stored, rubric = judgement_set.judgements(), judgement_set.rubric
    rows = []
    for pair in pool.systems:
        judgement = stored.get(pair)
        if judgement is not None and judgement.grade is not None:
            rows.append(
                JudgedCandidate(
                    query_id=pair[0],
                    document_id=pair[1],
                    grade=judgement.grade,
                    scores=dict(judgement.scores),
                    relevant=rubric.is_relevant(judgement.grade),
                    rationale=judgement.rationale,
                )
            )
    return rows


def _panel_key(panel: Panel) -> str:
    import hashlib
    import json

    identity = [list(panel.identities), panel.samples, panel.combine, panel.rubric.hash]
    text = json.dumps(identity, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _warn_of_families(panel: Panel, folder: BuildFolder, resources: Resources) -> None:
    """Warn if a judge is of the same model family as a pooled system or the writer of the items."""
    judging = families_of(name for chat in panel.judges for name in (chat.llm.name, chat.llm.model))
    pool, items = folder.record("pool"), folder.record("items")
    for system in pool.models if pool else ():
        shared = judging & families_of(_model_names(system))
        if shared:
            resources.warn(
                f"{system} and the judge are of one model family ({', '.join(sorted(shared))}): "
                "judges favour systems of the same family. Use a judge of another family as well."
            )
    writer = str(items.parameters["model"]) if items else RULES
    if writer != RULES and judging & families_of([writer, find_model(writer)]):
        resources.warn(
            f"{writer} wrote the queries and the judge is of the same model family; the "
            "reasoning it wrote may please it. Use a judge of another family as well."
        )


def _model_names(system: str) -> set[str]:
    names: set[str] = set()
    for unit, entry in parts_of(system):
        names.add(str(unit))
        if entry is not None:
            names |= {str(entry.fields.get(field, "")) for field in _MODEL_FIELDS}
    return names - {""}
