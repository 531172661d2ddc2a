"""`r2med answer`: does better retrieval give better answers?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from r2med.cli import options
from r2med.cli.app import command_group
from r2med.errors import DataError, MissingError, UsageError, need, plural
from r2med.report.console import agreed, echo, echo_json, notice, progress, work_line
from r2med.report.formats import Page, show

if TYPE_CHECKING:
    from r2med.answer.conditions import Condition
    from r2med.answer.store import AnswerSet
    from r2med.judge.panel import Show
    from r2med.remote.budget import RequestEstimate
    from r2med.remote.chat import Remote
    from r2med.report.formats import Format as FormatName
    from r2med.results.select import Ranking
    from r2med.tasks.task import Task

answer = command_group(
    default="ask",
    takes_arguments=True,
    help="Answer queries with retrieved passages; `r2med answer SYSTEM...` runs `ask`.",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="An answer set.")]
Scoring = Annotated[
    Literal["auto", "option", "judge", "f1", "match"],
    options.option("--score", help="How answers are scored: auto, option, judge, f1 or match."),
]
GradedBy = Annotated[
    str | None,
    options.option("--graded-by", help="Judge whose grades count; by default the newest."),
]
Conditions = Annotated[
    str,
    options.option(
        "--conditions", help="Comma-separated: closed-book, retrieved, oracle, distracted."
    ),
]
_ALL_CONDITIONS = "closed-book,retrieved,oracle,distracted"


@answer.command("ask")
def ask_systems(
    context: typer.Context,
    systems: options.Stored,
    llm: options.RequiredLlm,
    task: options.Task = "demo",
    k: options.K = 5,
    conditions: Conditions = _ALL_CONDITIONS,
    samples: options.Samples = 1,
    judge: options.AnyJudges = None,
    rubric: options.Rubric = None,
    prompt: Annotated[
        str, options.option("--prompt", help="default, or a TOML file with prompts.")
    ] = "default",
    name: options.SetName = None,
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
    estimate: Annotated[
        bool, options.option("--estimate", help="Show the estimated cost and exit.")
    ] = False,
    llm_url: options.LlmUrl = None,
    fresh: options.Fresh = False,
    max_tokens: options.MaxTokens = None,
    max_cost: options.MaxCost = None,
    concurrency: options.Concurrency = None,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """Answer the queries of a task under four conditions and score the answers.

    closed-book shows no passages (floor), retrieved the first k of each system's stored run, oracle
    the judged positives (ceiling), distracted the best-ranked documents that are judged not
    relevant. Answers are stored in the results folder, apart from retrieval results; an interrupted
    command continues where it stopped.
    """
    from r2med.answer.asking import (
        ask_questions,
        describe_set,
        estimate_answers,
        find_unanswered,
        open_answering_model,
        prompt_questions,
    )
    from r2med.answer.conditions import build_questions
    from r2med.answer.prompt import find_prompt
    from r2med.answer.store import AnswerStore

    store = AnswerStore(results, warn=notice)
    output_format = options.format_of(form, as_json)
    chosen_conditions = _read_conditions(conditions)
    chosen_prompt = find_prompt(prompt)
    sets: list[AnswerSet] = []
    with progress() as bar, options.open_resources(context.params, bar) as resources:
        chat = open_answering_model(llm, resources.remote, samples)
        for loaded in _load_tasks(task, data_root, results):
            rankings = _find_rankings(systems, loaded, results)
            questions = build_questions(loaded, rankings, k=k, conditions=chosen_conditions)
            for message in questions.notices:
                notice(message)
            prompted = prompt_questions(questions, chosen_prompt, samples)
            description = describe_set(
                loaded, chat, chosen_prompt, name=name, k=k, distractors=questions.distractors
            )
            todo = find_unanswered(prompted, store.read_answers(description))
            notice(
                f"{loaded.name}, {chat.llm.name}: {_describe_cost(estimate_answers(chat, todo))}."
            )
            if estimate:
                continue
            answers = store.open(description)
            outcome = ask_questions(prompted, chat, answers, show=work_line(bar))
            notice(f"{loaded.name}: {outcome.added:,} answers added, {outcome.already:,} stored.")
            if judge:
                _grade(answers, judge, rubric, resources.remote, work_line(bar))
            answers.close()
            sets.append(answers)
    if sets:
        _show_outcome(sets, [r.name for r in rankings], output_format)


@answer.command("grade")
def grade_set(
    context: typer.Context,
    name: Name,
    task: options.Task,
    judges: options.Judges,
    rubric: options.Rubric = None,
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
    estimate: Annotated[
        bool, options.option("--estimate", help="Show the estimated cost and exit.")
    ] = False,
    llm_url: options.LlmUrl = None,
    fresh: options.Fresh = False,
    max_tokens: options.MaxTokens = None,
    max_cost: options.MaxCost = None,
    concurrency: options.Concurrency = None,
) -> None:
    """Grade stored answers with a judge model: correct, partly, wrong or abstained.

    Options and abstentions are read from the text and not graded. Compare the judge with people:
    r2med answer label.
    """
    with progress() as bar, options.open_resources(context.params, bar) as resources:
        for _, answers in _find_sets(name, task, data_root, results):
            _grade(
                answers, judges, rubric, resources.remote, work_line(bar), only_estimate=estimate
            )
            answers.close()


@answer.command("label")
def label_answers(
    name: Name,
    task: options.Task,
    reviewer: options.Reviewer,
    judge: GradedBy = None,
    size: options.QueueSize = 100,
    file: Annotated[Path | None, options.out("Write the queue to this .csv or .xlsx file.")] = None,
    labelled: Annotated[
        Path | None,
        options.option("--from", metavar="FILE", help="Read labels from a .csv or .xlsx file."),
    ] = None,
    partial: options.Partial = False,
    port: options.Port = None,
    open_browser: options.OpenBrowser = True,
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
    force: options.Force = False,
) -> None:
    """Label graded answers by hand, to calibrate the judge: on a page, or in a file.

    The sample is the same for all reviewers; the condition and the judge's grade are hidden.
    """
    from r2med.answer.grading import build_label_queue, find_grades, label_texts, open_labels
    from r2med.judge.review import check_reviewer
    from r2med.judge.review_files import export_review, import_review
    from r2med.paths import require_empty

    [(loaded, answers)] = _find_one(name, task, data_root, results)
    labeller = check_reviewer(reviewer)
    store = open_labels(answers)
    if labelled is not None:
        outcome = import_review(labelled, store.queue(), labeller, store, partial=partial)
        store.close()
        echo(f"{labelled}: stored {plural(outcome.labels, 'label')} of {labeller}.")
        return
    queue = store.open(build_label_queue(answers, find_grades(answers, judge), loaded, size))
    if file is not None:
        require_empty(file, force=force)
        count = export_review(file, queue, labeller, label_texts(answers), store)
        echo(f"wrote {file} ({plural(count, 'answer')})")
        return
    need("starlette", "uvicorn", "jinja2", extra="web")
    from r2med.explore.review import ReviewSession, create_review_app
    from r2med.serve.listener import open_listener, run_server

    session = ReviewSession(queue, store, labeller, label_texts(answers), loaded.name)
    listener = open_listener("127.0.0.1", port)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    try:
        echo(f"r2med answer label: {url} ({plural(len(queue.pairs), 'answer')}; Ctrl-C ends it)")
        run_server(create_review_app(session), listener, browse=url if open_browser else None)
    finally:
        store.close()


@answer.command("report")
def report_sets(
    name: Name,
    task: options.Task,
    only: options.Only = None,
    judge: GradedBy = None,
    scoring: Scoring = "auto",
    file: Annotated[Path | None, options.out("Write the report as HTML to this file.")] = None,
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """Show scores by condition, paired tests, relation to retrieval, and the judge's agreement."""
    from r2med.answer.reporting import report_answers

    output_format = options.format_of(form, as_json)
    sets = [answers for _, answers in _find_sets(name, task, data_root, results)]
    report = report_answers(sets, judge=judge, scoring=scoring, systems=_split_names(only))
    if file is None:
        show(report, output_format)
        return
    from r2med.report.cards.pages import html
    from r2med.report.drawing import draw
    from r2med.storage import write_file

    page = Page()
    draw(report, page)
    write_file(file, html(page, "Answer report", f"r2med answer report {name}"))
    echo(f"wrote {file}")


