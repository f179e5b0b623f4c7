"""Protein backbones: a residue is a frame in SE(3), neighbours along the chain are pairs T_i -> T_{i+1}."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files

import torch
from torch import Tensor

from ..extras import needed_for
from ..sets import SE
from .pairs import SIZES, Pairs, generator, ranges

N_CA, CA_C, C_N = (1.2, 1.8), (1.2, 1.9), (1.0, 1.7)  # accepted bond lengths in Angstrom; textbook 1.46, 1.52, 1.33
COLLINEAR = 0.1  # smallest accepted sine of the angle N-CA-C; textbook 0.93
BONDED = {
    "distance": f"C(i) and N(i+1) are {C_N[0]} to {C_N[1]} Angstrom apart",
    "mask": "residues i and i+1 are adjacent in the record, whatever the distance",
}


@dataclass(frozen=True, eq=False)
class Chain:
    """Atoms (L, 3, 3): residues x (N, CA, C) x xyz in Angstrom, NaN for a missing atom.

    Chains of one `group` (a protein; the id itself when left out) never part when data are split.
    """

    id: str
    atoms: Tensor
    group: str = ""

    def __post_init__(self):
        check_atoms(self.atoms, f"Chain {self.id}")
        if self.atoms.dim() != 3:
            raise ValueError(f"Chain {self.id} asked for atoms of shape (residues, 3, 3), got {tuple(self.atoms.shape)}.")
        object.__setattr__(self, "group", self.group or self.id)


def check_atoms(atoms: Tensor, who: str) -> None:
    """Raise a ValueError that names `who` unless the atoms are numbers of shape (*, 3, 3)."""
    if atoms.dim() < 2 or atoms.shape[-2:] != (3, 3) or not atoms.dtype.is_floating_point:
        raise ValueError(
            f"{who} asked for floating point atoms of shape (*, 3, 3), residues x (N, CA, C) x xyz, "
            f"got {atoms.dtype} {tuple(atoms.shape)}. Write atoms.double().reshape(-1, 3, 3)."
        )


def frames(atoms: Tensor) -> Tensor:
    """T = [[e1 e2 e3, CA], [0, 1]], float64: e1 along C - CA, e2 along the rest of N - CA, e3 = e1 x e2.

    e3 needs no flip: det [e1 e2 e1 x e2] = 1. NaN where an atom is missing or the three are collinear (see `broken`).
    """
    check_atoms(atoms, "frames")
    n, ca, c = atoms.double().unbind(-2)
    e1 = _unit(c - ca)
    v2 = n - ca
    e2 = _unit(v2 - (e1 * v2).sum(-1, keepdim=True) * e1)
    R = torch.stack([e1, e2, torch.linalg.cross(e1, e2)], -1)
    return SE(3).join(R, ca[..., None])  # (*, 4, 4)


def _unit(v: Tensor) -> Tensor:
    return v / torch.linalg.vector_norm(v, dim=-1, keepdim=True)


def broken(chain: Chain) -> dict[str, Tensor]:
    """Residues without a trustworthy frame: a mask (L,) per reason, each residue under its first reason only."""
    n, ca, c = chain.atoms.double().unbind(-2)
    v1, v2 = c - ca, n - ca
    missing = ~torch.isfinite(chain.atoms).all(-1).all(-1)
    length = ~(_within(v2.norm(dim=-1), N_CA) & _within(v1.norm(dim=-1), CA_C))
    sine = torch.linalg.cross(v1, v2).norm(dim=-1) / (v1.norm(dim=-1) * v2.norm(dim=-1))
    flat = ~(sine > COLLINEAR)
    return {"missing atom": missing, "bond length": length & ~missing, "collinear": flat & ~length & ~missing}


def _within(length: Tensor, limits: tuple[float, float]) -> Tensor:
    return (length >= limits[0]) & (length <= limits[1])


def neighbours(chain: Chain, bonded: str = "distance") -> Tensor:
    """Every i such that residues i and i+1 have frames and are bonded; what that means is in `BONDED`."""
    if bonded not in BONDED:
        raise ValueError(f"neighbours asked for bonded to be one of {', '.join(map(repr, BONDED))}, got {bonded!r}.")
    good = ~torch.stack(list(broken(chain).values())).any(0)
    both = good[:-1] & good[1:]
    if bonded == "distance":
        both &= _within((chain.atoms[1:, 0] - chain.atoms[:-1, 2]).double().norm(dim=-1), C_N)
    return both.nonzero()[:, 0]


@dataclass
class Pool:
    """All residues of all chains (R, 3, 3), and for each protein the rows i whose neighbour is i+1."""

    atoms: Tensor
    rows: dict[str, Tensor]
    chains: int
    dropped: Counter

    @classmethod
    def of(cls, chains: Iterable[Chain], bonded: str) -> Pool:
        """Residues of all chains in one table, without those that are broken; `bonded` says how neighbours are known."""
        if isinstance(chains, (str, os.PathLike)):
            raise TypeError(f"protein asked for chains, got a path. Write chains=load_chains({os.fspath(chains)!r}).")
        atoms, rows, dropped, start = [torch.empty(0, 3, 3)], {}, Counter(), 0
        for chain in chains:
            atoms.append(chain.atoms)
            rows.setdefault(chain.group, []).append(start + neighbours(chain, bonded))
            dropped.update({reason: int(mask.sum()) for reason, mask in broken(chain).items()})
            start += len(chain.atoms)
        return cls(torch.cat(atoms), {group: torch.cat(parts) for group, parts in rows.items()}, len(atoms) - 1, dropped)

    @property
    def pairs(self) -> int:
        """The number of bonded pairs."""
        return sum(map(len, self.rows.values()))


def deal(pool: Pool, sizes: dict[str, int], seed: int) -> dict[str, list[str]]:
    """Whole proteins, shuffled, each to the split that has the smallest part of the pairs it was asked for."""
    groups = [group for group, rows in sorted(pool.rows.items()) if len(rows)]
    hands, have = {split: [] for split in sizes}, dict.fromkeys(sizes, 0)
    for k in torch.randperm(len(groups), generator=generator(seed, stream=1)).tolist():
        split = min(sizes, key=lambda s: have[s] / sizes[s])
        hands[split].append(groups[k])
        have[split] += len(pool.rows[groups[k]])
    if any(have[split] < n for split, n in sizes.items()):
        raise ValueError(
            f"protein asked for {_listed(sizes)}: {sum(sizes.values())} pairs; there are {pool.pairs} in {len(groups)} proteins, "
            f"and proteins dealt whole give {_listed(have)}. Ask for smaller sizes, or pass more chains."
        )
    return hands


def _listed(counts: dict) -> str:
    return ", ".join(f"{name} {n}" for name, n in counts.items())


def draw(pool: Pool, hands: dict[str, list[str]], sizes: dict[str, int], seed: int) -> Tensor:
    """Rows of the first residue of each pair, split after split, without repetition."""
    chosen = []
    for k, (split, n) in enumerate(sizes.items()):
        rows = torch.cat([pool.rows[group] for group in hands[split]])
        chosen.append(rows[torch.randperm(len(rows), generator=generator(seed, stream=2 + k))[:n]])
    return torch.cat(chosen)


def protein(
    sizes: dict[str, int] | None = None, seed: int = 0, chains: Iterable[Chain] | None = None, bonded: str = "distance"
) -> Pairs:
    """x = T_i, y = T_{i+1} for neighbours along protein chains; no protein is in two splits.

    Translations are divided by one number, the standard deviation of the coordinates of x in train, and not centred.
    """
    sizes = {**SIZES, **(sizes or {})}
    splits = ranges(sizes)
    pool = Pool.of(shipped_chains() if chains is None else chains, bonded)
    hands = deal(pool, sizes, seed)
    first = draw(pool, hands, sizes, seed)
    raw = frames(pool.atoms[torch.stack([first, first + 1])])  # (2, N, 4, 4)
    T = SE(3).project(raw)
    std = T[0, splits["train"], :3, 3].std()
    scale = torch.ones(4, 4, dtype=torch.float64)
    scale[:3, 3] = std
    x, y = (T / scale).float()  # rounding leaves a violation below 3e-7, which a projection in float32 would not improve
    notes = {
        "source": "backbones.npz of this package" if chains is None else "chains given by the caller",
        "chains": f"{pool.chains} chains, {len(pool.atoms)} residues, {pool.pairs} pairs",
        "dropped residues": _listed(pool.dropped),
        "bonded": f"{bonded}: {BONDED[bonded]}",
        "proteins": _listed({split: len(groups) for split, groups in hands.items()}),
        "units": f"translations in units of {std:.4f} Angstrom, not centred",
        "projection": f"SE(3).project moved the frames, in float64, by {_moved(T - raw)}",
        "rounding": f"float32 moved the rotations by {_moved((torch.stack([x, y]) - T)[..., :3, :3])}",
    }
    return Pairs("protein", SE(3), x, y, splits, scale.float(), notes)


def _moved(d: Tensor) -> str:
    far = d.flatten(-2).norm(dim=-1)
    return f"{far.mean():.1e} in the mean, {far.max():.1e} at most"


def shipped_chains() -> list[Chain]:
    """The chains of backbones.npz, exact to the 0.001 Angstrom of PDB files; backbones.md says where they come from."""
    table = _shipped()
    atoms = torch.from_numpy(table["steps"].cumsum(0, dtype="int64") / 1000)  # (atoms, 3): stored as steps from atom to atom
    atoms[torch.from_numpy(table["missing"])] = torch.nan
    rows = shipped_provenance()
    parts = atoms.reshape(-1, 3, 3).split([row["residues"] for row in rows])
    return [Chain(row["id"], part.clone(), row["group"]) for row, part in zip(rows, parts, strict=True)]


def shipped_provenance() -> list[dict]:
    """For each shipped chain: id, group, PDB entry and chain where known, file, wheel, licence, residues."""
    return json.loads(_shipped()["provenance"].tobytes())


def _shipped() -> dict:
    with needed_for("The protein chains of this package"):
        import numpy

    with (files("inbounds.data") / "backbones.npz").open("rb") as f, numpy.load(f, allow_pickle=False) as table:
        return dict(table)
