"""Names and texts of the source are plain: see docs/glossary.md for the vocabulary."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import r2med

SOURCE = Path(r2med.__file__).parent
PACKAGES = sorted(folder.name for folder in SOURCE.iterdir() if (folder / "__init__.py").is_file())

#: Names that do not say what a variable holds. Better: query_id, row, result, path, index.
VAGUE_NAMES = {
    "each", "place", "places", "own", "kind", "what", "whom", "thing", "things", "told", "found",
    "given", "shown", "named", "kept", "known", "made", "wanted", "asked", "taken", "said",
    "here", "whole", "rest", "theirs", "ours", "every", "one", "other", "others", "among",
    "piece", "pieces",
}  # fmt: skip
#: Fields that are part of a stored or printed format.
ALLOWED_FIELDS = {"kind", "kept", "found", "ours"}
#: Packages with an argument for the option --kind of leaderboards and plots.
KIND_PACKAGES = {"cli", "results", "report", "explore"}
#: Functions are verbs or plain nouns; a bare participle does not say what is done or returned.
PARTICIPLE = re.compile(r"_?[a-z]+(?:ed|told|shown|made|kept)$")
ALLOWED_FUNCTIONS = {"embed", "seed", "need", "exceed", "feed", "proceed"}
#: Phrases that a reader has to read twice, and a plain alternative.
PHRASES = {
    r"\b(?:hears?|heard)\b": "is called with",
    r"\b(?:is|are) no [a-z]+ (?:of|but|that)\b": "is not a",
    r"\b(?:whoever|whom|nobody)\b": "name the actor",
    r"\bso many\b": "N",
    r"\bstands? (?:beside|before|behind|for|there)\b": "is, means",
    r"\bof (?:its|their|one's) own\b": "separate",
    r"\b(?:set beside|held against)\b": "compared with",
    r"\btold apart\b|\bsets? apart\b": "distinguished",
    r"\bin place of\b": "instead of",
    r"\bput to\b": "sent to",
    r"\bmend(?:s|ed)?\b": "fix",
    r"\bfor want of\b": "because of missing",
    r"\b(?:bears?|bearing)\b": "has",
    r"\b(?:upon|hitherto|whilst|thereof)\b": "a plain word",
    r"\bunder way\b": "in progress",
    r"\bwithout a word\b|\ba word about\b": "silently, a message about",
}


def parse_package(package: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield the path and the syntax tree of every module of a package."""
    for path in sorted((SOURCE / package).rglob("*.py")):
        yield str(path.relative_to(SOURCE)), ast.parse(path.read_text(encoding="utf-8"))


def find_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield every assigned variable and every argument, with its line."""
    fields = {
        id(statement.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            is_allowed_field = id(node) in fields and node.id in ALLOWED_FIELDS
            if not is_allowed_field:
                yield node.id, node.lineno


def is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return bool(names & {"property", "cached_property", "setter"})


@pytest.mark.parametrize("package", PACKAGES)
def test_variables_say_what_they_hold(package: str) -> None:
    vague = [
        f"{path}:{line} {name}"
        for path, tree in parse_package(package)
        for name, line in find_names(tree)
        if name in VAGUE_NAMES and not (package in KIND_PACKAGES and name == "kind")
    ]

    assert vague == []


@pytest.mark.parametrize("package", PACKAGES)
def test_functions_are_verbs_or_nouns(package: str) -> None:
    participles = [
        f"{path}:{node.lineno} {node.name}"
        for path, tree in parse_package(package)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and PARTICIPLE.fullmatch(node.name)
        and node.name.strip("_") not in ALLOWED_FUNCTIONS
        and not is_property(node)
        and not (node.returns is not None and ast.unparse(node.returns) == "bool")
    ]

    assert participles == []


@pytest.mark.parametrize("package", PACKAGES)
def test_texts_use_ordinary_words(package: str) -> None:
    odd = [
        f"{path}:{node.lineno} {match[0]!r}: {better}"
        for path, tree in parse_package(package)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
        for phrase, better in PHRASES.items()
        if (match := re.search(phrase, node.value, re.IGNORECASE))
    ]

    assert odd == []


def test_no_two_public_classes_share_a_name() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for path, tree in parse_package(package):
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    modules[node.name].append(path)

    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}
