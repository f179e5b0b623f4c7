"""On a base install (torch alone) everything that needs more says what, and how to get it, in a clone and from an index."""

import ast
import json
from pathlib import Path

import pytest
from base_install import SOURCE, base_install, run
from test_docs import ROOT, snippets

import inbounds as ib
from inbounds.cli import COMMANDS, main
from inbounds.extras import EXTRAS, advice, needed_for

HOW = "In a clone of inbounds, write: pip install -c constraints.txt '.[{0}]'. From a package index that has inbounds: "
HOW += "pip install 'inbounds[{0}]'."

# what a user calls, and the package it needs
CALLS = {
    "pl.load_sides()": "safetensors",
    "pl.save_sides(pl.SideNet(), 'out.safetensors')": "safetensors",
    "pl.Roadmap(world, 50).lengths": "scipy",
    "pl.Roadmap(world, 50).plan(world.sample(50), world.sample(50))": "scipy",
    "pl.roadmap(world, 50)(world).plan(world.sample(50), world.sample(50))": "scipy",
    "pl.drawing.draw(world, pl.OneStep(world).plan(world.sample(2), world.sample(2)), 'out.png')": "matplotlib",
    "ib.fit(ib.SO(3).sample(200))": "scipy",
    "learned.Hull.fit(torch.randn(50, 2, dtype=torch.float64))": "scipy",
    "learned.Local.fit(ib.Sphere(3).sample(200, dtype=torch.float64), (3,), 2, 20, 2)": "scipy",
    "learned.Heat(ib.Sphere(3).sample(50, dtype=torch.float64), 0.1, (3,)).save('out.safetensors')": "safetensors",
    "ib.load('set.safetensors')": "safetensors",
    "data.protein()": "numpy",
    "data.load_npz('x.npz', 'sphere', ib.Sphere(3))": "numpy",
    "data.load_chains('x.pdb')": "gemmi",
    "files.publish_tensors(Path('x'), {})": "safetensors",
    "files.read_tensors(Path('x.npz'))": "safetensors",
    "train.Ray(train.Store('store'), None)": "ray",
    "problems.quadratic(rows=10)": "numpy",
    "problems.dispatch(rows=10).solve(problems.dispatch(rows=10).x[0])": "clarabel",
    "problems.power_flow('case9')": "pypower",
}
# what works with torch alone
FREE = ["data.sphere({'large': 50}).fingerprint()", "data.disk({'large': 50})", "ib.check_set(ib.Ball(2))", "parser()"]