@answer.command("plot")
def plot_sets(
    name: Name,
    task: options.Task,
    file: Annotated[Path, options.out("The file to write: .svg, .pdf or .png.")],
    measure: Annotated[
        str | None,
        options.option("--measure", help="Retrieval measure; by default the best predictor."),
    ] = None,
    paper: Annotated[
        bool,
        options.option(
            "--paper",
            help="Draw for one column of a paper: no title in the plot, caption in the terminal.",
            heading=options.OUTPUT,
        ),
    ] = False,
    only: options.Only = None,
    judge: GradedBy = None,
    scoring: Scoring = "auto",
    theme: Annotated[
        Literal["light", "dark"], options.option(help="light or dark.", heading=options.OUTPUT)
    ] = "light",
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
) -> None:
    """Draw answer scores against a retrieval measure, between floor and ceiling."""
    from r2med.report.plots.theme import ENDINGS, LIBRARIES, caption_of, find_theme, picture

    need(*LIBRARIES, extra="plots")
    from r2med.answer.reporting import report_answers
    from r2med.report.plots.answers import relation_plot
    from r2med.storage import write_file

    if file.suffix.lower() not in ENDINGS:
        raise UsageError(f"--out {file}: expected a file that ends in .svg, .pdf or .png.")
    sets = [answers for _, answers in _find_sets(name, task, data_root, results)]
    report = report_answers(sets, judge=judge, scoring=scoring, systems=_split_names(only))
    look = find_theme(theme)
    chart = relation_plot(report, look, measure)
    write_file(file, picture(chart, look, file.suffix.lower(), for_paper=paper))
    echo(f"wrote {file}")
    if paper:
        echo(f"Caption: {caption_of(chart)}")


