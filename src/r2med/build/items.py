"""The first stage: questions from files become queries with a hidden answer and a reasoning path.

Steps in order, each of which may drop items: read, fold duplicates, classify, rewrite, refuse
queries that name their answer, write reasoning, drop what small models answer closed-book.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from r2med.audit.matching import words as split_words
from r2med.build.answers import names_answer
from r2med.build.folder import BuildFolder, BuildRecord, hash_file, read_rows, write_rows
from r2med.build.prompting import Question, ask_all, load_question, open_chat
from r2med.build.sources import InvalidRow, SourceItem, item_sources, read_items
from r2med.errors import DataError, UsageError, plural
from r2med.execution.resources import Resources
from r2med.settings import read_packaged_toml, setting, settings_identity

QueryType = Literal["diagnosis", "test", "treatment", "mechanism", "other"]
TYPES: tuple[QueryType, ...] = get_args(QueryType)
RULES = "rules"
#: Unusable rows that are named one by one.
_MOST_WARNINGS = 10
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*\s*$")
_OPTION_PHRASES = (
    (re.compile(r"\b(?:which|what) of the following\b", re.IGNORECASE), "which"),
    (re.compile(r"\bof the following,?\s*", re.IGNORECASE), ""),
)


@dataclass(frozen=True)
class ItemSettings:
    """The table `[items]` of build.toml."""

    model: str = RULES
    """Language model that classifies, rewrites and explains; `rules` uses no model."""
    types: tuple[str, ...] = ("diagnosis", "test", "treatment", "mechanism")
    """Types of questions that are kept."""
    reasoning: Literal["source", "model", "none"] = "model"
    """`source`: only reasoning paths of the source; `model`: missing paths are written by the
    model; `none`: no reasoning paths.
    """
    solvers: tuple[str, ...] = ()
    """Small models that try to answer closed-book; without any, no item is dropped as too easy."""
    solver_samples: int = setting(default=1, least=1)
    """Closed-book answers per solver and item (n is this times the number of solvers)."""
    drop_if_correct: int = setting(default=1, least=1)
    """Items with at least this many correct answers are dropped (k of n)."""
    matcher: str = "words"
    """How closed-book answers are compared: `words`, or a language model."""
    most_unreadable: float = setting(default=0.2, least=0, most=1)
    """Largest allowed share of unreadable answers per prompt."""


@dataclass(frozen=True)
class BuildItem:
    """An item that becomes a query; people may edit its row in items.jsonl."""

    id: str
    query: str
    answer: str
    reasoning: str
    reasoning_by: str
    """Origin of the reasoning: `source`, `model NAME`, or empty without reasoning."""
    type: str
    question: str
    source: str
    line: int
    licence: str
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class DroppedItem:
    """An item that was left out, and why."""

    id: str
    source: str
    line: int
    reason: str
    detail: str = ""


@dataclass(frozen=True)
class ItemsOutcome:
    """The items that the stage wrote and those that it dropped."""

    items: tuple[BuildItem, ...]
    dropped: tuple[DroppedItem, ...]
    record: BuildRecord


class _Filter:
    """The items that remain after the steps so far, and the items that were dropped."""

    def __init__(self, items: Iterable[BuildItem]) -> None:
        self.items = list(items)
        self.dropped: list[DroppedItem] = []

    def drop(self, reasons: Mapping[str, tuple[str, str]]) -> None:
        """Drop the items whose ids are in `reasons`, which gives the reason and a detail."""
        for item in self.items:
            if item.id in reasons:
                reason, detail = reasons[item.id]
                self.dropped.append(DroppedItem(item.id, item.source, item.line, reason, detail))
        self.items = [item for item in self.items if item.id not in reasons]


def build_items(
    folder: BuildFolder, resources: Resources, *, strict: bool = False, force: bool = False
) -> ItemsOutcome:
    """Read, classify, rewrite and filter the items of a benchmark, and write items.jsonl.

    Args:
        folder: The benchmark's folder.
        resources: Language models, their budget, and callbacks.
        strict: Treat rows without a question or an answer as errors.
        force: Overwrite an items.jsonl that was edited.

    Raises:
        DataError: A file cannot be read, too many answers are unreadable, or no item is left.
        UsageError: The settings contradict each other, or items.jsonl was edited.
    """
    settings = folder.stage_settings("items", ItemSettings)
    _check_settings(settings)
    with folder.hold("items"):
        folder.check_unedited("items", force=force)
        sources = item_sources(folder)
        rows = [row for source in sources for row in read_items(source)]
        invalid = [row for row in rows if isinstance(row, InvalidRow)]
        if invalid and strict:
            listed = "\n".join(str(row) for row in invalid[:_MOST_WARNINGS])
            raise DataError(f"{plural(len(invalid), 'row')} cannot be used:\n{listed}")
        for row in invalid[:_MOST_WARNINGS]:
            resources.warn(f"{row} It is left out.")
        if len(invalid) > _MOST_WARNINGS:
            resources.warn(
                f"{plural(len(invalid) - _MOST_WARNINGS, 'more row')} cannot be used and are left "
                f"out; all are in {folder.dropped_items_path.name}."
            )
        read = [row for row in rows if isinstance(row, SourceItem)]
        funnel = _Filter(_to_item(item) for item in _check_ids(read))
        funnel.dropped += [
            DroppedItem("", r.source, r.line, "unusable row", r.problem) for r in invalid
        ]
        prompts = _transform(funnel, settings, folder, resources)
        if not funnel.items:
            counted = Counter(item.reason for item in funnel.dropped)
            reasons = ", ".join(f"{count} {reason}" for reason, count in counted.most_common())
            raise DataError(
                f"no item is left of {len(rows):,} ({reasons or 'the files are empty'})."
            )
        write_rows(folder.items_path, (asdict(item) for item in funnel.items))
        write_rows(folder.dropped_items_path, (asdict(item) for item in funnel.dropped))
        record = BuildRecord(
            stage="items",
            parameters=settings_identity(settings),
            models=_models(settings),
            prompts=prompts,
            inputs={source.name: hash_file(source.path) for source in sources},
            counts_in={"items": len(rows)},
            counts_out={"items": len(funnel.items)},
            drops=dict(Counter(item.reason for item in funnel.dropped)),
            outputs={folder.items_path.name: hash_file(folder.items_path)},
            figures={
                "types": dict(sorted(Counter(item.type for item in funnel.items).items())),
                "reasoning_by": dict(sorted(Counter(i.reasoning_by for i in funnel.items).items())),
                "licences": dict(sorted(Counter(item.licence for item in funnel.items).items())),
            },
        )
        folder.write_record(record)
    return ItemsOutcome(tuple(funnel.items), tuple(funnel.dropped), record)


def load_items(folder: BuildFolder) -> list[BuildItem]:
    """Return the items of items.jsonl, as written or as people edited them.

    Raises:
        MissingError: The stage has not run.
        DataError: A row lacks a field or repeats an id; the message names the line.
    """
    path = folder.need(folder.items_path, "items")
    items: dict[str, BuildItem] = {}
    for line, row in read_rows(path):
        for name in ("id", "query", "answer"):
            if not isinstance(row.get(name), str) or not row[name].strip():
                raise DataError(
                    f"{path}, line {line}: {name!r} is missing or empty, expected a text."
                )
        if row["id"] in items:
            raise DataError(f"{path}, line {line}: the id {row['id']!r} is in an earlier line.")
        items[row["id"]] = BuildItem(
            id=row["id"],
            query=row["query"],
            answer=row["answer"],
            reasoning=str(row.get("reasoning") or ""),
            reasoning_by=str(row.get("reasoning_by") or ""),
            type=str(row.get("type") or "other"),
            question=str(row.get("question") or row["query"]),
            source=str(row.get("source") or ""),
            line=int(row.get("line") or line),
            licence=str(row.get("licence") or "not stated"),
            references=tuple(map(str, row.get("references") or ())),
        )
    if not items:
        raise DataError(f"{path} has no items. Run: r2med build items {folder.path}")
    return list(items.values())


def _transform(
    funnel: _Filter, settings: ItemSettings, folder: BuildFolder, resources: Resources
) -> dict[str, str]:
    """Apply all steps to the items, and return the hashes of the prompts that were used."""
    steps = _ModelSteps(settings, folder, resources)
    _fold_duplicates(funnel)
    if settings.model == RULES:
        _classify_by_rules(funnel)
    else:
        steps.classify(funnel)
    unwanted = [item for item in funnel.items if item.type not in settings.types]
    funnel.drop({i.id: (f"asks for another type ({i.type})", "") for i in unwanted})
    if settings.model == RULES:
        funnel.items = [replace(i, query=remove_option_phrases(i.question)) for i in funnel.items]
    else:
        steps.rewrite(funnel)
    revealing = [item for item in funnel.items if names_answer(item.query, item.answer)]
    funnel.drop({item.id: ("query names its answer", item.answer) for item in revealing})
    if settings.solvers:
        steps.solve(funnel)
    if settings.reasoning == "none":
        funnel.items = [replace(item, reasoning="", reasoning_by="") for item in funnel.items]
    elif settings.reasoning == "model" and settings.model != RULES:
        steps.explain(funnel)
    return steps.prompts


class _ModelSteps:
    """The steps that ask language models."""

    def __init__(self, settings: ItemSettings, folder: BuildFolder, resources: Resources) -> None:
        self._settings = settings
        self._folder = folder
        self._resources = resources
        self.prompts: dict[str, str] = {}

    def classify(self, funnel: _Filter) -> None:
        """Set the type of every item, and drop items that cannot become a retrieval question."""
        texts = [{"question": i.question, "answer": i.answer} for i in funnel.items]
        reasons: dict[str, tuple[str, str]] = {}
        typed = []
        values = self._ask("classify", _read_class, texts)
        for item, value in zip(funnel.items, values, strict=True):
            if value is None:
                reasons[item.id] = ("classification unreadable", "")
            elif not value[1]:
                reasons[item.id] = ("cannot become a retrieval question", value[2])
            typed.append(item if value is None else replace(item, type=value[0]))
        funnel.items = typed
        funnel.drop(reasons)

    def rewrite(self, funnel: _Filter) -> None:
        """Rewrite every question as an open question."""
        texts = [{"question": i.question, "answer": i.answer} for i in funnel.items]
        values = self._ask("rewrite", lambda row: _read_text(row, "query"), texts)
        pairs = list(zip(funnel.items, values, strict=True))
        funnel.items = [replace(item, query=value or "") for item, value in pairs]
        funnel.drop({item.id: ("rewriting unreadable", "") for item, value in pairs if not value})

    def explain(self, funnel: _Filter) -> None:
        """Let the model write the reasoning of items that have none."""
        missing = [item for item in funnel.items if not item.reasoning]
        texts = [{"query": item.query, "answer": item.answer} for item in missing]
        values = self._ask("reasoning", lambda row: _read_text(row, "reasoning"), texts)
        written = {item.id: value for item, value in zip(missing, values, strict=True)}
        funnel.drop(
            {id_: ("reasoning unreadable", "") for id_, text in written.items() if not text}
        )
        by_model = f"model {self._settings.model}"
        funnel.items = [
            replace(item, reasoning=written[item.id] or "", reasoning_by=by_model)
            if item.id in written
            else item
            for item in funnel.items
        ]

    def solve(self, funnel: _Filter) -> None:
        """Drop items that small models answer correctly at least k times of n."""
        settings, items = self._settings, funnel.items
        correct: Counter[str] = Counter()
        question = self._question("solve", lambda row: _read_text(row, "answer"))
        conversations = [question.messages(query=item.query) for item in items]
        for solver in settings.solvers:
            chat = open_chat(solver, self._resources, "[items] solvers")
            answers = ask_all(
                chat,
                question,
                conversations,
                samples=settings.solver_samples,
                show=self._resources.progress,
            )
            repeated = [item for item in items for _ in range(settings.solver_samples)]
            for item, is_right in zip(repeated, self._compare(repeated, answers), strict=True):
                correct[item.id] += is_right
        total = settings.solver_samples * len(settings.solvers)
        easy = {
            item.id: ("too easy closed-book", f"{correct[item.id]} of {total} correct")
            for item in items
            if correct[item.id] >= settings.drop_if_correct
        }
        funnel.drop(easy)

    def _compare(self, items: Sequence[BuildItem], answers: Sequence[str | None]) -> list[bool]:
        """Return whether each closed-book answer is right; an unreadable answer is not.

        Words are compared first; the matcher model, if one is set, decides answers that do not
        match by words.
        """
        by_words = [
            answer is not None and names_answer(answer, item.answer)
            for item, answer in zip(items, answers, strict=True)
        ]
        if self._settings.matcher == "words":
            return by_words
        question = self._question("match", lambda row: _read_flag(row, "same"))
        open_rows = [
            index
            for index, right in enumerate(by_words)
            if not right and answers[index] is not None
        ]
        conversations = [
            question.messages(
                query=items[index].query,
                reference=items[index].answer,
                response=str(answers[index]),
            )
            for index in open_rows
        ]
        chat = open_chat(self._settings.matcher, self._resources, "[items] matcher")
        same = ask_all(chat, question, conversations, show=self._resources.progress)
        is_right = list(by_words)
        for index, is_same in zip(open_rows, same, strict=True):
            is_right[index] = bool(is_same)
        return is_right

    def _question(self, name: str, read: Any) -> Question[Any]:
        question: Question[Any] = load_question(name, read, self._folder.prompts_folder)
        self.prompts[name] = question.prompt.hash
        return question

    def _ask(self, name: str, read: Any, texts: Sequence[Mapping[str, str]]) -> list[Any]:
        question = self._question(name, read)
        chat = open_chat(self._settings.model, self._resources, "[items] model")
        conversations = [question.messages(**values) for values in texts]
        return ask_all(
            chat,
            question,
            conversations,
            most_unreadable=self._settings.most_unreadable,
            show=self._resources.progress,
        )


def classify_by_rules(question: str) -> tuple[str, bool]:
    """Return a question's type, from the words of its last sentence, and whether it is usable."""
    rules = read_packaged_toml("build/rules.toml")
    if any(re.search(p, question, re.IGNORECASE) for p in rules["unusable"]["patterns"]):
        return "other", False
    match = _SENTENCE.search(question)
    last = match[0] if match else question
    for name, patterns in rules["types"].items():
        if any(re.search(pattern, last, re.IGNORECASE) for pattern in patterns):
            return name, True
    return "other", True


