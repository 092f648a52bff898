"""Layers: the modules of a package -> each break of the rules that keep it readable, by name.

`lint-imports` keeps the order of the rooms. These rules keep the rooms small:

- no import cycle between modules;
- no module but the command line and the public door imports more than 12 others;
- no folder has more than 16 entries;
- outside `prepare/passes/` nobody asks which kind a pass is.

Imports inside functions and under TYPE_CHECKING count: a reader follows them as well.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

MOST_IMPORTS = 12
MOST_ENTRIES = 16
DOORS = ("", "cli")  # modules of the package that may import any number of others: its __init__ and its commands
PASSES = "prepare.passes"
ROOMS_WITH_PASSES = ("cli", "show", "prepare")  # the others know nothing of passes; the loader has kinds of its own
Graph = Mapping[str, set[str]]


@dataclass(frozen=True)
class Module:
    """A module by its name inside the package (`show.tables`, "" for the package itself), with its syntax tree."""

    package: str
    name: str
    path: Path
    tree: ast.Module

    def is_in(self, room: str) -> bool:
        return f"{self.name}.".startswith(f"{room}.")

    def imported(self) -> Iterator[tuple[str, str, str]]:
        """Each import of the package: the module that is named, the name taken from it, and the name it has here."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for each in node.names:
                    if f"{each.name}.".startswith(f"{self.package}."):
                        yield self._inside(each.name), "", each.asname or each.name
            elif isinstance(node, ast.ImportFrom):
                source = self._source(node)
                if f"{source}.".startswith(f"{self.package}."):
                    for each in node.names:
                        yield self._inside(source), each.name, each.asname or each.name

    def _inside(self, name: str) -> str:
        return name.removeprefix(self.package).removeprefix(".")

    def _source(self, node: ast.ImportFrom) -> str:
        """The absolute name of the module that a `from ... import` names."""
        if not node.level:
            return node.module or ""
        own = [self.package, *filter(None, self.name.split("."))]
        folder = own if self.path.name == "__init__.py" else own[:-1]
        return ".".join([*folder[: len(folder) + 1 - node.level], *filter(None, [node.module])])


def read_modules(package: Path) -> dict[str, Module]:
    modules = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = Module(package.name, name, path, ast.parse(path.read_text(encoding="utf-8")))
    return modules


def import_graph(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """The modules that each module imports. `from room import name` means the module `room.name`, if there is one."""
    graph = {}
    for name, module in modules.items():
        found = set()
        for source, taken, _ in module.imported():
            inner = f"{source}.{taken}".strip(".")
            found.add(inner if taken and inner in modules else source)
        graph[name] = (found & set(modules)) - {name}
    return graph


def cycles(graph: Graph) -> Iterator[str]:
    """One cycle at a time: the last import of each is left out, to find the next."""
    left = {name: set(imports) for name, imports in graph.items()}
    while True:
        try:
            TopologicalSorter(left).prepare()
            return
        except CycleError as error:
            ring: list[str] = error.args[1][::-1]  # each imports the one after it
            yield f"import cycle: {' -> '.join(map(_shown, ring))}"
            left[ring[0]].discard(ring[1])


def crowded_modules(graph: Graph) -> Iterator[str]:
    for name, imports in sorted(graph.items(), key=lambda each: (-len(each[1]), each[0])):
        if name not in DOORS and len(imports) > MOST_IMPORTS:
            yield f"{_shown(name)} imports {len(imports)} modules, more than {MOST_IMPORTS}"


def crowded_folders(package: Path) -> Iterator[str]:
    for folder in [package, *sorted(each for each in package.rglob("*") if each.is_dir())]:
        entries = [each for each in folder.iterdir() if each.name != "__pycache__"]
        if folder.name != "__pycache__" and len(entries) > MOST_ENTRIES:
            yield f"{folder} has {len(entries)} entries, more than {MOST_ENTRIES}"


def questions_of_kind(modules: Mapping[str, Module]) -> Iterator[str]:
    """Each `x.kind == "map"` and `isinstance(x, Fold)` outside the rooms of the passes."""
    for module in modules.values():
        if module.is_in(PASSES) or not any(map(module.is_in, ROOMS_WITH_PASSES)):
            continue
        classes = {here for source, _, here in module.imported() if f"{source}.".startswith(f"{PASSES}.")}
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Compare | ast.Match | ast.Call) and (
                _compares_kind(node) or _asks_class(node, classes)
            ):
                asked = ast.unparse(node).partition("\n")[0]
                yield f"{module.path}:{node.lineno}: asks which kind a pass is: {asked}"


def _compares_kind(node: ast.AST) -> bool:
    """Whether a comparison or a `match` holds `x.kind` against a word."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        return any(map(_is_kind, sides)) and any(map(_has_word, sides))
    return isinstance(node, ast.Match) and _is_kind(node.subject)


def _asks_class(node: ast.AST, classes: set[str]) -> bool:
    is_question = isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass")
    return is_question and any(ast.unparse(name) in classes for name in ast.walk(node) if isinstance(name, ast.expr))


def _is_kind(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "kind"


def _has_word(node: ast.expr) -> bool:
    """Whether a text is in it that is more than letters of numpy, whose dtypes have a kind, too."""
    texts = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
    return any(isinstance(text, str) and not set(text) <= set("?biufcmMOSUVT") for text in texts)


def _shown(name: str) -> str:
    return name or "the package's __init__"


def broken_rules(package: Path) -> Iterator[str]:
    modules = read_modules(package)
    graph = import_graph(modules)
    yield from cycles(graph)
    yield from crowded_modules(graph)
    yield from crowded_folders(package)
    yield from questions_of_kind(modules)


def main(package: str) -> int:
    broken = list(broken_rules(Path(package)))
    print("\n".join(broken) or f"{package}: no cycle, no crowded module or folder, no question about kinds of pass")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
