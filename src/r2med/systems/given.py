"""Rankings made elsewhere as parts of a system; their identity is the content of their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from r2med.retrieve.given.candidates import CandidateSettings, Subset, find_subset
from r2med.retrieve.given.files import RunFile, RunSettings, locate_run
from r2med.retrieve.given.findings import Findings
from r2med.retrieve.given.fitting import fitted
from r2med.runs import Run
from r2med.settings import identity_of
from r2med.systems.registry import Entry
from r2med.systems.spec import Unit
from r2med.systems.stage import Stage, Work
from r2med.tasks.task import Task


@dataclass(frozen=True)
class GivenRun:
    """`run:PATH`: a run file or a stored result."""

    name: str
    file: RunFile
    cut: int | None

    @cached_property
    def _read(self) -> tuple[Run, Findings]:
        return self.file.read()

    @cached_property
    def _fingerprint(self) -> str:
        return self.file.fingerprint()

    @property
    def depth(self) -> int:
        """As told, or as deep as its longest list."""
        longest = int(self._read[0].lengths.max(initial=0))
        return min(longest, self.cut) if self.cut else longest

    def identity(self, task: Task) -> Mapping[str, object]:
        """The file's content."""
        return {"run": self._fingerprint, "depth": self.cut}

    def ties(self, task: Task) -> str:
        """Those of the stored result it belongs to; trec_eval's for a file."""
        return self.file.ties

    def run(self, work: Work) -> Run:
        """The lists of the task's queries; what does not fit the task is dropped and told."""
        with work.ledger.stage("read", self.name):
            read, findings = self._read
            run, findings = fitted(read, work.task, findings)
        _tell(self.name, findings, work)
        return run.truncated(self.cut) if self.cut else run


@dataclass(frozen=True)
class GivenCandidates:
    """`candidates:NAME`: a candidate subset that lies beside the task's data."""

    name: str
    settings: CandidateSettings
    depth: int
    tie_order: str

    def identity(self, task: Task) -> Mapping[str, object]:
        """The content of the subset's files on this task."""
        return {
            "candidates": self._on(task).fingerprint(),
            "settings": identity_of(self.settings),
            "depth": self.depth,
        }

    def ties(self, task: Task) -> str:
        """Lists are scored in their own order: they were published without scores."""
        return self.tie_order

    def run(self, work: Work) -> Run:
        """The published lists."""
        with work.ledger.stage("read", self.name):
            read = self._on(work.task).read(safeguard=self.settings.safeguard)
            run, findings = fitted(read, work.task, Findings())
        _tell(self.name, findings, work)
        return run.truncated(self.depth)

    def safeguards(self, task: Task) -> Mapping[str, str]:
        """The positives that were put below the lists, by query; none unless asked for."""
        return self._on(task).safeguards() if self.settings.safeguard else {}

    def _on(self, task: Task) -> Subset:
        return find_subset(task, self.settings.name)


def given(unit: Unit, entry: Entry, settings: object) -> Stage:
    """The stage of a unit such as `run:PATH` or `candidates:bm25`."""
    if isinstance(settings, RunSettings):
        return GivenRun(str(unit), locate_run(settings.path), unit.depth)
    assert isinstance(settings, CandidateSettings)
    depth = unit.depth or entry.depth
    return GivenCandidates(str(unit), settings, depth, entry.ties)


def _tell(name: str, findings: Findings, work: Work) -> None:
    if work.conditions.strict:
        findings.check_strict(name)
    for notice in findings.notices():
        work.conditions.tell(f"{work.task.name}: {name}: {notice}")
    work.ledger.tell(name, findings.facts())
