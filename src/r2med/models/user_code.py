"""Hashes of the code and the weights of a custom model, which are part of its identity.

The `identity` that a class declares says nothing about a later edit of its code. A hash of the code
is therefore added: of the class and its bases, and of all functions, classes and constants outside
of installed packages that they use, directly or through others.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import os
import sys
import sysconfig
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

#: The folder of this package, and those of the standard library and installed packages.
PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"
INSTALLED = tuple(
    f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
#: Values whose representation is the same in every process.
_PLAIN_TYPES = (str, bytes, int, float, bool, type(None))
#: How many attributes and containers are followed from a model to a torch module in it.
_DEEPEST = 4


def code_identity(model: object) -> dict[str, str]:
    """Return hashes of the source and weights of a custom model; a missing one is left out."""
    hashes = {"source": _hash_source(model), "weights": _hash_weights(model)}
    return {name: value for name, value in hashes.items() if value}


def _hash_source(model: object) -> str | None:
    """Return a sha256 of the code that a model uses; None if packages contain all of it."""
    is_definition = isinstance(model, type) or inspect.isfunction(model)
    used = _UsedSource()
    used.add_definition(model if is_definition else type(model))
    if not used.texts:
        return None
    return hashlib.sha256("\n".join(sorted(used.texts)).encode()).hexdigest()


class _UsedSource:
    """Collects the source of definitions, and of everything outside packages that they use."""

    def __init__(self) -> None:
        self.texts: set[str] = set()
        self._seen: set[object] = set()

    def add_definition(self, definition: Any) -> None:
        """Add the source of a class or function, and of everything that its code uses."""
        definition = inspect.unwrap(definition)
        if id(definition) in self._seen or not _is_user_code(definition):
            return
        self._seen.add(id(definition))
        functions = list(_functions_of(definition))
        self.texts.add(f"{definition.__qualname__}: {_source_of(definition, functions)}")
        for base in getattr(definition, "__mro__", ()):
            self.add_definition(base)
        for function in functions:
            names = set(_names_in(function.__code__))
            self._add_names(names, function.__globals__)
            for cell_name, cell in zip(
                function.__code__.co_freevars, function.__closure__ or (), strict=True
            ):
                self._add_value(cell_name, cell.cell_contents)

    def _add_names(
        self,
        names: Collection[str],
        namespace: Mapping[str, object],
        modules: tuple[ModuleType, ...] = (),
    ) -> None:
        """Add the values of these names in a module, and in user modules that it refers to."""
        for name in sorted(namespace.keys() & set(names)):
            value = namespace[name]
            if not isinstance(value, ModuleType):
                if not self._add_value(name, value):
                    self._add_assignments(name, namespace)
            elif _is_user_code(value) and value not in modules:
                self._add_names(names, vars(value), (*modules, value))

    def _add_value(self, name: str, value: object) -> bool:
        """Add a class or function, or the type of another value; return True for a definition."""
        definition = inspect.unwrap(value) if callable(value) else value
        if isinstance(definition, type | FunctionType):
            self.add_definition(definition)
            return True
        self.add_definition(type(value))
        return False

    def _add_assignments(self, name: str, namespace: Mapping[str, object]) -> None:
        """Add the statements that assign a name in a module, and everything that they use."""
        module_name = str(namespace.get("__name__"))
        if (module_name, name) in self._seen:
            return
        self._seen.add((module_name, name))
        tree = _parse_module(module_name)
        if tree is None:
            if isinstance(value := namespace[name], _PLAIN_TYPES):
                self.texts.add(f"{name} = {value!r}")
            return
        for statement in _assignments(tree, name):
            self.texts.add(ast.unparse(statement))
            names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
            self._add_names(names, namespace)
        for imported_module, imported_name in _imports(tree, name):
            package = str(namespace.get("__package__") or "")
            module = sys.modules.get(importlib.util.resolve_name(imported_module, package))
            if module is not None and _is_user_code(module) and hasattr(module, imported_name):
                self._add_assignments(imported_name, vars(module))


def _is_user_code(definition: Any) -> bool:
    """Whether a module, class or function is not part of an installed package."""
    try:
        file = inspect.getfile(definition)
    except (OSError, TypeError):
        return getattr(definition, "__module__", None) == "__main__"  # a cell of a notebook
    return not file.startswith((PACKAGE, *INSTALLED, "<frozen "))


def _functions_of(definition: Any) -> Iterator[FunctionType]:
    """Yield a function itself, or the functions that a class defines."""
    if isinstance(definition, FunctionType):
        yield definition
        return
    for member in vars(definition).values():
        candidates: tuple[object, ...] = (member,)
        if isinstance(member, staticmethod | classmethod):
            candidates = (member.__func__,)
        elif isinstance(member, property):
            candidates = (member.fget, member.fset)
        elif isinstance(member, cached_property):
            candidates = (member.func,)
        for candidate in candidates:
            function = inspect.unwrap(candidate) if callable(candidate) else candidate
            if isinstance(function, FunctionType):
                yield function


def _source_of(definition: object, functions: Collection[FunctionType]) -> str:
    """Return the source; for a class of a notebook, only the source of its functions."""
    try:
        return inspect.getsource(definition)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return "\n".join(_source_of_function(function) for function in functions)


def _source_of_function(function: FunctionType) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return f"{function.__name__} {list(_describe_code(function.__code__))}"


def _describe_code(code: CodeType) -> Iterator[str]:
    """Yield the instructions, names and plain constants of code and its nested functions."""
    constants = [value for value in code.co_consts if isinstance(value, _PLAIN_TYPES)]
    yield f"{code.co_code.hex()} {code.co_names} {constants}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _describe_code(constant)


def _names_in(code: CodeType) -> Iterator[str]:
    """Yield the names of globals and attributes that code and its nested functions use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _parse_module(name: str) -> ast.Module | None:
    """Return the syntax tree of a module, or None if its source is not in a file."""
    try:
        return _parse(inspect.getsource(sys.modules[name]))
    except (KeyError, OSError, TypeError):
        return None


