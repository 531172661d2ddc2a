from __future__ import annotations

from r2med.tasks.verify import LOCK, sealed


def test_the_lock_file_tells_the_demo_data_as_it_lies() -> None:
    assert LOCK.read_text(encoding="utf-8") == sealed(), "run `python -m r2med.tasks.verify`"