# all that is tried, in one process of its own
TRY = """
import contextlib, io, json, os, sys, torch, inbounds as ib
from pathlib import Path
from inbounds import data, learned, planning as pl, problems, train
from inbounds.cli import main, parser
from inbounds.planning import drawing
from inbounds.train import files
calls, commands, snippets = map(json.loads, sys.argv[1:])
world, said, answers, errors, scope = pl.load_world("rect"), {}, [], [], {}
for name in ("x.npz", "x.pdb"):
    Path(name).touch()
for args in commands:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as error:
        code = main(args)
    answers.append([code, out.getvalue(), error.getvalue()])
for call in calls:
    torch.manual_seed(0)
    try:
        eval(call)
        said[call] = None
    except BaseException as error:
        said[call] = [type(error).__name__, str(error), getattr(error, "name", None)]
for snippet in snippets:
    try:
        exec(snippet, scope)
        errors.append("")
    except Exception as error:
        errors.append(f"{type(error).__name__}: {error}")
print()
print(json.dumps([said, answers, errors]))
"""
FIRST = snippets((ROOT / "README.md").read_text())
START = (ROOT / "docs" / "start.md").read_text()


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    """What the calls, the commands and the snippets said."""
    base, folder = base_install(tmp_path_factory.mktemp("base")), tmp_path_factory.mktemp("tried")
    commands = [[name, *args] for name, args in ARGUMENTS.items()]
    asked = [[*CALLS, *FREE], commands, [*FIRST, *snippets(START)]]
    done = run(base, TRY, *map(json.dumps, asked), cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_every_call_that_needs_more_than_torch_names_it_and_how_to_install_it(tried):
    said = tried[0]
    for call, package in CALLS.items():
        kind, text, name = said[call]
        assert kind == "ModuleNotFoundError" and name.split(".")[0] == package, (call, said[call])
        assert f"needs {package}, which is not installed. {HOW.format(EXTRAS[package])}" in text, (call, text)
    assert [said[call] for call in FREE] == [None] * len(FREE)


ARGUMENTS = {
    "table": ["--datasets", "sphere"],
    "report": ["runs/quick"],
    "gallery": [],
    "learn": ["x.npy", "-o", "set.safetensors"],
    "project": ["set.safetensors", "x.npy", "-o", "y.npy"],
    "plan": ["--world", "rect"],
    "figure": ["planning"],
    "compare": ["--problems", "qp"],
}
BRINGS = {"compare": "problems"}  # the extra of a command, where it is not lab


def test_every_command_says_what_to_install(tried):
    assert ARGUMENTS.keys() == COMMANDS.keys() - {"runs"}  # it lists a store, which only an install with lab can have written
    for name, (code, out, error) in zip(ARGUMENTS, tried[1], strict=True):
        assert code == 2 and out == "", (name, code, out, error)
        assert f"inbounds {name}" in error and HOW.format(BRINGS.get(name, "lab")) in error and error.count("\n") == 1, error


def test_two_of_the_first_snippets_need_the_lab_extra(tried):
    """The README's example and the other first steps run with torch alone; those two say how to get it."""
    steps, errors = snippets(START), tried[2]
    assert errors[: len(FIRST)] == [""] * len(FIRST)
    failed = {n: error for n, error in enumerate(errors[len(FIRST) :]) if error}
    assert {next(w for w in ("pl.Around", "ib.fit") if w in steps[n]) for n in failed} == {"pl.Around", "ib.fit"}
    assert len(failed) == 2 and all(HOW.format("lab") in error for error in failed.values())
    for n, snippet in enumerate(steps):
        words = START.split(snippet)[0].rsplit("\n\n", 1)[1]  # the paragraph that introduces it
        assert ("[lab]" in words) == (n in failed), words


def imports(tree):
    """Every import of an extra's package: line, package, is it at the top of the file, is needed_for around it."""

    def walk(node, top, covered):
        for child in ast.iter_child_nodes(node):
            names = [a.name for a in child.names] if isinstance(child, ast.Import) else []
            names += [child.module or ""] if isinstance(child, ast.ImportFrom) and not child.level else []
            yield from ((child.lineno, n, top, covered) for n in names if n.split(".")[0] in EXTRAS)
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            inside = covered or (isinstance(child, ast.With) and "needed_for(" in ast.unparse(child.items[0]))
            yield from walk(child, top and not isinstance(child, ast.FunctionDef), inside)

    return list(walk(tree, True, False))


# commands, loaded by `inbounds NAME`, which words a missing package itself
COMMAND_FILES = {"learned/command.py", "paper/figures/heat_kernel.py", "paper/figures/projection.py"}
COMMAND_FILES |= {f"gallery/{n}.py" for n in ("exhibits", "gallery", "pictures", "shapes")}


def test_every_import_beyond_torch_is_covered():
    root, at_top = SOURCE / "inbounds", set()
    for file in sorted(root.rglob("*.py")):
        for line, package, top, covered in imports(ast.parse(file.read_text())):
            assert top or covered, f"{file}:{line} imports {package} without needed_for"
            at_top |= {file.relative_to(root).as_posix()} if top else set()
    assert at_top == COMMAND_FILES


def test_packages_that_no_extra_brings_are_not_explained_away():
    assert advice("This", ModuleNotFoundError("No module named 'inbound'", name="inbound")) is None
    with pytest.raises(ModuleNotFoundError, match="No module named 'not_there'"), needed_for("This"):
        import not_there  # noqa: F401  # pyright: ignore[reportMissingImports]


def test_the_extras_of_the_message_are_those_of_the_package():
    import tomllib

    project = Path(__file__).parents[1] / "pyproject.toml"
    brought = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
    packages = {name: {d.split(">")[0] for d in brought[name]} for name in ("lab", "ray", "problems")}
    for package, extra in EXTRAS.items():
        assert package in packages[extra] or package in ("PIL", "mpl_toolkits"), package  # matplotlib brings these


def test_options_are_never_abbreviated(capsys):
    for args in (
        ["table", "--seed", "3"],
        ["plan", "--ani"],
        ["gallery", "--see", "1"],
        ["learn", "x", "-o", "y", "--sup", "sampled"],
    ):
        with pytest.raises(SystemExit, match="2"):
            main(args)
        assert "unrecognized arguments" in capsys.readouterr().err, args
    for file in [*SOURCE.rglob("*.py"), *(Path(ib.__file__).parents[2] / "benchmarks").glob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("ArgumentParser", ".add_parser")):
                assert "allow_abbrev=False" in ast.unparse(node), f"{file}:{node.lineno}"