@lru_cache(maxsize=32)
def _parse(source: str) -> ast.Module:
    return ast.parse(source)


def _assignments(tree: ast.Module, name: str) -> Iterator[ast.stmt]:
    """Yield the statements outside of functions and classes that assign a name."""
    for node in _walk_top_level(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets = [node.target]
        assigned = {
            part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)
        }
        if name in assigned:
            yield node


def _imports(tree: ast.Module, name: str) -> Iterator[tuple[str, str]]:
    """Yield each module from which a name is imported, with the name that it has there."""
    for node in _walk_top_level(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    yield f"{'.' * node.level}{node.module or ''}", alias.name


def _walk_top_level(tree: ast.Module) -> Iterator[ast.stmt]:
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for statement in tree.body:
        if not isinstance(statement, definitions):
            yield from (node for node in ast.walk(statement) if isinstance(node, ast.stmt))


def _hash_weights(model: object) -> str | None:
    """Return a sha256 of the weights of a torch module, or of all modules inside an object."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    digest, count = hashlib.sha256(), 0
    for name, module in _find_modules(model, torch.nn.Module):
        for key, tensor in sorted(module.state_dict().items()):
            if isinstance(tensor, torch.Tensor):
                digest.update(f"{name}.{key} {tensor.dtype} {tuple(tensor.shape)};".encode())
                content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
                digest.update(content.numpy().data)
                count += 1
    return digest.hexdigest() if count else None


def _find_modules(
    value: object, module_type: type, path: str = "", depth: int = 0
) -> Iterator[tuple[str, Any]]:
    """Yield the torch modules in the attributes, lists and dicts of an object, with their paths."""
    if isinstance(value, module_type):
        yield path, value
        return
    if depth >= _DEEPEST or isinstance(value, type | ModuleType | FunctionType):
        return
    if isinstance(value, Mapping):
        parts = {str(key): part for key, part in value.items()}
    elif isinstance(value, list | tuple):
        parts = {str(index): part for index, part in enumerate(value)}
    else:
        parts = dict(getattr(value, "__dict__", {}))
    for name, part in sorted(parts.items()):
        yield from _find_modules(part, module_type, f"{path}.{name}", depth + 1)
