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


def numbers(tree: ast.Module) -> list[tuple[list[str], ast.stmt]]:
    """The constants of a module that are numbers or tuples of numbers, by their names."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            names = [ast.unparse(t) for t in (target.elts if isinstance(target, ast.Tuple) else [target])]
            parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            plain = all(isinstance(p, ast.Constant) and isinstance(p.value, int | float) for p in parts)
            if plain and all(name.isupper() for name in names):
                found.append((names, node))
    return found


def unexplained(text: str) -> list[str]:
    """Those without a comment beside or above them, and without a word about them in a docstring of their file."""
    lines, tree = text.splitlines(), ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docs = " ".join(ast.get_docstring(n) or "" for n in ast.walk(tree) if isinstance(n, documented))
    silent = []
    for names, node in numbers(tree):
        beside = "#" in "".join(lines[node.lineno - 1 : node.end_lineno])
        above = node.lineno > 1 and lines[node.lineno - 2].startswith("#")
        if not (beside or above or all(re.search(rf"\b{name}\b", docs) for name in names)):
            silent += names
    return silent


def test_every_number_that_steers_says_where_it_comes_from():
    """A derivation, a source, a sweep by name, or the plain word that it was set by reasoning."""
    silent = {str(f.relative_to(ROOT)): unexplained(f.read_text()) for f in trees()}
    assert sum(len(numbers(tree)) for tree in trees().values()) > 150
    assert not {file: names for file, names in silent.items() if names}


def test_a_number_without_a_word_is_found():
    assert unexplained("A = 3\nB = 4  # of them\n# as in the paper\nC = 0.5\nD, E = 1, 2\n") == ["A", "D", "E"]
    assert unexplained('"""A is what was asked for."""\nA = 3\n') == []


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
def test_the_picture_shows_the_floors():
    """From the roof down, a line for each floor; what its rooms hold is said from column 60 on."""
    lines = PAGE.read_text().split("```")[1].strip("\n").splitlines()
    shown = [set(re.findall(r"[a-z_]+", line[:59])) for line in lines]
    assert [rooms for rooms in shown if rooms] == [set(floor) for floor in reversed(FLOORS)]


# --- docs/devices.md -----------------------------------------------------------------------------------------------
# functions that look at values wherever these are, and the words of the page that say so
WAITING = {
    "_validate|_constant|_require|__init__|_check|got|joined|functions": "constructors of sets",
    "_try_out|_jumps": "`Implicit` tries its functions out",
    "require_finite": "at their entry",
    "_disjoint": "learnable obstacles",
    "_project|_complaint|nearest_on_planes": "a solver projects on",
    "sample_free|hit_and_run": "`M.sample`",
    "reach|closest_pair": "`M.reach`",
    "_keep": "`FAA(net, step, base=point)`",
    "shown|sized|__repr__": "printing",
    "choose|compacted|adaptive|require_arrival|_allowed|_require_order": "`ProjectedODE` with an adaptive method",
}
ON_CPU = {"_longest"}  # whose callers look at the device
HOT = ("kernels", "sets", "core", "steps", "nets", "ode", "ray_scaling")


def looks(node: ast.AST) -> bool:
    """Whether this is a place where Python reads a tensor's values."""
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", None)
        made = (
            getattr(node.func, "id", None) in ("bool", "float", "int")
            and node.args
            and not isinstance(node.args[0], ast.Constant)
        )
        return name in ("item", "tolist", "nonzero") or bool(made)
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return any(getattr(getattr(n, "func", None), "attr", None) in ("any", "all") for n in ast.walk(node.test))
    return False


def waiting(tree: ast.Module) -> list[str]:
    """The functions that look at values, and not on the CPU only."""
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and any(looks(m) for m in ast.walk(n))]
    return [f.name for f in functions if not re.search(r"\.is_cpu|device\.type == 'cpu'", ast.unparse(f))]


def test_every_place_where_a_gpu_would_wait_is_listed():
    page = (ROOT.parents[1] / "docs" / "devices.md").read_text()
    assert all(words in page for words in WAITING.values())
    known = {name for names in WAITING for name in names.split("|")}
    found = {name for file, tree in trees().items() if room_of(file) in HOT for name in waiting(tree)}
    assert not found - known - ON_CPU, "Look on the CPU only, as `all_rows` does, or list the place in docs/devices.md."
    assert not known - found


def test_a_place_where_a_gpu_would_wait_is_found():
    assert waiting(ast.parse("def f(x):\n    if x.any(): return 1\n")) == ["f"]
    assert waiting(ast.parse("def f(x):\n    return x.sum().item()\n")) == ["f"]
    assert waiting(ast.parse("def f(x):\n    return x.is_cpu and bool(x.all())\n")) == []
