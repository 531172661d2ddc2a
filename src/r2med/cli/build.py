"""`r2med build`: make a benchmark from questions and documents, stage by stage."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from r2med.cli import options
from r2med.cli.app import command_group
from r2med.errors import UsageError, plural
from r2med.report.console import echo, echo_json, notice, progress
from r2med.report.formats import show

if TYPE_CHECKING:
    from r2med.build.folder import BuildFolder
    from r2med.build.pool import Coverage
    from r2med.build.review import OpenReview

build = command_group(
    default="--help",
    help="Make a benchmark: items, corpus, pool, judge, review, freeze, check.",
)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The benchmark's folder.")]


@build.command("new")
def create_folder(
    folder: Folder,
    name: Annotated[
        str | None,
        options.option("--benchmark", help="Name of the benchmark; by default the folder's."),
    ] = None,
) -> None:
    """Create the folder of a benchmark with a commented build.toml."""
    from r2med.build.folder import BuildFolder

    template = (files("r2med.build") / "template.toml").read_text(encoding="utf-8")
    chosen = name or folder.resolve().name
    created = BuildFolder.create(folder, template.replace("@NAME@", chosen))
    echo(f"wrote {created.settings_path}; add sources, then: r2med build items {folder}")


@build.command("items")
def make_items(
    context: typer.Context,
    folder: Folder,
    strict: options.Strict = False,
    force: options.Force = False,
    llm_url: options.LlmUrl = None,
    fresh: options.Fresh = False,
    max_tokens: options.MaxTokens = None,
    max_cost: options.MaxCost = None,
    concurrency: options.Concurrency = None,
    as_json: options.Json = False,
) -> None:
    """Turn questions into open queries with a hidden answer and a reasoning path.

    Reads the sources of build.toml, classifies and rewrites them, and drops items that name their
    answer or that small models answer. Every drop is in items-dropped.jsonl with its reason.
    """
    from r2med.build.items import build_items

    opened = _open(folder)
    with progress() as bar, options.open_resources(context.params, bar) as resources:
        outcome = build_items(opened, resources, strict=strict, force=force)
    if as_json:
        echo_json(vars(outcome.record))
        return
    total = outcome.record.counts_in["items"]
    echo(f"{opened.items_path}: {plural(len(outcome.items), 'item')} of {total:,}")
    for reason, count in outcome.record.drops.items():
        echo(f"  dropped {count:,}: {reason}")
    types = ", ".join(f"{count} {name}" for name, count in outcome.record.figures["types"].items())
    echo(f"  {types}")
    _suggest("corpus", folder)


@build.command("corpus")
def make_corpus(
    context: typer.Context,
    folder: Folder,
    strict: options.Strict = False,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Split documents into passages with source, section, licence and offsets.

    Reads text, Markdown, HTML, PDF, JATS XML and JSON lines, and folds passages that repeat others.
    Files that cannot be read are in corpus/problems.jsonl; --strict stops at them.
    """
    from r2med.build.corpus import build_corpus

    opened = _open(folder)
    with progress() as bar, options.open_resources(context.params, bar) as resources:
        outcome = build_corpus(opened, resources, strict=strict, force=force)
    record = outcome.record
    if as_json:
        echo_json(vars(record))
        return
    read, written = record.counts_in, record.counts_out
    echo(
        f"{opened.corpus_path}: {plural(written['passages'], 'passage')} of "
        f"{plural(read['documents'], 'document')} in {plural(read['files'], 'file')}, "
        f"{record.figures['tokens_per_passage']:g} tokens on average"
    )
    if written["distractors"]:
        echo(f"  {written['distractors']:,} are distractors")
    for reason, count in record.drops.items():
        echo(f"  dropped {count:,}: {reason}")
    for reason, count in record.figures["unreadable"].items():
        echo(f"  unreadable {count:,}: {reason}")
    _suggest("pool", folder)


