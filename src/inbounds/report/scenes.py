"""The pictures that move: what the page needs to draw them, and a still of each as SVG."""

from __future__ import annotations

from itertools import islice, pairwise

import torch
from torch import Tensor

from ..data.backbone import Pool, deal, frames, neighbours, shipped_chains
from ..data.flocks import FLOCK_HORIZON, PHASE
from ..data.flocks import advect as flock_motion
from ..data.sphere import advect, interpolated, random_field
from ..kernels.vectors import norm
from ..paper.results import TrainedCell
from ..paper.table import FEASIBLE, SETS, TITLES
from ..planning import BoxWorld, Exact, ShortestPaths, is_connected, load_world, random_worlds
from ..sets import SO, Sphere
from . import stills
from .charts import look_of
from .figures import Figure
from .reading import Reading, seed_with_model

ARROWS, ENDS = 260, 90  # of the sphere: field vectors, test points
BETWEEN = 8  # pictures from one hidden state to the next
MOMENTS = 20  # pictures of a true motion
BODIES = 6  # rotations shown of a dataset of single rotations
LANES = ("regular", "proj-iaa", "exp-iaa", "proj-faa", "exp-faa")
LONGEST_CHAIN = 160  # residues
RANDOM_WORLDS, QUERIES = 4, 40  # worlds beside the shipped ones; queries, of which the one that bends most is shown


def numbers(t: Tensor, decimals: int = 4) -> list:
    """A tensor as nested lists of rounded numbers, short enough to be put into a page."""
    return t.double().round(decimals=decimals).tolist()


def predicted(cell: TrainedCell, x: Tensor) -> Tensor:
    """What the network of the cell's first seed with a model predicts at x."""
    return cell.predict(x, seed_with_model(cell) or 0)


# --- the sphere ----------------------------------------------------------------------------------------------
def sphere(reading: Reading) -> Figure | None:
    """The field, and for every row where test points end and where they are predicted to end."""
    cells = reading.by_dataset.get("sphere", [])
    if not cells:
        return None
    x, y = (t[:ENDS] for t in cells[0].data["test"])
    rows = [_ends(cell, x, y) for cell in cells]
    scene = {"kind": "sphere", "field": _field(x, y), "start": numbers(x), "true": numbers(y), "rows": rows}
    return Figure("sphere", stills.sphere(scene), scene)


def _ends(cell: TrainedCell, x: Tensor, y: Tensor) -> dict:
    p = predicted(cell, x)
    error = norm(p.double() - y.double()).mean()
    return {
        "title": TITLES[cell.row],
        "colour": look_of(cell.row).colour,
        "ends": numbers(p),
        "off": (Sphere(3).violation(p.double()) > FEASIBLE).tolist(),
        "error": round(float(error), 4),
    }


def _field(x: Tensor, y: Tensor) -> list:
    """Evenly spread points with their field vectors; none if the data are not of the field that this package draws."""
    field = random_field(0)
    if norm(advect(field, x.double()) - y.double()).median() > 1e-3:
        return []
    k = torch.arange(ARROWS, dtype=torch.float64) + 0.5
    z, turn = 1 - 2 * k / ARROWS, k * torch.pi * (3 - 5**0.5)
    p = torch.stack([(1 - z * z).sqrt() * turn.cos(), (1 - z * z).sqrt() * turn.sin(), z], -1)
    return numbers(torch.stack([p, Sphere(3).tangent(p, interpolated(field, p))], 1), 3)


# --- rotations -----------------------------------------------------------------------------------------------
def rotations(reading: Reading, name: str) -> Figure | None:
    """Hidden states of the rows as frames that move from layer to layer, with the targets behind them."""
    cells = reading.find(name, *LANES)
    if not cells:
        return None
    one = slice(0, 1) if cells[0].data.tokens else slice(0, BODIES)
    x, y = (t[one] for t in cells[0].data["test"])
    lanes = [_true_motion(x, y)] if name == "flock" else []
    lanes += [_lane(cell, x) for cell in cells]
    scene = {"kind": "frames", "lanes": [lane for lane in lanes if lane], "target": numbers(_axes(_rotation(y)), 3)}
    scene["title"] = SETS[name]
    return Figure(f"frames-{name}", stills.frames(scene, SETS[name]), scene)


def _rotation(h: Tensor) -> Tensor:
    """The rotations among points of SO(3) or of the flock's set: (..., 3, 3)."""
    return (PHASE.split(h)[0] if h.shape[-1] == 12 else h).double()


def _axes(R: Tensor) -> Tensor:
    """Columns of matrices, one body after the other: (bodies, 3 axes, 3)."""
    return R.reshape(-1, 3, 3).mT


def _lane(cell: TrainedCell, x: Tensor) -> dict:
    layers = cell.layers(x, seed_with_model(cell) or 0)
    states, worst = _rotation(layers.states), layers.violation.flatten(1).amax(1)
    ends, leaves = float(worst[-1]) > FEASIBLE, float(worst.max()) > FEASIBLE
    moving = [m for a, b in pairwise(states) for m in _between(a, b)] + [states[-1]]
    return {
        "title": TITLES[cell.row],
        "colour": look_of(cell.row).colour,
        "note": "ends outside of the set" if ends else "leaves the set on its way" if leaves else "",
        "frames": [numbers(_axes(m), 3) for m in moving],
    }


