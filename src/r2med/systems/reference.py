"""Command lines of the reference scripts, as systems of this project."""

from __future__ import annotations

from dataclasses import dataclass

from r2med.errors import UsageError, nearest

MODES = ("eval_retrieval", "eval_reranker", "generate_hydoc")
RERANKERS = ("bge-reranker", "monobert", "rankllama")
METHODS = ("hyde", "query2doc", "lamer", "search-o1", "search-r1")

#: What each mode cannot do without.
_NEEDED = {
    "eval_retrieval": ("retriever_name",),
    "eval_reranker": ("retriever_name", "reranker_name"),
    "generate_hydoc": ("gar_method", "gar_llm"),
}


@dataclass(frozen=True)
class ReferenceCall:
    """The options of the reference's run.py; only those that a mode needs must be there."""

    mode: str
    retriever_name: str | None = None
    reranker_name: str | None = None
    recall_k: int = 10
    gar_method: str | None = None
    gar_llm: str | None = None

    def __post_init__(self) -> None:
        """Refuse what the reference would refuse, and say what is missing."""
        _one_of("--mode", self.mode, MODES)
        for option in _NEEDED[self.mode]:
            if not getattr(self, option):
                raise UsageError(f"--mode {self.mode} needs --{option}.")
        if self.reranker_name:
            _one_of("--reranker_name", self.reranker_name, RERANKERS)
        if self.gar_method:
            _one_of("--gar_method", self.gar_method, METHODS)
        if bool(self.gar_method) != bool(self.gar_llm):
            lacking = "--gar_llm" if self.gar_method else "--gar_method"
            raise UsageError(f"{lacking} is missing: a method and a model go together.")
        if self.recall_k < 1:
            raise UsageError(f"--recall_k {self.recall_k}: expected a number from 1.")

    @property
    def system(self) -> str:
        """The text of the same system here; the reference's rerankers rank without expansion."""
        if self.mode == "eval_reranker":
            return f"{self.retriever_name} | {self.reranker_name}@{self.recall_k}"
        if self.gar_method:
            return f"{self.gar_method}:{self.gar_llm} | {self.retriever_name}"
        return str(self.retriever_name)


def _one_of(option: str, told: str, allowed: tuple[str, ...]) -> None:
    if told not in allowed:
        raise UsageError(f"{option} {told!r} is not known. {nearest(told, allowed)}")
