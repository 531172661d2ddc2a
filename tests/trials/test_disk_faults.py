"""A disk that is full, read-only or closed: one message that names the place, nothing lost."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from r2med.paths import home_folder
from tests.cli.running import Outcome, ended, no_permissions, start
from tests.trials.counting import counted
from tests.trials.works import WORKS, Work, chosen, outcomes, undisturbed

FAULTS = 3
Fault = Callable[[Work, random.Random], Outcome]


def too_large(work: Work, chance: random.Random) -> Outcome:
    """Files may not grow beyond a size, as when a quota is used up."""
    return ended(start(*work.words, largest_file=int(10 ** chance.uniform(1, 5))))


def read_only(work: Work, chance: random.Random) -> Outcome:
    """A folder of results, of outputs or of the home folder cannot be written."""
    with closed(picked(chance, Path.is_dir), 0o500):
        return ended(start(*work.words, bound=True))


def unreadable(work: Work, chance: random.Random) -> Outcome:
    """A file or folder of ours cannot be read."""
    with closed(picked(chance, lambda path: True), 0o000):
        return ended(start(*work.words, bound=True))


def misplaced(work: Work, chance: random.Random) -> Outcome:
    """A file stands where a folder should be."""
    names = ("results", "made", "nano", "exclusions.jsonl")
    name = chance.choice([name for name in names if Path(name).exists()])
    aside = Path("aside")
    Path(name).rename(aside)
    try:
        Path(name).write_text("in the way") if aside.is_dir() else Path(name).mkdir()
        return ended(start(*work.words))
    finally:
        shutil.rmtree(name) if Path(name).is_dir() else Path(name).unlink()
        aside.rename(name)


def full(work: Work, chance: random.Random) -> Outcome:
    """A small disk is full: the home folder or the working folder lies on it."""
    disk = Path("disk")
    disk.mkdir(exist_ok=True)
    size = int(10 ** chance.uniform(4, 5.5))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        return too_large(work, chance)
    try:
        environment = {**os.environ, "R2MED_HOME": str(disk.resolve())}
        return ended(start(*work.words, env=environment))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def picked(chance: random.Random, wanted: Callable[[Path], bool]) -> Path:
    """Something in the working folder or the home folder."""
    paths = [path for root in (Path(), home_folder()) for path in sorted(root.rglob("*"))]
    return chance.choice([path for path in paths if wanted(path)])


@contextmanager
def closed(path: Path, mode: int) -> Iterator[None]:
    """Give a path other permissions while the block runs."""
    before = path.stat().st_mode
    path.chmod(mode)
    try:
        yield
    finally:
        path.chmod(before)


KINDS: list[Fault] = [too_large, full, misplaced]
if no_permissions() is not None:
    KINDS += [read_only, unreadable]


def test_no_fault_of_the_disk_is_a_traceback_or_changes_a_number(
    trials: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(22)
    with undisturbed(monkeypatch, trials) as expected:
        for place in range(FAULTS * trials):
            kind, name = KINDS[place % len(KINDS)], chosen(expected, chance)
            done = kind(WORKS[name], chance)

            where = (kind.__name__, name, done.code, done.err)
            assert "Traceback" not in done.err, where
            assert done.code in (0, 1, 2), where
            errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
            assert len(errors) == (done.code != 0), where
            assert all("/" in line or "." in line for line in errors), where
            counted(f"disk, {kind.__name__.replace('_', ' ')}")
            if chance.random() < 0.3:
                shutil.rmtree(home_folder(), ignore_errors=True)

        assert outcomes(expected) == expected