def _between(a: Tensor, b: Tensor) -> list[Tensor]:
    """From a to b, without b: along the geodesic where both are rotations, else in a straight line."""
    G = SO(3)
    parts = [k / BETWEEN for k in range(BETWEEN)]
    if float(torch.maximum(G.violation(a), G.violation(b)).max()) > 1e-4:
        return [a + t * (b - a) for t in parts]
    turn = G.group_log(G.compose(b, G.inverse(a)))
    return [G.compose(G.group_exp(t * turn), a) for t in parts]


def _true_motion(x: Tensor, y: Tensor) -> dict | None:
    """The flock's own motion; none if it does not lead from x to y, because the data are others."""
    if float((flock_motion(x.double(), FLOCK_HORIZON) - y).abs().max()) > 1e-3:
        return None
    moments = [flock_motion(x.double(), FLOCK_HORIZON * k / MOMENTS) for k in range(MOMENTS + 1)]
    shown = [numbers(_axes(_rotation(m)), 3) for m in moments]
    return {"title": "True motion", "colour": "true", "note": "", "frames": shown}


# --- a protein -----------------------------------------------------------------------------------------------
def backbone(reading: Reading) -> Figure | None:
    """A chain of the test proteins: every residue as predicted from the true one before it."""
    cells = reading.find("protein", *LANES, "wide-faa", "wide-iaa")
    if not cells or cells[0].data.notes.get("source", "").startswith("chains given"):
        return None
    pairs = cells[0].data
    chain, T = _test_chain({split: rows.stop - rows.start for split, rows in pairs.splits.items()})
    scale = pairs.scale.double()
    true = T[1:, :3, 3]
    middle, size = true.mean(0), norm(true - true.mean(0)).max()
    rows = []
    for cell in cells:
        T_next = predicted(cell, (T[:-1] / scale).float()).double()
        p = pairs.unscaled(T_next)[:, :3, 3]
        rows.append(
            {
                "title": TITLES[cell.row],
                "colour": look_of(cell.row).colour,
                "places": numbers((p - middle) / size),
                "error": round(float(norm(p - true).mean()), 2),
                "off": (pairs.set.violation(T_next) > FEASIBLE).tolist(),
            }
        )
    scene = {"kind": "chain", "name": chain, "true": numbers((true - middle) / size), "rows": rows}
    return Figure("protein", stills.chain(scene), scene)


def _test_chain(sizes: dict[str, int]) -> tuple[str, Tensor]:
    """The longest unbroken piece of a short chain of the test proteins: its name, frames (L, 4, 4). sizes: of the splits."""
    chains = shipped_chains()
    groups = set(deal(Pool.of(chains, "distance"), sizes, seed=0)["test"])
    short = [chain for chain in chains if chain.group in groups and len(chain.atoms) <= LONGEST_CHAIN]
    pieces = [_longest_run(neighbours(chain)) for chain in short]
    k = max(range(len(short)), key=lambda k: len(pieces[k]))
    rows = torch.cat([pieces[k], pieces[k][-1:] + 1])
    return short[k].id, frames(short[k].atoms[rows])


def _longest_run(rows: Tensor) -> Tensor:
    """The longest part of consecutive numbers."""
    if not len(rows):
        return rows
    cuts = (rows[1:] != rows[:-1] + 1).nonzero()[:, 0] + 1
    return max(rows.tensor_split(cuts), key=len)


# --- planning ------------------------------------------------------------------------------------------------
def planning() -> Figure:
    """Worlds with a query each, and what the library's exact planner says about it; the page plans anew."""
    worlds = [("Overlapping discs", load_world("rect-overlap"))]
    whole = (w for w in _single(random_worlds(40, (6, 8), seed=3)) if bool(is_connected(w)))
    worlds += [(f"Random, {len(w.sizes)} discs", w) for w in islice(whole, RANDOM_WORLDS)]
    cases = [_case(title, world) for title, world in worlds]
    scene = {"kind": "planning", "cases": cases}
    return Figure("planning", stills.planning(scene), scene)


def _single(worlds: BoxWorld) -> list[BoxWorld]:
    """A batch of worlds one by one, without the discs that are absent."""
    found = []
    for k in range(len(worlds.sizes)):
        there = worlds.sizes[k] > 0
        found.append(BoxWorld(worlds.low, worlds.high, worlds.centers[k][there], worlds.sizes[k][there]))
    return found


def _case(title: str, world) -> dict:
    """Of some random queries the one whose shortest path bends most."""
    g = torch.Generator().manual_seed(0)
    x, y = (world.sample(QUERIES, generator=g) for _ in range(2))
    length = ShortestPaths(world).distance(x, y)
    k = int((length - world.distance(x, y)).nan_to_num(posinf=-1.0).argmax())
    path = Exact(world).plan(x[k], y[k])
    return {
        "title": title,
        "world": world.to_json(),
        "start": x[k].tolist(),
        "target": y[k].tolist(),
        "library": {
            "exact": float(length[k]),
            "length": float(path.length[0]),
            "least": float(path.clearance.min()),
            "certified": bool(path.certified[0]),
            "points": numbers(path.points[0], 5),
        },
    }
