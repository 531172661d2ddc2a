"""Run a system on a task in memory, without storing a result."""

from __future__ import annotations

from r2med.execution.resources import Resources
from r2med.runs import Run
from r2med.runs.run import sort_lists
from r2med.systems.build import System
from r2med.systems.output import StageContext, run_member
from r2med.systems.stages import bind
from r2med.tasks.task import Task


def run_system(system: str, task: Task, resources: Resources) -> Run:
    """Return the run of a system, every list sorted in the tie order of the system."""
    stage = bind(System.from_spec(system, resources).stage, task, keep=False)
    output = stage.run(StageContext(task, run_member, warn=resources.warn))
    return sort_lists(output.run, stage.ties(task))
