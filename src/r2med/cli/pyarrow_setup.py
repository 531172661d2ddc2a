"""Sets up pyarrow for commands: without pandas, and with the memory allocator of the system.

Where pandas is installed, pyarrow imports it the first time it converts a Python value, only to ask
whether the value is a data frame. That takes longer than most commands. `PyarrowSetup` lets pyarrow
ask once while pandas is hidden. If other code imports pandas later, pyarrow finds it then.

pyarrow's default allocator keeps freed memory; that of the system returns it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class PyarrowSetup:
    """An import hook that sets up pyarrow at its first import."""

    def __init__(self) -> None:
        self._is_hidden = False

    def install(self) -> None:
        """Install the hook before all others, unless pyarrow or pandas is already imported."""
        if not sys.modules.keys() & {"pandas", "pyarrow"}:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of pyarrow or pandas; None leaves a module to the next finder."""
        if fullname == "pyarrow":
            return _spec_with_action(fullname, self._set_up)
        if fullname == "pandas":
            if self._is_hidden:
                raise ImportError("pandas is hidden from pyarrow")
            return _spec_with_action(fullname, _tell_pyarrow)
        return None

    def _set_up(self) -> None:
        import pyarrow as pa

        pa.set_memory_pool(pa.system_memory_pool())
        self._is_hidden = True
        try:
            pa.array([""])  # without a type, because pyarrow asks a second time to infer one
        finally:
            self._is_hidden = False


def _tell_pyarrow() -> None:
    """Let pyarrow notice pandas, by converting a table to a data frame."""
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].table({}).to_pandas()


def _spec_with_action(name: str, action: Callable[[], None]) -> ModuleSpec | None:
    """Return the ordinary spec of a module, changed to call `action` after the module is loaded."""
    spec = PathFinder.find_spec(name)
    if spec is None or spec.loader is None:
        return spec
    execute = spec.loader.exec_module

    def execute_and_act(module: ModuleType) -> None:
        execute(module)
        action()

    spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
    return spec
