"""The rooms of the package: who may import whom, what the library stands on; nothing is written twice or left unexplained."""

import ast
import importlib
import inspect
import pkgutil
import re
import sys
from dataclasses import fields, is_dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest

import inbounds
from inbounds.planning import Planner
from inbounds.train.executors import Executor
from inbounds.train.work import Job

ROOT = Path(inbounds.__file__).parent
PAGE = ROOT.parents[1] / "docs" / "architecture.md"

# from the ground up; a room may import those of the floors below, and "inbounds" is the package's own __init__
FLOORS = (
    ("extras", "kernels", "theory"),
    ("fingerprint", "files", "drawing", "picture"),
    ("core",),
    ("solvers",),
    ("sets",),
    ("steps", "testing"),
    ("nets", "optim", "distributions", "ray_scaling"),
    ("learned", "ode", "schemes"),
    ("generative",),
    ("inbounds",),
    ("records", "data"),
    ("train", "planning", "problems"),
    ("paper",),
    ("gallery", "report", "compare"),
    ("cli",),
)
FLOOR = {room: k for k, floor in enumerate(FLOORS) for room in floor}
LIBRARY = {"kernels", "theory", "fingerprint", "picture", "core", "solvers", "sets", "steps", "testing", "nets", "optim"}
LIBRARY |= {"distributions", "ray_scaling", "ode", "generative", "schemes", "inbounds"}


def room_of(file: Path) -> str:
    first = file.relative_to(ROOT).parts[0].removesuffix(".py")
    return "inbounds" if first == "__init__" else first


@cache
def trees() -> dict[Path, ast.Module]:
    return {file: ast.parse(file.read_text()) for file in sorted(ROOT.rglob("*.py"))}


