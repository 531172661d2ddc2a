"""Any text for a system is a system, or one message that says why not."""

from __future__ import annotations

import random

from r2med.errors import R2MedError
from r2med.systems.build import System
from r2med.systems.registry import entries
from r2med.systems.spec import Unit
from r2med.tasks.load import load_task

TEXTS = 300
ARGUMENTS = ["", "gpt4", "y" * 5000, "a/" * 3000, "\0", "/dev/null", "os:path", "no/such/model"]
VALUES = ["", "1", "-1", "nan", "1e400", "9" * 5000, "true", "\0", "a:b", "é" * 50, "auto", "["]
DEPTHS = ["", "", "", "@1", "@0", "@10", "@" + "9" * 5000, "@x"]


def unit(chance: random.Random) -> str:
    """A registered name with an argument, options and a depth that may or may not make sense."""
    entry = chance.choice(list(entries().values()))
    key = chance.choice([*entry.fields, "tail", "nothing"])
    options = ((key, chance.choice(VALUES)),) if chance.random() < 0.5 else ()
    argument = chance.choice(ARGUMENTS) if chance.random() < 0.4 else None
    return f"{Unit(entry.name, argument, options)}{chance.choice(DEPTHS)}"


def text(chance: random.Random) -> str:
    parts = [unit(chance)]
    for _ in range(chance.randrange(3)):
        parts += [chance.choice([" | ", " + ", "(", ")"]), unit(chance)]
    return "".join(parts)


def test_a_random_text_is_a_system_or_an_error_of_ours(trials: int) -> None:
    task = load_task("demo/biology")
    chance = random.Random(0)
    refused = 0
    for _ in range(TEXTS * trials):
        try:
            System.from_spec(text(chance)).stage.identity(task)
        except R2MedError:
            refused += 1

    assert 0 < refused < TEXTS * trials
