"""Bytes received, told to whoever draws the bar: the hub client only knows tqdm classes."""

from __future__ import annotations

from typing import Any, Protocol


class Progress(Protocol):
    """Receives the course of a download; several files follow each other."""

    def begin(self, label: str, total: int) -> None:
        """A file of `total` bytes is next."""

    def advance(self, count: int) -> None:
        """So many bytes more have arrived; negative when a part must be fetched again."""


def bar_class(progress: Progress | None, label: str, total: int) -> Any:
    """A class with the part of tqdm's interface that the client calls, bound to `progress`."""

    class Bar:
        def __init__(self, *_: Any, initial: int = 0, **__: Any) -> None:
            self.total = total
            if progress is not None:
                progress.begin(label, total)
                progress.advance(initial)

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            self.close()

        def update(self, n: float | None = 1) -> None:
            if progress is not None:
                progress.advance(int(n or 0))

        def update_transfer(self, n: float | None = 1) -> None:
            """Network bytes of a reconstructed file: the bar shows what is on disk instead."""

        def set_postfix_str(self, *_: Any, **__: Any) -> None: ...

        def set_transfer_postfix_str(self, *_: Any, **__: Any) -> None: ...

        def close(self) -> None: ...

    return Bar