@build.command("pool")
def make_pool(
    context: typer.Context,
    folder: Folder,
    device: options.Device = None,
    batch_size: options.BatchSize = None,
    trust_remote_code: options.TrustRemoteCode = False,
    engine: options.Engine = "local",
    worker_timeout: options.WorkerTimeout = None,
    llm_url: options.LlmUrl = None,
    max_tokens: options.MaxTokens = None,
    max_cost: options.MaxCost = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Search with several systems from three views, and pool their documents.

    The views are the query, the answer and the reasoning. The table shows what each view and
    system adds: candidates that it found, and those that only it found.
    """
    from r2med.build.pool import build_pool

    opened = _open(folder)
    with progress() as bar, options.open_resources(context.params, bar) as resources:
        outcome = build_pool(opened, resources, force=force)
    if as_json:
        echo_json(vars(outcome.record))
        return
    echo(f"{opened.pool_path}: {plural(len(outcome.candidates), 'candidate')}")
    _print_coverage("view", outcome.views)
    _print_coverage("system", outcome.systems)
    _suggest("judge", folder)


@build.command("judge")
def judge_pooled(
    context: typer.Context,
    folder: Folder,
    judges: options.AnyJudges = None,
    estimate: Annotated[
        bool, options.option("--estimate", help="Show the estimated cost and exit.")
    ] = False,
    llm_url: options.LlmUrl = None,
    fresh: options.Fresh = False,
    max_tokens: options.MaxTokens = None,
    max_cost: options.MaxCost = None,
    concurrency: options.Concurrency = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Grade every candidate with a language model, by the rubric of build.toml."""
    from r2med.build.judge import judge_candidates, prepare_judging

    opened = _open(folder)
    overrides: dict[str, object] = {"judges": tuple(judges) if judges else None}
    with progress() as bar, options.open_resources(context.params, bar) as resources:
        prepared = prepare_judging(opened, resources, overrides)
        for model, cost in prepared.estimate():
            money = "unknown" if cost.money is None else f"${cost.money:,.2f}"
            notice(
                f"{model}: {cost.calls:,} calls, {cost.cached:,} answers cached, cost "
                f"{money} ({cost.basis})."
            )
        if estimate:
            return
        outcome = judge_candidates(opened, prepared, resources, force=force)
    record = outcome.record
    if as_json:
        echo_json(vars(record))
        return
    counts = ", ".join(f"{count:,} {name}" for name, count in record.counts_out.items())
    echo(f"{opened.judged_path}: {counts}")
    _suggest("review", folder, "--reviewer NAME")


@build.command("review")
def review_pairs(
    folder: Folder,
    reviewer: Annotated[
        str | None,
        options.option("--reviewer", help="Name under which labels are stored."),
    ] = None,
    export_file: Annotated[
        Path | None,
        options.option("--export", help="Write the reviewer's queue as .csv or .xlsx instead."),
    ] = None,
    import_file: Annotated[
        Path | None, options.option("--import", help="Read a labelled .csv or .xlsx file instead.")
    ] = None,
    partial: options.Partial = False,
    port: options.Port = None,
    open_browser: options.OpenBrowser = True,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Let people label a sample of the candidates; without --reviewer, show their agreement."""
    from r2med.build.review import open_review, record_review, report_build_review

    opened = _open(folder)
    if reviewer is None:
        if export_file or import_file:
            raise UsageError("--export and --import need --reviewer NAME.")
        report = report_build_review(opened, warn=notice)
        _, state = record_review(opened, warn=notice)
        show(report, "json" if as_json else "table")
        if not as_json:
            echo(str(state))
        return
    if export_file and import_file:
        raise UsageError("--export and --import: choose one.")
    review = open_review(opened, warn=notice)
    try:
        if export_file is not None:
            _export_review(review, reviewer, export_file, force=force)
        elif import_file is not None:
            _import_review(review, reviewer, import_file, partial=partial)
        else:
            _serve_review(review, reviewer, port, open_browser)
    finally:
        review.store.close()


@build.command("freeze")
def freeze(
    context: typer.Context,
    folder: Folder,
    device: options.Device = None,
    as_json: options.Json = False,
) -> None:
    """Write the finished benchmark: task files, Parquet, manifest, card and audit keys.

    The same inputs give the same bytes. Queries without a positive, and those that the lexical
    baseline solves, are dropped and counted.
    """
    from r2med.build.freeze import freeze_build

    opened = _open(folder)
    with progress() as bar, options.open_resources(context.params, bar) as resources:
        outcome = freeze_build(opened, resources)
    if as_json:
        echo_json(vars(outcome.record))
        return
    show(outcome.funnel, "table")
    echo("")
    echo(str(outcome.review))
    for path in outcome.tasks:
        echo(f"wrote {path}")
    _suggest("check", folder)


@build.command("check")
def check(
    context: typer.Context,
    folder: Folder,
    exit_code: Annotated[
        bool, options.option("--exit-code", help="Exit with 1 if a check fails.")
    ] = False,
    device: options.Device = None,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """Check whether the frozen benchmark can be trusted: a verdict and advice per check."""
    from r2med.build.check import check_build

    opened = _open(folder)
    parameters = {key: value for key, value in context.params.items() if key != "exit_code"}
    with progress() as bar, options.open_resources(parameters, bar) as resources:
        outcome = check_build(opened, resources)
    show(outcome, options.format_of(form, as_json))
    if exit_code and outcome.failures:
        raise typer.Exit(1)


@build.command("probes")
def show_probes(
    tasks: options.TaskArguments,
    data_root: options.DataRoot = None,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """Measure whether rules that do not understand the query find the positives of any task.

    Compares length, typography, wording, names of answers and more between positives and hard
    negatives, documents that are never positive, and the background.
    """
    from r2med.build.probes import probe_task
    from r2med.tasks.load import load_tasks

    tables = [probe_task(task) for task in load_tasks(",".join(tasks), root=data_root)]
    chosen = options.format_of(form, as_json)
    if chosen == "json":
        echo_json([table.to_json() for table in tables])
        return
    for table in tables:
        show(table, chosen)


@build.command("funnel")
def show_funnel(
    folder: Folder,
    file: Annotated[Path | None, options.out("Write the funnel as an .svg figure.")] = None,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """Show how many items, candidates and queries remain after each finished stage."""
    from r2med.build.funnel import funnel_svg, make_funnel
    from r2med.storage import write_file

    opened = _open(folder)
    funnel = make_funnel(opened.benchmark.name, opened.records())
    if file is not None:
        write_file(file, funnel_svg(funnel))
        echo(f"wrote {file}")
        return
    show(funnel, options.format_of(form, as_json))


def _open(folder: Path) -> BuildFolder:
    from r2med.build.folder import BuildFolder

    return BuildFolder(folder)


def _suggest(stage: str, folder: Path, more: str = "") -> None:
    notice(f"next: r2med build {stage} {folder} {more}".rstrip())


def _print_coverage(label: str, rows: tuple[Coverage, ...]) -> None:
    for row in rows:
        echo(f"  {label} {row.name}: {row.found:,} found, {row.unique:,} only by it")


def _pair_texts(review: OpenReview) -> Any:
    """Return a function that returns the texts of a pair."""
    from r2med.judge.pool import query_texts, texts_of

    queries = query_texts(review.task)

    def find(pair: tuple[str, str]) -> dict[str, str]:
        passage = texts_of(review.task, [pair[1]]).get(pair[1], "")
        return {**queries[pair[0]], "passage": passage}

    return find


def _export_review(review: OpenReview, reviewer: str, file: Path, *, force: bool) -> None:
    from r2med.judge.review import check_reviewer
    from r2med.judge.review_files import export_review
    from r2med.paths import require_empty

    require_empty(file, "--export", force=force)
    name = check_reviewer(reviewer)
    count = export_review(file, review.queue, name, _pair_texts(review), review.store)
    echo(f"wrote {file} ({plural(count, 'pair')})")


def _import_review(review: OpenReview, reviewer: str, file: Path, *, partial: bool) -> None:
    from r2med.judge.review import check_reviewer
    from r2med.judge.review_files import import_review

    name = check_reviewer(reviewer)
    outcome = import_review(file, review.queue, name, review.store, partial=partial)
    echo(
        f"{file}: stored {plural(outcome.labels, 'label')} of {name}, {outcome.unchanged:,} were "
        f"stored before, {outcome.unlabelled:,} rows have none."
    )


def _serve_review(review: OpenReview, reviewer: str, port: int | None, open_browser: bool) -> None:
    from r2med.errors import need

    need("starlette", "uvicorn", "jinja2", extra="web")
    from r2med.explore.review import ReviewSession, create_review_app
    from r2med.judge.review import check_reviewer
    from r2med.serve.listener import open_listener, run_server

    session = ReviewSession(
        review.queue, review.store, check_reviewer(reviewer), _pair_texts(review), review.task.name
    )
    listener = open_listener("127.0.0.1", port)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    try:
        echo(
            f"r2med build review: {url} ({plural(len(review.queue.pairs), 'pair')}; Ctrl-C ends it)"
        )
        run_server(create_review_app(session), listener, browse=url if open_browser else None)
    except KeyboardInterrupt as stop:
        stop.add_note("the review has ended; every label is stored.")
        raise
