"""Other wordings of queries: from a file, or written and checked by a language model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from r2med.errors import DataError, plural
from r2med.execution.resources import Resources
from r2med.remote.chat import Chat
from r2med.remote.completions import ChatRequest, Message
from r2med.settings import read_packaged_toml
from r2med.tasks.task import SAMPLE, Task

PARAPHRASES = "evaluation/paraphrases.toml"
_HINT = 'Each line is {"id": "...", "text": "..."}; a query may have several lines.'
_YES = re.compile(r"\W*yes\b", re.IGNORECASE)


@dataclass(frozen=True)
class Rewording:
    """Another wording of the queries of a task."""

    name: str
    texts: Mapping[str, str]
    """The new text by query id; queries without an entry keep their wording."""
    rejected: int = 0
    """Texts of the language model that were not used: empty, or with another meaning."""

    def apply(self, task: Task) -> Task:
        """Return the task with the new query texts; means and leaderboards never include it.

        The corpus is the same, so cached indexes and embeddings of documents are reused.
        """
        texts = [self.texts.get(query_id, text) for query_id, text in task.queries.items()]
        queries = replace(task.queries, texts=pa.array(texts, pa.large_string()))
        return replace(task, name=f"{task.name} ({self.name})", suite=SAMPLE, queries=queries)


def read_rewordings(path: Path, task: Task) -> list[Rewording]:
    """Read other wordings from JSON lines.

    The first line of each query is part of the first wording, its second line of the second, ...

    Raises:
        DataError: A line is not valid, or names a query that the task does not have.
    """
    query_ids = set(task.queries.ids.to_pylist())
    texts: dict[str, list[str]] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise DataError(f"{path} cannot be read: {problem}.") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        location = f"{path}, line {number}"
        try:
            row = json.loads(line)
            query_id, text = row["id"], row["text"]
        except (ValueError, KeyError, TypeError):
            raise DataError(f'{location}: no "id" and "text" found.\n{_HINT}') from None
        if not isinstance(text, str) or not text.strip():
            raise DataError(f'{location}: "text" must be a text.\n{_HINT}')
        if str(query_id) not in query_ids:
            raise DataError(f"{location}: {task.name} has no query {query_id!r}.")
        texts.setdefault(str(query_id), []).append(text)
    if not texts:
        raise DataError(f"{path} holds no wordings.\n{_HINT}")
    return [
        Rewording(
            f"wording {index + 1}",
            {
                query_id: wordings[index]
                for query_id, wordings in texts.items()
                if len(wordings) > index
            },
        )
        for index in range(max(map(len, texts.values())))
    ]


def reword_queries(task: Task, llm: str, resources: Resources, *, count: int) -> list[Rewording]:
    """Let a language model reword the judged queries, and check the meaning with a second call.

    Wordings that change the meaning, or are empty, are not used: those queries keep their text.

    Args:
        task: The task.
        llm: A language model.
        resources: The budget and chat clients.
        count: Number of wordings.
    """
    prompts = read_packaged_toml(PARAPHRASES)
    chat = resources.remote.chat(llm, {})
    judged = set(task.judgements.query_ids.to_pylist())
    queries = [(query_id, text) for query_id, text in task.queries.items() if query_id in judged]
    rewordings = []
    for index in range(count):
        requests = [_ask(prompts["reword"], sample=index, query=text) for _, text in queries]
        answers = chat.complete(requests, show=resources.progress)
        texts = [answer.text.strip() for answer in answers]
        meanings = _check_meanings(chat, prompts["check"], queries, texts, resources)
        accepted = {
            query_id: text
            for (query_id, _), text, is_same in zip(queries, texts, meanings, strict=True)
            if text and is_same
        }
        rejected = len(queries) - len(accepted)
        if rejected:
            resources.warn(
                f"wording {index + 1} by {llm}: {plural(rejected, 'query')} of {len(queries)} not "
                "reworded, because the meaning changed or the answer was empty."
            )
        rewordings.append(Rewording(f"wording {index + 1}", accepted, rejected))
    return rewordings


def _check_meanings(
    chat: Chat,
    prompt: Mapping[str, str],
    queries: Sequence[tuple[str, str]],
    texts: Sequence[str],
    resources: Resources,
) -> list[bool]:
    """Return for each wording whether the model says that it means the same as the query."""
    requests = [
        _ask(prompt, query=text, reworded=reworded)
        for (_, text), reworded in zip(queries, texts, strict=True)
    ]
    answers = chat.complete(requests, show=resources.progress)
    return [_YES.match(answer.text) is not None for answer in answers]


def _ask(prompt: Mapping[str, str], *, sample: int = 0, **texts: str) -> ChatRequest:
    content = prompt["user"].strip()
    for name, text in texts.items():
        content = content.replace("{" + name + "}", text)
    return ChatRequest(
        (Message("system", prompt["system"]), Message("user", content)), sample=sample
    )