@answer.command("leaderboard")
def show_leaderboard(
    task: options.AnyTask = None,
    scoring: Scoring = "auto",
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """Rank models and systems by the score of their answers, task by task."""
    from r2med.answer.listing import rank_answers
    from r2med.answer.store import AnswerStore

    store = AnswerStore(results, warn=notice)
    tasks = [None] if task is None else _load_tasks(task, data_root, results)
    sets = [answers for loaded in tasks for answers in store.sets(loaded)]
    output_format = options.format_of(form, as_json)
    if not sets and output_format == "table":
        echo(f"No answer sets in {results}. Try: r2med answer bm25 --task demo --llm LLM")
        return
    show(rank_answers(sets, scoring), output_format)


@answer.command("list")
def list_sets(
    results: options.Results = options.RESULTS,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """List the answer sets of a results folder."""
    from r2med.answer.listing import StoredAnswerSets, describe_answers
    from r2med.answer.store import AnswerStore

    sets = AnswerStore(results, warn=notice).sets()
    output_format = options.format_of(form, as_json)
    if not sets and output_format == "table":
        echo(f"No answer sets in {results}. Try: r2med answer bm25 --task demo --llm LLM")
        return
    show(StoredAnswerSets([describe_answers(answers) for answers in sets]), output_format)


@answer.command("show")
def show_set(
    name: Name,
    task: options.Task,
    query: Annotated[
        str | None, typer.Argument(metavar="[QUERY]", help="Only the query with this id.")
    ] = None,
    limit: options.Limit = 5,
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
    as_json: options.Json = False,
) -> None:
    """Show the answers of a set under all conditions, query by query."""
    from r2med.answer.listing import answer_rows

    for loaded, answers in _find_sets(name, task, data_root, results):
        rows = [row for row in answer_rows(answers) if query in (None, row["query_id"])]
        if query is not None and not rows:
            raise MissingError(f"{name} on {loaded.name}: query {query!r} has no answer.")
        if as_json:
            echo_json(rows)
            continue
        query_ids = list(dict.fromkeys(row["query_id"] for row in rows))
        for query_id in query_ids[:limit]:
            of_query = [row for row in rows if row["query_id"] == query_id]
            echo(f"{query_id} · reference: {of_query[0]['reference']}")
            for row in of_query:
                label = " ".join(filter(None, (row["condition"], row["system"])))
                grade = row["correctness"] or f"F1 {100 * row['f1']:.0f}"
                cited = f" · cites {', '.join(map(str, row['cited']))}" if row["cited"] else ""
                echo(f"  {label} · {grade}{cited}: {' '.join(row['text'].split())}")
        if len(query_ids) > limit:
            echo(
                f"{len(query_ids) - limit:,} more queries; use --limit or --json, or name a query."
            )


@answer.command("export")
def export_set(
    name: Name,
    task: options.Task,
    file: Annotated[Path, options.out("The file to write: .jsonl or .csv.")],
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
    force: options.Force = False,
) -> None:
    """Write the answers of a set with their scores as JSON lines or CSV, by the file's ending."""
    from r2med.answer.listing import export_answers
    from r2med.paths import require_empty
    from r2med.storage import write_file

    [(_, answers)] = _find_one(name, task, data_root, results)
    require_empty(file, force=force)
    write_file(file, export_answers(answers, file.suffix.lower()))
    echo(f"wrote {file}")


@answer.command("delete")
def delete_sets(
    name: Name,
    task: options.Task,
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
    yes: options.Yes = False,
) -> None:
    """Delete an answer set with its grades and labels, after asking; cached model answers stay."""
    from r2med.answer.store import AnswerStore

    sets = _find_sets(name, task, data_root, results)
    count = sum(len(answers.answers()) for _, answers in sets)
    if not yes and not agreed(f"Delete {name} with {plural(count, 'answer')}?"):
        echo("nothing was deleted")
        raise typer.Exit(1)
    for _, answers in sets:
        AnswerStore(results, warn=notice).delete(answers)
    echo(f"deleted {name} ({plural(count, 'answer')})")


def _grade(
    answers: AnswerSet,
    judges: Sequence[str],
    rubric: str | None,
    remote: Remote,
    show_work: Show,
    *,
    only_estimate: bool = False,
) -> None:
    """Print the estimated cost; unless `only_estimate`, grade the answers without a grade."""
    from r2med.answer.grading import (
        estimate_grading,
        find_answer_rubric,
        grade_answers,
        open_grades,
    )
    from r2med.judge.panel import open_panel

    panel = open_panel(judges, find_answer_rubric(rubric), remote)
    grades = open_grades(answers, panel)
    for model, cost in estimate_grading(answers, panel, grades):
        notice(f"{model}: {_describe_cost(cost)}.")
    if only_estimate:
        return
    count = grade_answers(answers, panel, grades, show=show_work)
    grades.close()
    notice(f"{answers.description.task}: graded {plural(count, 'answer')}.")


def _show_outcome(
    sets: Sequence[AnswerSet], systems: Sequence[str], output_format: FormatName
) -> None:
    """Print the scores of new answers; for answers that cannot be scored yet, print the reason."""
    from r2med.answer.reporting import report_answers

    scored = []
    for answers in sets:
        try:
            report_answers([answers], systems=systems)
        except DataError as problem:
            notice(f"the answers are stored, but not scored: {problem}")
        else:
            scored.append(answers)
    if not scored:
        return
    name, tasks = sets[0].name, ",".join(answers.description.task for answers in scored)
    report = report_answers(scored, systems=systems)
    if output_format == "table":
        show(report, output_format, brief=True)
        notice(f"next: r2med answer report {name} --task {tasks}")
    else:
        show(report, output_format)


def _split_names(texts: Sequence[str] | None) -> list[str]:
    """Return the names in comma-separated texts."""
    return [name.strip() for text in texts or () for name in text.split(",")]


def _read_conditions(text: str) -> list[Condition]:
    from r2med.answer.conditions import CONDITIONS

    names = [name.strip() for name in text.split(",")]
    return [options.check_choice(name, CONDITIONS, "--conditions") for name in names]


def _describe_cost(cost: RequestEstimate) -> str:
    tokens = cost.prompt_tokens + cost.completion_tokens
    money = "unknown" if cost.money is None else f"${cost.money:,.2f}"
    return (
        f"{cost.calls:,} calls, {cost.cached:,} answers cached, about {tokens:,} tokens, "
        f"cost {money} ({cost.basis})"
    )


def _load_tasks(task: str, root: Path | None, results: Path) -> list[Task]:
    from r2med.results.select import find_local_tasks
    from r2med.tasks.load import load_tasks

    return list(load_tasks(task, root=root, local_tasks=find_local_tasks(results)))


def _find_rankings(systems: list[str], task: Task, results: Path) -> list[Ranking]:
    from r2med.results.select import ResultSet

    result_set = ResultSet.open(results, notice)
    rankings = [result_set.find_ranking(system, task, notice) for system in systems]
    if len({ranking.name for ranking in rankings}) < len(rankings):
        raise UsageError("one system is named twice.")
    return rankings


def _find_sets(
    name: str, task: str, root: Path | None, results: Path
) -> list[tuple[Task, AnswerSet]]:
    from r2med.answer.store import AnswerStore

    store = AnswerStore(results, warn=notice)
    return [(loaded, store.find(name, loaded)) for loaded in _load_tasks(task, root, results)]


def _find_one(
    name: str, task: str, root: Path | None, results: Path
) -> list[tuple[Task, AnswerSet]]:
    sets = _find_sets(name, task, root, results)
    if len(sets) > 1:
        raise UsageError(f"--task {task} names {len(sets)} tasks; name one.")
    return sets
