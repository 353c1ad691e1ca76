"""Keeps the layout of the source: unique names, modules of a readable size, and the field's own words."""

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
# Beside the source, only the names of modules are checked: their texts may quote anything.
BESIDE_THE_SOURCE = ("bench", "campaign", "conformance", "scripts", "testkit", "tests")

# Stores with one interface have modules of the same names, one for each engine.
TWINS = (
    "headgate.storage.sqlite",
    "headgate.storage.postgres",
    "headgate.storage.memory",
    "headgate.storage.files",
    "headgate.knowledge.stores.sqlite",
    "headgate.knowledge.stores.postgres",
)

SMALLEST_WITH_ONE_IMPORTER = 60
LARGEST = 500

# Modules that may be small although at most one module imports them, each with its reason.
SMALL_ON_PURPOSE: dict[str, str] = {}


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Metaphors that the code used before it took the words of HTTP, MCP and databases (see CONTRIBUTING.md).
PRIVATE_WORDS = words("""
    bookkeeping circle circles courier door doors errand errands gallery keeper keepers mainline mortal
    porter recollection reminder reminders scene scenes shelf shelves sights surroundings tally visitor
    visitors wish wishes
""")
# Ordinary English in a sentence, private language as the name of a class or a module.
PRIVATE_NAMES = PRIVATE_WORDS | words("""
    anatomy audience care cork corner desk dialogue house lane looking promises pulse reach receipt saying
    sight showing standing telling ticket till undoing visit wanted wording
""")
# Good as one word of a name (RequestLine), private language as the whole of it.
PRIVATE_ALONE = words("""
    claim flow gate held inbox line lines link room seen stamps turn
""")


class Module:
    """One module, read once."""

    def __init__(self, path: Path, root: Path) -> None:
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        parts = path.relative_to(root).with_suffix("").parts
        self.is_package = parts[-1] == "__init__"
        self.name = ".".join(parts[:-1] if self.is_package else parts)

    @property
    def package(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def lines(self) -> int:
        return self.text.count("\n")


@cache
def source() -> dict[str, Module]:
    modules = (Module(path, SOURCE) for path in sorted(SOURCE.rglob("*.py")))
    return {module.name: module for module in modules}


def test_the_source_is_found() -> None:
    assert len(source()) > 100


def test_each_class_name_is_defined_once() -> None:
    defined = defaultdict(list)
    for module in source().values():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                defined[node.name].append(module.name)
    assert {name: modules for name, modules in defined.items() if len(modules) > 1} == {}


def test_each_module_name_is_used_once_in_a_package_tree() -> None:
    used = defaultdict(list)
    for module in source().values():
        if module.is_package or module.package in TWINS:
            continue
        top = ".".join(module.name.split(".")[:2])
        used[top, module.name.rpartition(".")[2]].append(module.name)
    assert [modules for modules in used.values() if len(modules) > 1] == []


def test_a_small_module_has_more_than_one_importer() -> None:
    importers = imports_of_modules()
    small = {
        name
        for name, module in source().items()
        if module.lines < SMALLEST_WITH_ONE_IMPORTER and not exempt(module) and len(importers[name]) <= 1
    }
    assert small == set(), "merge a small module into the one that imports it"


def test_no_module_is_too_large() -> None:
    large = {name for name, module in source().items() if module.lines > LARGEST}
    assert large == set(), "split what has two subjects"


def exempt(module: Module) -> bool:
    return (
        module.is_package or module.name.rpartition(".")[2] == "__main__" or module.name in SMALL_ON_PURPOSE
    )


def imports_of_modules() -> dict[str, set[str]]:
    """The importers of each module."""
    importers: dict[str, set[str]] = defaultdict(set)
    for module in source().values():
        for imported in imported_by(module):
            importers[imported].add(module.name)
    return importers


def imported_by(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in source() else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_the_source_speaks_the_words_of_the_field() -> None:
    found = {}
    for module in source().values():
        used = set(private_words(module))
        if used:
            found[module.name] = used
    assert found == {}


@pytest.mark.parametrize("top", BESIDE_THE_SOURCE)
def test_modules_beside_the_source_are_named_by_the_words_of_the_field(top: str) -> None:
    named = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / top).rglob("*.py")
        if "node_modules" not in path.parts and set(private_words_of_name(path.stem))
    }
    assert named == set()


@pytest.mark.parametrize("top", ["bench", "campaign", "conformance", "scripts", "testkit"])
def test_what_is_shared_with_the_tests_is_in_the_testkit(top: str) -> None:
    forbidden = {"tests"} if top != "testkit" else {"bench", "campaign", "conformance", "scripts", "tests"}
    found = {
        (module.name, imported)
        for module in (Module(path, ROOT) for path in sorted((ROOT / top).rglob("*.py")))
        for imported in imported_by(module)
        if imported.split(".")[0] in forbidden
    }
    assert found == set()


def private_words(module: Module) -> Iterator[str]:
    yield from private_words_of_name(module.name.rpartition(".")[2])
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef):
            yield from private_words_of_name(node.name)
        for name in identifiers(node):
            yield from PRIVATE_WORDS & set(split_name(name))
        for text in texts(node):
            yield from PRIVATE_WORDS & set(split_text(text))
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT:
            yield from PRIVATE_WORDS & set(split_text(token.string))


def private_words_of_name(name: str) -> Iterator[str]:
    """The private words in the name of a class or a module."""
    parts = split_name(name.removeprefix("test_"))
    yield from PRIVATE_NAMES & set(parts)
    if len(parts) == 1:
        yield from PRIVATE_ALONE & set(parts)


def identifiers(node: ast.AST) -> Iterator[str]:
    for field in ("name", "id", "attr", "arg", "asname"):
        value = getattr(node, field, None)
        if isinstance(value, str):
            yield value


def texts(node: ast.AST) -> Iterator[str]:
    """Docstrings, messages of the log, names of tasks and threads; other strings are data or public texts."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield ast.get_docstring(node) or ""
    elif isinstance(node, ast.Call):
        if is_log_call(node.func):
            yield from (text for argument in node.args for text in constants(argument))
        yield from (
            text for keyword in node.keywords if keyword.arg == "name" for text in constants(keyword.value)
        )


def is_log_call(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and function.attr in {"debug", "info", "warning", "error", "exception", "critical", "log"}
        and isinstance(function.value, ast.Name | ast.Attribute)
    )


def constants(expression: ast.expr) -> Iterator[str]:
    for node in ast.walk(expression):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def split_name(name: str) -> list[str]:
    """The words of a name with underscores or in camel case."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def split_text(text: str) -> list[str]:
    return [word for run in re.findall(r"[A-Za-z_]+", text) for word in split_name(run)]
