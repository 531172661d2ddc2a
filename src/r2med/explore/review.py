"""The review page: one pair at a time, labelled by keyboard, mouse or touch.

It is a separate application, so that labels can be given only where `r2med review` was started.
Decisions are written by POST alone, behind the same guard as the explorer, and are on disk before
the next page is sent.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from statistics import median

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from r2med.errors import MissingError, R2MedError, UsageError
from r2med.explore.parameters import Parameters
from r2med.explore.render import STATIC, render, static_file
from r2med.judge.review import Decision, ReviewQueue, ReviewStore, label_pair, settle_pair
from r2med.judge.store import Pair
from r2med.serve.guard import Guard

_OWN_FILES = {"review.css": "text/css", "review.js": "text/javascript"}
_LONGEST_TEXT = 2_000
_WORD = re.compile(r"\w{3,}")
#: Decisions whose median time estimates the time left.
_RECENT = 20
#: Seconds after which a reviewer is assumed to have been away from the screen.
_AWAY = 600.0
#: Words of three letters or more that say nothing about the topic.
_COMMON = frozenset(
    {"about", "after", "also", "and", "any", "are", "been", "but", "can", "did", "does", "for"}
    | {"from", "had", "has", "have", "how", "into", "its", "may", "not", "one", "such", "than"}
    | {"that", "the", "their", "then", "there", "these", "they", "this", "was", "were", "what"}
    | {"when", "which", "who", "why", "will", "with", "would"}
)


@dataclass
class ReviewSession:
    """One reviewer at work on a queue."""

    queue: ReviewQueue
    store: ReviewStore
    reviewer: str
    texts: Callable[[Pair], Mapping[str, str]]
    """A function that returns the texts of a pair: query, passage, answer, reasoning."""
    title: str
    guard: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def order(self) -> list[Pair]:
        """The pairs of the queue, in an order that differs between reviewers."""
        return self.queue.order(self.reviewer)

    def next_pair(self) -> Pair | None:
        """Return the first pair without a decision; skipped pairs come again at the end."""
        decided = self.store.decisions(self.reviewer)
        left_out = self._settled_unseen(decided)
        for pair in self.order:
            if pair not in decided and pair not in left_out:
                return pair
        skipped = [pair for pair, decision in decided.items() if decision.label is None]
        return skipped[0] if skipped else None

    def progress(self) -> Progress:
        """Return how many pairs are labelled, and the time that the others will take."""
        decided = self.store.decisions(self.reviewer)
        total = len(self.queue.pairs) - len(self._settled_unseen(decided))
        labelled = sum(decision.label is not None for decision in decided.values())
        times = [d.seconds for d in decided.values() if d.seconds is not None]
        times = [seconds for seconds in times if seconds < _AWAY]
        pace = median(times[-_RECENT:]) if times else None
        return Progress(labelled, total, None if pace is None else pace * (total - labelled))

    @property
    def is_labelling(self) -> bool:
        """Whether this reviewer has begun to label the queue and has pairs left."""
        return bool(self.store.decisions(self.reviewer)) and self.next_pair() is not None

    def disagreements(self) -> list[Pair]:
        """Return the pairs on which reviewers disagree, for this reviewer to settle.

        A reviewer who is still labelling gets only pairs that they have labelled, because the page
        shows the labels of the other reviewers.
        """
        open_pairs = self.store.disagreements()
        if not self.is_labelling:
            return open_pairs
        labelled = self.store.labels().get(self.reviewer, {})
        return [pair for pair in open_pairs if pair in labelled]

    def _settled_unseen(self, decided: Mapping[Pair, Decision]) -> set[Pair]:
        """Return pairs that this reviewer settled without labelling: they saw others' labels."""
        return {
            pair
            for pair, settlement in self.store.settled_decisions().items()
            if settlement.reviewer == self.reviewer and pair not in decided
        }


@dataclass(frozen=True)
class Progress:
    """The progress of a reviewer in the queue."""

    done: int
    total: int
    seconds_left: float | None

    @property
    def time_left(self) -> str:
        """The time left in words; empty before the first decision."""
        if self.seconds_left is None or self.done == self.total:
            return ""
        minutes = self.seconds_left / 60
        if minutes < 1.5:
            return "about a minute left"
        return f"about {minutes:.0f} minutes left" if minutes < 90 else f"{minutes / 60:.1f} h left"


def create_review_app(session: ReviewSession) -> Starlette:
    """Return the application of one reviewer; it answers on loopback only."""

    def show(request: Request) -> Response:
        parameters = Parameters(request.query_params)
        code = parameters.text("code")
        pair = _find(session.queue, code) if code else session.next_pair()
        return HTMLResponse(_review_page(session, pair, has_marks=bool(parameters.text("marks"))))

    async def decide(request: Request) -> Response:
        form = await request.form(max_files=0, max_fields=10)
        return await run_in_threadpool(_decide, session, Parameters(form))

    def show_settlement(request: Request) -> Response:
        return HTMLResponse(_settlement_page(session))

    async def settle(request: Request) -> Response:
        form = await request.form(max_files=0, max_fields=10)
        return await run_in_threadpool(_settle, session, Parameters(form))

    def refuse(request: Request, problem: Exception) -> Response:
        status = 400 if isinstance(problem, UsageError) else 404
        page = render("review_message.html", _link, title="Review", message=str(problem))
        return HTMLResponse(page, status)

    return Starlette(
        routes=[
            Route("/", show),
            Route("/decide", decide, methods=["POST"]),
            Route("/settle", show_settlement),
            Route("/settle", settle, methods=["POST"]),
            Route("/static/{name}", _static),
        ],
        middleware=[Middleware(Guard)],
        exception_handlers={R2MedError: refuse},
    )


