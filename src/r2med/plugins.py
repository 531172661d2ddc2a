"""Plugins: systems, language models, tasks, backends, metrics and exporters of other packages.

There are two sources:

- A registry file in TOML: the path in `R2MED_REGISTRY`, otherwise `r2med.toml` in the working
  folder. Its tables are `[systems.NAME]`, `[llms.NAME]` and `[tasks.NAME]`.
- Installed packages with an entry point in the group `r2med.plugins`: a function that takes a
  `Plugin` and adds to it.

A built-in name cannot be replaced, so that `bm25` means the same everywhere. A registry file in the
working folder may come from someone else, so it cannot make r2med run Python code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from r2med.errors import DataError, R2MedError, UsageError, nearest
from r2med.settings import read_toml

ENTRY_POINT_GROUP = "r2med.plugins"
REGISTRY_VARIABLE = "R2MED_REGISTRY"
REGISTRY_FILE = "r2med.toml"
_SECTIONS = ("systems", "llms", "tasks")


@dataclass(frozen=True)
class RegistryEntry:
    """One table of a registry file, with the name of the file for error messages."""

    name: str
    fields: Mapping[str, Any]
    source: str
    """The file or package with the entry."""
    folder: Path | None = None
    """The folder to which relative paths in the entry refer."""
    may_run_code: bool = True
    """Whether the entry may make r2med run Python code.

    False for `r2med.toml` in the working folder.
    """

    @property
    def where(self) -> str:
        """The file and table of the entry, for messages."""
        return f"{self.source}, [{self.name}]"


@dataclass
class Plugin:
    """The additions of a package or registry file; an entry point's function gets such an object.

    Examples:
        def register(plugin: r2med.plugins.Plugin) -> None:
            plugin.add_registry(Path(__file__).parent / "registry.toml")
            plugin.add_metric("first", first_relevant)
    """

    name: str
    systems: dict[str, RegistryEntry] = field(default_factory=dict)
    llms: dict[str, RegistryEntry] = field(default_factory=dict)
    tasks: dict[str, RegistryEntry] = field(default_factory=dict)
    backends: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, Callable[..., Any]] = field(default_factory=dict)
    exporters: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def add_registry(self, path: str | Path) -> None:
        """Add the systems, language models and tasks of a TOML file.

        Args:
            path: A file with tables `[systems.NAME]`, `[llms.NAME]` and `[tasks.NAME]`.

        Raises:
            DataError: The file cannot be read or has other tables.
        """
        self._add_tables(Path(path), may_run_code=True)

    def add_backend(self, name: str, settings: str) -> None:
        """Add a backend that systems in a registry file can use.

        Args:
            name: The value for the field `backend` of an entry.
            settings: The frozen dataclass of its settings as `module:Class`. The module has a
                function `build(settings, resources)` that returns a retriever; for a reranker,
                `build(name, settings, resources)`.
        """
        self._add(self.backends, "backend", name, settings)

    def add_metric(self, family: str, compute: Callable[..., Any]) -> None:
        """Add a metric, used as `FAMILY@CUTOFF`.

        Args:
            family: Name in lower case letters.
            compute: Takes `Gains`, the `Metric` and its cutoff (see `r2med.measure.metrics`) and
                returns one value per query.
        """
        if not family.isalpha() or not family.islower():
            raise UsageError(f"plugin {self.name}: metric {family!r} is not in lower case letters.")
        self._add(self.metrics, "metric", family, compute)

    def add_exporter(self, name: str, write: Callable[..., Any]) -> None:
        """Add a format of `r2med results export --to NAME`.

        Args:
            name: The name of the format.
            write: Takes results, an output folder and a function for warnings, and returns the
                paths it wrote.
        """
        self._add(self.exporters, "exporter", name, write)

    def _add(self, table: dict[str, Any], role: str, name: str, value: object) -> None:
        if name in table:
            raise UsageError(f"plugin {self.name}: {role} {name!r} is added twice.")
        table[name] = value

    def _add_tables(self, path: Path, *, may_run_code: bool) -> None:
        tables = {"systems": self.systems, "llms": self.llms, "tasks": self.tasks}
        for section, entries in read_toml(path).items():
            if section not in tables or not isinstance(entries, dict):
                raise DataError(
                    f"{path}: {section!r} is not a section of a registry file. "
                    f"{nearest(section, _SECTIONS)} Write tables such as [systems.my-encoder]."
                )
            for name, fields in entries.items():
                if not isinstance(fields, dict):
                    raise DataError(
                        f"{path}: {section}.{name} is {fields!r:.60}, expected a table such as "
                        f"[{section}.{name}]."
                    )
                entry = RegistryEntry(name, fields, str(path), path.parent, may_run_code)
                self._add(tables[section], section.removesuffix("s"), name, entry)


def load_plugins() -> Plugin:
    """Return the additions of the registry file and of all installed packages, as one plugin.

    Raises:
        UsageError: The file in `R2MED_REGISTRY` is missing, two sources use one name, or the plugin
            of a package fails.
    """
    configured = os.environ.get(REGISTRY_VARIABLE)
    path = Path(configured) if configured else Path(REGISTRY_FILE)
    if not path.is_file():
        if configured:
            raise UsageError(f"{REGISTRY_VARIABLE}={configured}: file not found.")
        return _merge(None, 0, False)
    return _merge(path.resolve(), path.stat().st_mtime_ns, bool(configured))


@cache
def _merge(path: Path | None, modified: int, explicit: bool) -> Plugin:
    """Return the additions of all sources as one plugin; cached until the registry file changes."""
    merged = Plugin("all")
    sources = [*_installed_plugins()]
    if path is not None:
        registry = Plugin(str(path))
        registry._add_tables(path, may_run_code=explicit)
        sources.append(registry)
    for source in sources:
        for table in ("systems", "llms", "tasks", "backends", "metrics", "exporters"):
            target = getattr(merged, table)
            for name, value in getattr(source, table).items():
                if name in target:
                    raise UsageError(
                        f"{source.name}: {table.removesuffix('s')} {name!r} is also added by "
                        "another plugin. Remove or rename one of them."
                    )
                target[name] = value
    return merged


@cache
def _installed_plugins() -> tuple[Plugin, ...]:
    from importlib.metadata import entry_points

    plugins = []
    for entry_point in entry_points(group=ENTRY_POINT_GROUP):
        plugin = Plugin(f"{entry_point.name} ({entry_point.value})")
        try:
            entry_point.load()(plugin)
        except R2MedError:
            raise
        except Exception as problem:
            raise UsageError(
                f"plugin {plugin.name} failed: {problem!r}. Update or uninstall the package that "
                "provides it."
            ) from problem
        plugins.append(plugin)
    return tuple(plugins)
