"""Draws which rooms of the package import which: `python scripts/import_graph.py`.

A room is a folder of src/unibio. The script reads the import statements of every file with `ast`, without running
anything, and prints a Mermaid drawing and a table. It tells apart what a room loads when it is imported from what it
names later: inside a function, or for types only. Rooms stand in an order in which each imports only rooms above it. If
there is no such order, the script names a circle and ends with exit code 1.

`--write` puts the drawing into docs/design.md, between its two marks. `--check` ends with exit code 1 if the page does
not have the current drawing.
"""

import argparse
import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "unibio"
PAGE = ROOT / "docs" / "design.md"
BEGIN, END = "<!-- import graph: begin -->", "<!-- import graph: end -->"
FRONT = "__init__"  # the files that lie in no room: `__init__.py` with the public names


@dataclass
class Room:
    """What the files of a room import of other rooms."""

    loads: set[str] = field(default_factory=set)  # when the room is imported
    later: set[str] = field(default_factory=set)  # in a function, or under TYPE_CHECKING, and nowhere else at once

    @property
    def imports(self) -> set[str]:
        """All rooms that it imports, now or later."""
        return self.loads | self.later


def statements(body: list[ast.stmt]) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import statement, and whether it runs when the module is imported."""
    at_once = {id(node) for node in _executed_on_import(body)}
    for node in (node for statement in body for node in ast.walk(statement)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, id(node) in at_once


def _executed_on_import(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """All nodes that are executed when the module is imported: not those in functions or under `if TYPE_CHECKING`."""
    waiting: list[ast.AST] = [*body]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def names(node: ast.Import | ast.ImportFrom, package: list[str]) -> list[str]:
    """The full names that a statement in a module of `package` imports; `from a import b` gives a.b."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = package[: len(package) - node.level + 1] if node.level else []
    base += node.module.split(".") if node.module else []
    return [".".join([*base, alias.name]) for alias in node.names]


def imports(path: Path, package: Path = PACKAGE) -> Iterator[tuple[str, bool]]:
    """The full names that a file of the package imports, each with whether that happens when the file is imported."""
    inside = [*path.relative_to(package.parent).parent.parts]
    for node, at_once in statements(ast.parse(path.read_text(encoding="utf-8")).body):
        yield from ((name, at_once) for name in names(node, inside))


def graph(package: Path = PACKAGE) -> dict[str, Room]:
    """What every room imports, and what `unibio/__init__.py` does, under the name FRONT."""
    rooms = {path.name: Room() for path in sorted(package.iterdir()) if any(path.glob("**/*.py"))} | {FRONT: Room()}
    for path in package.glob("**/*.py"):
        folder = path.relative_to(package).parts[0]
        here = folder if folder in rooms else FRONT
        for name, at_once in imports(path, package):
            top, *rest = name.split(".")
            there = rest[0] if rest and rest[0] in rooms else FRONT
            if top == package.name and there != here:
                (rooms[here].loads if at_once else rooms[here].later).add(there)
    for room in rooms.values():
        room.later -= room.loads
    return rooms


def in_order(rooms: Mapping[str, Room]) -> list[str]:
    """Each room after all that it imports; raises CycleError if there is no such order."""
    sorter = TopologicalSorter({name: sorted(room.imports) for name, room in sorted(rooms.items())})
    sorter.prepare()
    found: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        found += ready
        sorter.done(*ready)
    return found


def arrows(rooms: Mapping[str, Room]) -> list[tuple[str, str]]:
    """The arrows (importing, imported) to draw: c → a is left out if there are c → b and b → a.

    A solid arrow is left out only if solid arrows lead to the same room. Arrows to the front and from it do not count
    for this, because the front imports everything.
    """
    order = in_order(rooms)
    loaded: dict[str, set[str]] = {FRONT: set()}  # all that a room imports, also by way of others
    reached: dict[str, set[str]] = {FRONT: set()}
    for name in order:
        if name != FRONT:
            loaded[name] = rooms[name].loads.union(*(loaded[other] for other in rooms[name].loads))
            reached[name] = rooms[name].imports.union(*(reached[other] for other in rooms[name].imports))
    drawn = []
    for name in order:
        by_loading = set().union(*(loaded[other] for other in rooms[name].loads))
        by_any = set().union(*(reached[other] for other in rooms[name].imports))
        left = rooms[name].loads - by_loading | rooms[name].later - by_any
        drawn += [(name, other) for other in order if other in left]
    return drawn


def drawing(rooms: Mapping[str, Room]) -> str:
    """The Mermaid drawing and the table."""
    order = in_order(rooms)
    lines = ["```mermaid", "graph BT", f'    {FRONT}["unibio/__init__.py"]']
    for here, there in arrows(rooms):
        lines += [f"    {here} {'-->' if there in rooms[here].loads else '-.->'} {there}"]
    lines += [
        "```",
        "",
        "| room | loads when it is imported | names later: in a function, or for types |",
        "|---|---|---|",
    ]
    for name in order:
        cells = (", ".join(each for each in order if each in those) for those in (rooms[name].loads, rooms[name].later))
        lines += [f"| `{name}` | {' | '.join(cell or '–' for cell in cells)} |"]
    return "\n".join(lines)


def page_with(text: str, drawn: str) -> str:
    """The page with another drawing between its marks."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"the page needs the marks {BEGIN} and {END}, each once.")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{drawn}\n{END}{rest.split(END)[1]}"


def main(words: list[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="is the drawing in docs/design.md the current one?")
    action.add_argument("--write", action="store_true", help="put the drawing into docs/design.md")
    chosen = parser.parse_args(words)
    try:
        drawn = drawing(graph())
    except CycleError as error:
        print(f"the rooms import each other in a circle: {' ← '.join(error.args[1])}", file=sys.stderr)
        return 1
    if not (chosen.check or chosen.write):
        print(drawn)
        return 0
    text = PAGE.read_text(encoding="utf-8")
    current = page_with(text, drawn)
    if chosen.write:
        PAGE.write_text(current, encoding="utf-8")
    elif current != text:
        print(f"{PAGE} is out of date: run python scripts/import_graph.py --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