def split_matches(query: str, passage: str) -> list[str]:
    """Split a passage at words shared with the query, which have odd indices in the list."""
    words = {word for word in _WORD.findall(query.lower()) if word not in _COMMON}
    parts, last = [], 0
    for match in _WORD.finditer(passage):
        if match[0].lower() in words:
            parts += [passage[last : match.start()], match[0]]
            last = match.end()
    return [*parts, passage[last:]]


def _decide(session: ReviewSession, values: Parameters) -> Response:
    """Store a label, a skip or an undo, and redirect to the next pair."""
    action = values.word("action", ("label", "skip", "undo")) or "label"
    marks = "?marks=1" if values.text("marks") else ""
    with session.guard:
        if action == "undo":
            pair = session.store.undo(session.reviewer)
            if pair is None:
                return RedirectResponse(f"/{marks}", 303)
            joint = "&" if marks else "?"
            return RedirectResponse(f"/{marks}{joint}code={session.queue.code(pair)}", 303)
        pair = _find(session.queue, values.text("code") or "")
        session.store.add(
            label_pair(
                session.queue,
                session.reviewer,
                pair,
                None if action == "skip" else _read_label(values),
                comment=values.text("comment", longest=_LONGEST_TEXT) or "",
                span=values.text("span", longest=_LONGEST_TEXT) or "",
                seconds=_read_seconds(values),
            )
        )
    return RedirectResponse(f"/{marks}", 303)


def _settle(session: ReviewSession, values: Parameters) -> Response:
    pair = _find(session.queue, values.text("code") or "")
    decision = settle_pair(
        session.queue,
        pair,
        _read_label(values),
        settled_by=session.reviewer,
        reason=values.text("reason", longest=_LONGEST_TEXT) or "",
    )
    with session.guard:
        session.store.add(decision)
    return RedirectResponse("/settle", 303)


def _review_page(session: ReviewSession, pair: Pair | None, *, has_marks: bool) -> str:
    progress = session.progress()
    if pair is None:
        return render("review_done.html", _link, title="Review", session=session, progress=progress)
    texts = session.texts(pair)
    decision = session.store.decisions(session.reviewer).get(pair)
    passage = texts.get("passage", "")
    return render(
        "review.html",
        _link,
        title=f"{progress.done + 1} of {progress.total}",
        session=session,
        progress=progress,
        code=session.queue.code(pair),
        texts=texts,
        pieces=split_matches(texts.get("query", ""), passage),
        has_marks=has_marks,
        meanings=session.queue.rubric.meanings,
        decision=decision,
    )


def _settlement_page(session: ReviewSession) -> str:
    open_pairs = session.disagreements()
    pair = open_pairs[0] if open_pairs else None
    labels = {
        reviewer: reviewer_labels[pair]
        for reviewer, reviewer_labels in session.store.labels().items()
        if pair is not None and pair in reviewer_labels
    }
    comments = {
        reviewer: session.store.decisions(reviewer)[pair].comment
        for reviewer in labels
        if pair is not None
    }
    return render(
        "review_settle.html",
        _link,
        title="Settle",
        session=session,
        count=len(open_pairs),
        code="" if pair is None else session.queue.code(pair),
        texts={} if pair is None else session.texts(pair),
        labels=labels,
        comments=comments,
        meanings=session.queue.rubric.meanings,
    )


def _find(queue: ReviewQueue, code: str) -> Pair:
    pair = queue.codes.get(code)
    if pair is None:
        raise MissingError("This pair is not in the queue.")
    return pair


def _read_label(values: Parameters) -> int:
    text = values.text("label") or ""
    if not text.isascii() or not text.isdigit():
        raise UsageError("no label was chosen.")
    return int(text)


def _read_seconds(values: Parameters) -> float | None:
    try:
        seconds = float(values.text("seconds") or "")
    except ValueError:
        return None
    return round(seconds, 1) if 0 <= seconds < 86_400 else None


def _static(request: Request) -> Response:
    name = str(request.path_params["name"])
    if name in _OWN_FILES:
        content = (files("r2med.explore") / "static" / name).read_bytes()
        return Response(content, media_type=_OWN_FILES[name])
    if name not in STATIC:
        raise MissingError("This file does not exist.")
    return Response(static_file(name), media_type=STATIC[name])


def _link(page: str, **parts: object) -> str | None:
    return f"/static/{parts['name']}" if page == "static" else None