def imports(file: Path, tree: ast.Module) -> list[str]:
    """Every module that a file imports at run time, by its full name; imports inside of functions, too."""
    package = ["inbounds", *file.relative_to(ROOT).parts[:-1]]
    found = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            found.extend(a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            found.extend(f"{module}.{a.name}" if module == "inbounds" else module for a in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return found


def target(module: str) -> str:
    """The room that an import of inbounds.* leads to; a name of the package itself, such as __version__, is of its __init__."""
    first = module.split(".")[1] if "." in module else "inbounds"
    return first if first in FLOOR else "inbounds"


@cache
def graph() -> dict[str, dict[str, str]]:
    """room -> the rooms that it imports, each with a file that does."""
    found: dict[str, dict[str, str]] = {}
    for file, tree in trees().items():
        for module in imports(file, tree):
            if module.split(".")[0] == "inbounds" and target(module) != room_of(file):
                found.setdefault(room_of(file), {})[target(module)] = str(file.relative_to(ROOT))
    return found


def test_every_room_has_a_floor():
    assert {room_of(file) for file in trees()} <= FLOOR.keys()


def test_imports_point_downwards():
    upwards = [f"{by}: {a} -> {b}" for a, others in graph().items() for b, by in others.items() if FLOOR[b] >= FLOOR[a]]
    assert not upwards
    assert len(graph()) > 15 and graph()["sets"].keys() == {"core", "kernels", "solvers"}  # the graph is not empty


def test_the_rule_sees_an_import_that_points_upwards(tmp_path):
    wrong = "def late():\n    from ..planning import World\nfrom .. import theory\nimport inbounds.paper.rows\n"
    found = imports(ROOT / "kernels" / "wrong.py", ast.parse(wrong))
    assert sorted(map(target, found)) == ["paper", "planning", "theory"]
    assert all(FLOOR[target(module)] >= FLOOR["kernels"] for module in found)


def test_the_library_imports_torch_alone():
    """Not one package beyond torch and the standard library, at the top of files or inside of functions."""
    others = {
        f"{file.relative_to(ROOT)}: {module}"
        for file, tree in trees().items()
        if room_of(file) in LIBRARY
        for module in imports(file, tree)
        if module.split(".")[0] not in (*sys.stdlib_module_names, "torch", "inbounds")
    }
    assert not others


# --- nothing twice ---------------------------------------------------------------------------------------------
def bodies(tree: ast.Module) -> list[tuple[str, str]]:
    """Name and dump of every function whose body has more than four lines, without its docstring."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            if body and (body[-1].end_lineno or 0) - body[0].lineno >= 4:
                found.append((node.name, ast.dump(ast.Module(body, []))))
    return found


def test_no_function_is_written_twice():
    seen: dict[str, list[str]] = {}
    for file, tree in trees().items():
        for name, body in bodies(tree):
            seen.setdefault(body, []).append(f"{file.relative_to(ROOT)}: {name}")
    assert len(seen) > 300 and not [places for places in seen.values() if len(places) > 1]


def test_a_function_that_is_written_twice_is_found():
    body = "\n    a = x\n    b = a\n    c = b\n    d = c\n    return d\n"
    (f, one), (g, two) = bodies(ast.parse(f"def f(x):{body}\ndef g(x):\n    '''words'''{body}"))
    assert (f, g) == ("f", "g") and one == two


# --- nothing unexplained ---------------------------------------------------------------------------------------
def plain(attribute):
    """The function behind a property, a class method or a static method."""
    for name in ("fget", "func", "__func__"):
        attribute = getattr(attribute, name, None) or attribute
    return attribute


def ancestry(cls: type, name: str) -> list:
    """A method and those it overrides; those of an interface that the class has all of count, too."""
    parts = {i: [n for n, v in vars(i).items() if inspect.isfunction(v) and n[0] != "_"] for i in (Job, Executor, Planner)}
    met = [i for i, names in parts.items() if all(hasattr(cls, n) for n in names)]
    return [plain(vars(c)[name]) for c in (*cls.__mro__, *met) if name in vars(c)]


def public_functions():
    """(module.name, the function and those it overrides) of all public functions and methods."""
    for found in pkgutil.walk_packages(inbounds.__path__, "inbounds."):
        module = importlib.import_module(found.name)
        for name, item in vars(module).items():
            if name.startswith("_") or getattr(item, "__module__", None) != module.__name__:
                continue
            if inspect.isfunction(inspect.unwrap(item)):
                yield f"{module.__name__}.{name}", [inspect.unwrap(item)]
            elif inspect.isclass(item):
                data = {f.name for f in fields(item)} if is_dataclass(item) else set()
                for method, value in vars(item).items():
                    own = isinstance(value, property | cached_property | classmethod | staticmethod) or inspect.isfunction(value)
                    if own and not method.startswith("_") and method not in data and plain(value).__name__ != "<lambda>":
                        yield f"{module.__name__}.{name}.{method}", ancestry(item, method)


def test_every_public_name_is_explained():
    silent = [name for name, line in public_functions() if not any(f.__doc__ for f in line)]
    for found in pkgutil.walk_packages(inbounds.__path__, "inbounds."):
        module = importlib.import_module(found.name)
        silent += [] if module.__doc__ else [found.name]
        classes = [c for c in vars(module).values() if inspect.isclass(c) and c.__module__ == found.name]
        made_up = {c for c in classes if is_dataclass(c) and (c.__doc__ or "").startswith(f"{c.__name__}(")}
        silent += [c.__qualname__ for c in classes if c.__name__[0] != "_" and (c in made_up or not vars(c).get("__doc__"))]
    assert not silent


def test_every_public_function_says_what_it_returns():
    names = [name for name, line in public_functions() if not any("return" in f.__annotations__ for f in line)]
    assert not names


# --- names of the table ------------------------------------------------------------------------------------------
def test_names_become_objects_in_one_function():
    """In paper/, tables of rows, datasets, presets and jobs are looked into by `named` alone."""
    pattern = re.compile(r"\b(ROWS|DATASETS|PRESETS|JOBS)(\[|\.get\()")
    found = [str(f) for f in trees() if room_of(f) == "paper" and pattern.search(f.read_text())]
    assert not found and pattern.search('ROWS["regular"]')


def test_rows_are_not_known_by_their_names():
    """No row name is written in paper/ outside of the table of rows and the published numbers."""
    from inbounds.paper.rows import ROWS

    for file, tree in trees().items():
        if room_of(file) != "paper" or file.name in ("rows.py", "published.py"):
            continue
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in docs]
        assert not [text for text in texts if isinstance(text, str) and text in ROWS], file


# --- docs/architecture.md ----------------------------------------------------------------------------------------
HOP = re.compile(r"^\d+\. `(?P<file>[\w/]+\.py)`, `(?P<name>[\w.]+)`: \S", re.M)


def hops() -> dict[str, list[tuple[str, str]]]:
    """Heading -> (file, function) of its numbered lines."""
    parts = re.split(r"^## ", PAGE.read_text(), flags=re.M)[1:]
    return {part.splitlines()[0]: HOP.findall(part) for part in parts if re.search(r"^1\. ", part, re.M)}


def test_four_ways_lead_through_the_rooms():
    assert len(hops()) == 4 and all(len(way) >= 5 for way in hops().values())
    lines = re.findall(r"^\d+\. .*$", PAGE.read_text(), re.M)
    assert len(lines) == sum(map(len, hops().values()))  # every numbered line is a hop


@pytest.mark.parametrize("way", hops())
def test_every_hop_is_there(way):
    for file, name in hops()[way]:
        assert (ROOT / file).is_file(), file
        item = importlib.import_module("inbounds." + file.removesuffix(".py").replace("/", "."))
        for part in name.split("."):
            assert hasattr(item, part), f"{file} has no {name}"
            item = getattr(item, part)


def test_the_picture_has_every_room():
    picture = PAGE.read_text().split("```")[1]
    assert set(re.findall(r"[a-z_]+", picture)) >= set(FLOOR) - {"inbounds"}