def remove_option_phrases(question: str) -> str:
    """Return a question without phrases that refer to answer options."""
    for pattern, replacement in _OPTION_PHRASES:
        question = pattern.sub(replacement, question)
    text = re.sub(r"[ \t]+", " ", question).strip()
    return re.sub(r"(?:^|(?<=[.!?\n] ))which", "Which", text)


def _classify_by_rules(funnel: _Filter) -> None:
    classes = {item.id: classify_by_rules(item.question) for item in funnel.items}
    funnel.items = [replace(item, type=classes[item.id][0]) for item in funnel.items]
    unusable = [id_ for id_, (_, usable) in classes.items() if not usable]
    funnel.drop(dict.fromkeys(unusable, ("cannot become a retrieval question", "by rule")))


def _fold_duplicates(funnel: _Filter) -> None:
    first: dict[tuple[str, ...], str] = {}
    repeated = {}
    for item in funnel.items:
        original = first.setdefault(tuple(split_words(item.question)), item.id)
        if original != item.id:
            repeated[item.id] = ("duplicate question", f"same as {original}")
    funnel.drop(repeated)


def _check_ids(items: Sequence[SourceItem]) -> list[SourceItem]:
    """Return items with unique ids, prefixed if sources share an id; refuse repeats in a source."""
    by_id: dict[str, list[SourceItem]] = {}
    for item in items:
        by_id.setdefault(item.id, []).append(item)
    checked = []
    for item in items:
        twins = by_id[item.id]
        same_source = [twin for twin in twins if twin.source == item.source]
        if len(same_source) > 1:
            raise DataError(
                f"{item.source}, lines {same_source[0].line} and {same_source[1].line}: both have "
                f"the id {item.id!r}; ids must differ."
            )
        stem = re.sub(r"\W+", "-", item.source.rpartition("/")[2].partition(".")[0])
        checked.append(replace(item, id=f"{stem}-{item.id}") if len(twins) > 1 else item)
    return checked


