"""Probes find planted marks of construction, and stay at chance where there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import r2med
from r2med.build.judged_texts import AGAINST, prefer
from r2med.build.probes import find_answer_terms, probe_task
from r2med.tasks.task import Corpus, Judgements, Queries, Task
from tests.cli.running import run

WORDS = [
    "kidney",
    "tubule",
    "sodium",
    "potassium",
    "urine",
    "plasma",
    "pressure",
    "vessel",
    "artery",
    "vein",
    "nerve",
    "muscle",
    "bone",
    "marrow",
    "cell",
    "receptor",
    "hormone",
    "enzyme",
    "antibody",
    "fever",
    "cough",
    "pain",
    "rash",
    "swelling",
    "drug",
    "dose",
    "trial",
    "child",
    "adult",
    "risk",
    "biopsy",
    "culture",
    "smear",
]
QUERIES, POSITIVES, NEGATIVES, BACKGROUND = 12, 2, 3, 40


def plain_text(random: np.random.Generator, words: int = 40) -> str:
    chosen = [*random.choice(WORDS, words - 8), "the", "of", "in", "is", "and", "a", "with", "by"]
    return f"{' '.join(random.permutation(chosen))}."


def make_task(
    tmp_path: Path,
    positive: Callable[[int, str], str] = lambda _, text: text,
    negative: Callable[[int, str], str] = lambda _, text: text,
    *,
    negatives: int = NEGATIVES,
) -> Task:
    """A task whose texts are random words; `positive` and `negative` change those of a query."""
    random = np.random.default_rng(5)
    texts: dict[str, str] = {}
    rows: list[tuple[str, str, int]] = []
    for query in range(QUERIES):
        for number in range(POSITIVES):
            texts[f"p{query}-{number}"] = positive(query, plain_text(random))
            rows.append((f"q{query}", f"p{query}-{number}", 1))
        for number in range(negatives):
            texts[f"n{query}-{number}"] = negative(query, plain_text(random))
            rows.append((f"q{query}", f"n{query}-{number}", 0))
    texts |= {f"b{number}": plain_text(random) for number in range(BACKGROUND)}
    ids = [f"q{query}" for query in range(QUERIES)]
    queries = Queries.of(ids, [plain_text(random, 12) for _ in ids])
    judgements = Judgements(
        pa.array([row[0] for row in rows], pa.large_string()),
        pa.array([row[1] for row in rows], pa.large_string()),
        np.array([row[2] for row in rows], dtype=np.int32),
    )
    corpus = Corpus(
        pa.array(list(texts), pa.large_string()), pa.array(list(texts.values()), pa.large_string())
    )
    return Task("planted", None, corpus, queries, judgements, tmp_path)


def answer_terms() -> Mapping[str, tuple[str, ...]]:
    return {f"q{query}": (f"answer{query:02}",) for query in range(QUERIES)}


def test_texts_made_alike_stay_within_the_limits(tmp_path: Path) -> None:
    table = probe_task(make_task(tmp_path))

    assert [f for f in table.outside if not f.is_chance] == []
    assert table.positives == QUERIES * POSITIVES
    assert table.never_positive == table.hard_negatives == QUERIES * NEGATIVES
    assert table.background == BACKGROUND


@pytest.mark.parametrize(
    ("change", "probe", "feature"),
    [
        (lambda _, text: text + " kidney" * 20, "length", "words"),
        (lambda _, text: text.replace(" of ", " of 50% "), "typography", "percent signs"),
        (lambda _, text: text.replace(" of ", " of seven "), "typography", "spelled numbers"),
        (lambda _, text: text.replace(" of ", ": "), "typography", "colons"),
        (lambda _, text: text.replace(" in ", " may "), "wording", "hedges"),
        (lambda _, text: f"This disease is {text}", "opening", "this disease is"),
        (
            lambda _, text: text.replace(" by ", " whereas ").replace(" with ", " whereas "),
            "style",
            "naive Bayes on function words",
        ),
    ],
)
def test_a_planted_mark_is_found_against_all_other_documents(
    tmp_path: Path, change: Callable[[int, str], str], probe: str, feature: str
) -> None:
    table = probe_task(make_task(tmp_path, positive=change))
    figures = [table.find(probe, feature, against) for against in AGAINST]

    assert [figure.is_outside for figure in figures] == [True] * 3
    assert not any(figure.is_chance for figure in figures)


def test_late_answers_and_contrast_clauses_are_found(tmp_path: Path) -> None:
    task = make_task(
        tmp_path,
        positive=lambda q, text: f"{text} It is answer{q:02}, not answer{(q + 1) % QUERIES:02}.",
        negative=lambda q, text: f"On answer{q:02}: {text}",
    )
    table = probe_task(task, answer_terms=answer_terms())

    assert table.find("answers", "position of the answer", "hard negatives").value == 1.0
    assert table.find("answers", "number of answers named", "never positive").value == 1.0
    assert table.find("answers", "number of answers named", "background").value == 1.0
    assert table.find("answers", "hard negatives that name the answer").value == 1.0


def test_a_task_without_hard_negatives_is_compared_with_its_background(tmp_path: Path) -> None:
    table = probe_task(make_task(tmp_path, lambda _, text: text * 2, negatives=0))

    assert table.find("length", "words", "hard negatives").value is None
    assert table.find("length", "words", "background").value == 1.0
    assert "–" in str(table)


def test_positives_that_belong_to_one_query_are_given_away_by_other_queries(
    tmp_path: Path,
) -> None:
    # BM25 ranks the negatives first, which repeat what all queries share
    shared = "ward clinic visit referral letter history family travel allergy medicine report"
    task = make_task(
        tmp_path,
        positive=lambda query, text: f"{text} mark{query:02}",
        negative=lambda _, text: f"{shared} {shared} {shared} {text}",
    )
    asked = [f"{shared} mark{query:02}" for query in range(QUERIES)]
    task = replace(task, queries=Queries.of(task.queries.ids.to_pylist(), asked))

    table = probe_task(task)

    gain = table.find("owners", "BM25 less its best score for another query")
    assert table.find("owners", "positives of a single query").value == 1.0
    assert gain.value == pytest.approx(1.0)
    assert gain.is_outside


def test_answer_terms_come_from_the_queries(tmp_path: Path) -> None:
    task = r2med.load_task("demo/medqa-diag")

    terms = find_answer_terms(task)

    assert list(terms) == task.queries.ids.to_pylist()
    assert all(terms.values())


def test_ties_count_one_half() -> None:
    preference = prefer([([1.0, 2.0], [1.0]), ([], [3.0])])

    assert preference is not None
    assert preference.value == 0.75
    assert preference.pairs == 2


def test_the_command_prints_every_rule() -> None:
    output = run("build", "probes", "demo/biology").out

    assert "rules that do not understand the query" in output
    assert "position of the answer" in output
