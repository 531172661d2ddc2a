"""Model families, and the warning when a judge shares one with a system that it judges."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from r2med.errors import DataError
from r2med.paths import user_path
from r2med.remote.registry import find_llm
from r2med.results.record import Result
from r2med.settings import read_packaged_toml, read_toml
from r2med.systems.registry import entries

_ENVIRONMENT = "R2MED_FAMILIES"
_MODEL_FIELDS = ("checkpoint", "query_checkpoint", "document_checkpoint", "base", "model")


def families_of(names: Iterable[str]) -> set[str]:
    """Return the families of models, by any of their names; unknown models have none."""
    searched = [name.lower() for name in names if name]
    return {
        family
        for family, patterns in family_patterns().items()
        if any(re.search(pattern, name) for pattern in patterns for name in searched)
    }


def family_patterns() -> Mapping[str, Sequence[str]]:
    """Return the package's patterns by family, extended by the file that R2MED_FAMILIES names."""
    patterns = dict(read_packaged_toml("judge/families.toml")["families"])
    chosen = os.environ.get(_ENVIRONMENT)
    if chosen:
        path = user_path(chosen, _ENVIRONMENT)
        added = read_toml(path).get("families")
        if not isinstance(added, dict) or not all(map(_is_texts, added.values())):
            raise DataError(f"{path}: expected [families] with lists of patterns.")
        _check_patterns(added, path)
        for family, added_patterns in added.items():
            patterns[family] = [*patterns.get(family, []), *added_patterns]
    return patterns


def model_names(result: Result) -> set[str]:
    """Return the names of all models in a stored result: encoders, rerankers, language models."""
    names: set[str] = set()
    for stage in result.record.stages:
        names.add(stage.unit)
        entry = entries().get(stage.name)
        if entry is not None:
            names |= {str(entry.fields.get(field, "")) for field in _MODEL_FIELDS}
        if stage.llm:
            names |= {stage.llm, find_llm(stage.llm, allow_unknown=True).model}
    return names - {""}


def family_warnings(judges: Iterable[str], systems: Mapping[str, Result]) -> list[str]:
    """Return a warning for every system that shares a family with a judge model.

    Args:
        judges: Names of the judge models, as registered or as their servers call them.
        systems: Results by system; run files have no record and cannot be checked.
    """
    judging = families_of(judges)
    warnings = []
    for system, result in systems.items():
        shared = sorted(judging & families_of(model_names(result)))
        if shared:
            warnings.append(
                f"{system} and the judge are of one model family ({', '.join(shared)}): judges "
                "favour systems of the same family. Use a judge of another family as well."
            )
    return warnings


def _check_patterns(families: Mapping[str, Sequence[str]], path: Path) -> None:
    for family, patterns in families.items():
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as problem:
                raise DataError(
                    f"{path}, {family}: {pattern!r} is not a regular expression ({problem})."
                ) from None


def _is_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)