def _to_item(item: SourceItem) -> BuildItem:
    return BuildItem(
        id=item.id,
        query=item.question,
        answer=item.answer,
        reasoning=item.reasoning,
        reasoning_by="source" if item.reasoning else "",
        type="other",
        question=item.question,
        source=item.source,
        line=item.line,
        licence=item.licence,
        references=item.references,
    )


def _check_settings(settings: ItemSettings) -> None:
    for name in settings.types:
        if name not in TYPES:
            raise UsageError(f"[items] types: {name!r} is not one of {', '.join(TYPES)}.")
    total = settings.solver_samples * len(settings.solvers)
    if settings.solvers and settings.drop_if_correct > total:
        raise UsageError(
            f"[items] drop_if_correct is {settings.drop_if_correct}, but each item has {total} "
            "closed-book answers (solvers times solver_samples), so no item would be dropped."
        )


def _models(settings: ItemSettings) -> tuple[str, ...]:
    names = [settings.model, *settings.solvers]
    if settings.solvers and settings.matcher != "words":
        names.append(settings.matcher)
    return tuple(dict.fromkeys(names))


def _read_class(row: Mapping[str, Any]) -> tuple[str, bool, str]:
    name = str(row["type"]).strip().lower()
    if name not in TYPES:
        raise ValueError(name)
    return name, _read_flag(row, "usable"), str(row.get("reason", ""))[:200]


def _read_flag(row: Mapping[str, Any], name: str) -> bool:
    value = row[name]
    flag = {"true": True, "yes": True, "false": False, "no": False}.get(str(value).strip().lower())
    if flag is None:
        raise ValueError(value)
    return flag


def _read_text(row: Mapping[str, Any], name: str) -> str:
    value = row[name]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(name)
    return value.strip()
