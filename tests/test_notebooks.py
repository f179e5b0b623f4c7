"""The notebooks run from top to bottom in a kernel of their own."""

import json
import os
from pathlib import Path

import pytest

import inbounds

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_there_are_two():
    assert [n.stem for n in NOTEBOOKS] == ["learned_sets", "tour"]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda f: f.stem)
def test_every_cell_compiles_and_no_output_is_kept(file):
    cells = [cell for cell in json.loads(file.read_text())["cells"] if cell["cell_type"] == "code"]
    assert cells and not any(cell["outputs"] for cell in cells), "clear the outputs before you commit"
    for cell in cells:
        compile("".join(cell["source"]), file.name, "exec")


@pytest.mark.filterwarnings("ignore")  # of the kernel's own packages
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda f: f.stem)
def test_a_notebook_runs(file, tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    source = str(Path(inbounds.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]))
    book = nbformat.read(file, as_version=4)
    assert not any(cell.get("outputs") for cell in book.cells), "clear the outputs before you commit"
    NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    pictures = [o for cell in book.cells for o in cell.get("outputs", []) if "<svg" in o.get("data", {}).get("text/html", "")]
    assert len(pictures) == {"tour": 3, "learned_sets": 1}[file.stem]  # sets and paths that show themselves
