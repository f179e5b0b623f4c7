"""Chains from files: PDB, mmCIF, ProteinNet, or a folder of these."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..extras import needed_for
from .backbone import Chain
from .proteinnet import is_proteinnet, read_proteinnet

if TYPE_CHECKING:
    import gemmi

FORMATS = {".pdb": "Pdb", ".ent": "Pdb", ".cif": "Mmcif", ".mmcif": "Mmcif"}
KINDS = f"a structure ({', '.join(FORMATS)}, each also .gz) or a ProteinNet file, which starts with [ID]"


def load_chains(path: str | os.PathLike) -> list[Chain]:
    """The chains of a file of any known kind, or of every file of a folder."""
    path = Path(path)
    if path.is_dir():
        return read_folder(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} asked for, not found. Give a folder, {KINDS}.")
    if _format(path):
        return read_structure(path)
    if is_proteinnet(path):
        return list(read_proteinnet(path))
    raise ValueError(f"{path}: asked for {KINDS}; this is neither.")


class NoProtein(ValueError):
    """A sound structure without amino acids: nucleic acids, ligands, water."""


def read_folder(path: str | os.PathLike) -> list[Chain]:
    """The chains of every file in a folder, in order of file names; hidden files and inner folders are passed over.

    Structures without protein are passed over, too, and a warning counts them. A file that holds no structure is an error.
    """
    inside = sorted(p for p in Path(path).iterdir() if p.is_file() and not p.name.startswith("."))
    if not inside:
        raise ValueError(f"{path}: asked for a folder with files, each {KINDS}; there is none.")
    chains: list[Chain] = []
    without: list[str] = []
    for file in inside:
        try:
            chains += load_chains(file)
        except NoProtein:
            without.append(file.name)
    told = f"{len(without)} of {len(inside)} files hold no protein: {', '.join(without[:5])}{', ...' if len(without) > 5 else ''}"
    if not chains:
        raise NoProtein(f"{path}: asked for a folder in which at least one structure has amino acids, but {told}.")
    if without:
        warnings.warn(f"{path}: {told}. They were passed over.", stacklevel=2)
    return chains


def read_structure(path: str | os.PathLike) -> list[Chain]:
    """The protein chains of the first model of a PDB or mmCIF file, plain or .gz.

    The chains of one file are one group, named after it: copies of one protein often come together.
    """
    with needed_for("Reading structures"):
        import gemmi

    path = Path(path)
    kind = _format(path)
    if kind is None:
        raise ValueError(f"{path}: read_structure asked for a name ending in {', '.join(FORMATS)}, or these with .gz.")
    try:
        structure = gemmi.read_structure(os.fspath(path), format=getattr(gemmi.CoorFormat, kind))
    except FileNotFoundError:
        raise
    except (RuntimeError, ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path}: asked for a structure in {kind.upper()} format, got: {error}.") from error
    chains = chains_of(structure, _stem(path))
    if not chains:
        atoms = any(len(residue) for model in structure for chain in model for residue in chain)
        wrong = f"{path}: asked for a structure in {kind.upper()} format with amino acids, found"
        raise NoProtein(f"{wrong} none.") if atoms else ValueError(f"{wrong} no atoms at all.")
    return chains


def chains_of(structure: gemmi.Structure, name: str) -> list[Chain]:
    """The protein chains of the first model."""
    structure.setup_entities()
    found = [(chain.name, residues_of(chain)) for chain in (structure[0] if len(structure) else [])]
    return [Chain(f"{name}_{letter}", atoms_of(residues), name) for letter, residues in found if residues]


def residues_of(chain: gemmi.Chain) -> list[gemmi.Residue]:
    """Amino acids of the chain's polymer: no water, no ligands, no caps; the first of residues that share one place."""
    with needed_for("Reading structures"):
        import gemmi

    polymer = chain.get_polymer()
    if polymer.check_polymer_type() not in (gemmi.PolymerType.PeptideL, gemmi.PolymerType.PeptideD):
        return []
    amino = [r for r in polymer if r.get_ca() or gemmi.find_tabulated_residue(r.name).is_amino_acid()]
    return [r for k, r in enumerate(amino) if not (k and _alternative(amino[k - 1], r))]


def _alternative(r: gemmi.Residue, s: gemmi.Residue) -> bool:
    """Whether s is a point mutation recorded next to r: one place in the sequence, and labelled as an alternative."""
    return r.seqid == s.seqid and all(atom.has_altloc() for atom in s)


def atoms_of(residues: list[gemmi.Residue]) -> Tensor:
    """(L, 3, 3), float64, NaN for a missing atom."""
    return torch.tensor([_backbone(r) for r in residues], dtype=torch.float64).reshape(-1, 3, 3)


def _backbone(residue: gemmi.Residue) -> list[list[float]]:
    """N, CA, C of one conformation: the one with the highest occupancy, the first among equals."""
    atoms = [a for a in residue if a.name in ("N", "CA", "C")]
    weight = {}
    for a in atoms:
        weight[a.altloc] = weight.get(a.altloc, 0.0) + a.occ
    best = max((label for label in weight if label != "\0"), key=weight.__getitem__, default="\0")
    at = {a.name: a.pos.tolist() for a in atoms if a.altloc in ("\0", best)}
    return [at.get(name, [torch.nan] * 3) for name in ("N", "CA", "C")]


def _format(path: Path) -> str | None:
    return FORMATS.get(Path(_plain(path)).suffix.lower())


def _plain(path: Path) -> str:
    return path.name[:-3] if path.name.lower().endswith(".gz") else path.name


def _stem(path: Path) -> str:
    return Path(_plain(path)).stem
