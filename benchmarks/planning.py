"""Planners side by side: arrival, collisions, length against the exact optimum, CPU time per query, one thread.

rect, rect-overlap, sphere (west to east): 1,000 pairs each; 200 random worlds of 3 to 8 discs that no network has seen, 5 pairs
each; 60 crowded ones of 9 to 16 discs, more than the network was trained on. The paper's planner and its closed form, certified
planners with learned directions and sides, the exact solver, and OMPL's BIT* and RRT* (`--peers PYTHON`, an environment with
benchmarks/peers.txt), whose paths go through our collision check. Awkward starts: where rims cross, on rims, and at and beside
contacts. Many discs: exact lengths and paths of 100 queries among 64 and 256. Writes results/planning.json.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import time
from collections.abc import Callable
from pathlib import Path as File

import torch
from torch import Tensor

from inbounds import planning as pl
from inbounds.paper.figures.planning import pairs
from inbounds.planning.path import padded
from inbounds.records import head

PAIRS, WORLDS, CROWDED, EACH = 1_000, 200, 60, 5
CORRIDOR = 0.02
TARGETS = {  # reach, mean and 95 % of the ratio
    "rect": (1.0, 1.003, 1.01),
    "rect-overlap": (0.995, 1.002, 1.005),
    "sphere": (1.0, 1.001, 1.002),
    "random": (0.99, 1.02, 1.08),
}


def summary(path: pl.Path, shortest: Tensor, milliseconds: float, training: float = 0.0) -> dict:
    """Of pairs that are connected at all."""
    there = torch.isfinite(shortest) & (shortest > 1e-9)
    good = path.reached & there
    ratio = (path.length / shortest)[good]
    waypoints = path.points
    return {
        "reach": round(float(path.reached[there].double().mean()), 5),
        "colliding_paths": round(float((path.clearance < 0).any(-1).double().mean()), 5),
        "colliding_segments": int((path.clearance < 0).sum()),
        "least_clearance": float(path.clearance.min()),
        "ratio_mean": round(float(ratio.mean()), 6) if len(ratio) else None,
        "ratio_p95": round(float(ratio.quantile(0.95)), 6) if len(ratio) else None,
        "ratio_max": round(float(ratio.max()), 6) if len(ratio) else None,
        "fallback": round(float(path.fallback[there].double().mean()), 5),
        "points": int(waypoints.shape[-2]),
        "ms_per_query": round(milliseconds, 4),
        "training_cpu_seconds": round(training, 1),
    }


def timed(plan: Callable[[], pl.Path]) -> tuple[pl.Path, float]:
    """CPU seconds of one thread: those of the clock if nothing else runs, and nearly the same if something does."""
    start = time.process_time()
    path = plan()
    return path, time.process_time() - start


def trained(make: Callable):
    start = time.process_time()
    net = make()
    return net, time.process_time() - start


def show(world: str, name: str, s: dict) -> None:
    ratio = f"{s['ratio_mean']:.4f} {s['ratio_p95']:.4f}" if s["ratio_mean"] else "-"
    collide = f"colliding paths {100 * s['colliding_paths']:5.1f} %"
    print(
        f"{world:13} {name:34} reach {100 * s['reach']:6.2f} %  {collide}  ratio {ratio}"
        f"  {s['ms_per_query']:.3f} ms" + (f"  training {s['training_cpu_seconds']:.0f} s" if s["training_cpu_seconds"] else ""),
        flush=True,
    )


def infeasible_points(world: pl.World, path: pl.Path) -> int:
    return int((world.segment_clearance(path.points, path.points) < 0).sum())


# --- fixed worlds ----------------------------------------------------------------------------------------------
def fixed(name: str, seconds: float, peers: str | None) -> dict:
    world, x, y = pairs(name, PAIRS, seed=11)
    solver, first = trained(lambda: pl.ShortestPaths(world))
    start = time.process_time()
    shortest = solver.distance(x, y)
    exact = 1e3 * (time.process_time() - start) / PAIRS
    found = {
        "exact solver (lengths only)": {"reach": 1.0, "ms_per_query": round(exact, 4), "training_cpu_seconds": round(first, 3)}
    }
    bend = int((shortest > world.distance(x, y) + 1e-9).sum())
    print(f"{name:13} {'exact solver, lengths only':34} {exact:.4f} ms; {bend} pairs bend")

    def add(title: str, planner, training: float = 0.0, dtype=torch.float64) -> pl.Path:
        path, spent = timed(lambda: planner.plan(x.to(dtype), y.to(dtype)))
        s = summary(path, shortest, 1e3 * spent / PAIRS, training)
        s["infeasible_points"] = infeasible_points(world, path)
        found[title] = s
        show(name, title, s)
        return path

    formula = {}
    for lam in (1.0, 9.0):
        formula[lam] = add(f"closed form, lambda {lam:g}", pl.OneStep(world, lam=lam))
    for lam, geodesic in ((1.0, False), (9.0, False), (9.0, True)):
        if geodesic and name != "sphere":
            continue
        net, spent = trained(lambda lam=lam, geodesic=geodesic: pl.train_one_step(world, lam, geodesic))
        title = f"the paper's, lambda {lam:g}" + (", geodesic" if geodesic else "")
        add(title, pl.OneStep(world, net), spent)
        if not geodesic:
            with torch.no_grad():
                off = (world.M.project(net(x, y)) - world.M.project((y + lam * x) / (1 + lam))).square().mean()
            found[title]["mse_to_closed_form"] = float(off)
            print(f"{name:13} {title}: squared distance from the closed form {float(off):.1e}")
    _, inner = pl.inflated(world)
    for labels, many in (("roadmap", 20_000), ("exact", 150_000)):
        net, spent = trained(lambda labels=labels, many=many: pl.train_direction(inner, labels, many))
        add(f"directions, {labels} labels", pl.Certified(world, net, fallback=pl.roadmap(world)), spent)
    net, spent = trained(lambda: pl.train_sides(world, queries=20_000, steps=1_500))
    planner = pl.Around(world, net, fallback=lambda w: pl.Roadmap(w, 150))
    best = add("sides, trained here", planner, spent)
    add("sides, trained here, float32", planner, spent, torch.float32)
    tight, more = timed(lambda: pl.pull_tight(world, best))
    found["sides, pulled tight"] = summary(
        tight, shortest, found["sides, trained here"]["ms_per_query"] + 1e3 * more / PAIRS, spent
    )
    show(name, "sides, pulled tight", found["sides, pulled tight"])
    add("sides, as shipped", pl.Around(world, pl.load_sides(), fallback=lambda w: pl.Roadmap(w, 150)))
    road = add("roadmap, 1,000 nodes", pl.Roadmap(world))
    tight, more = timed(lambda: pl.pull_tight(world, road))
    title = "roadmap, pulled tight"
    found[title] = summary(tight, shortest, found["roadmap, 1,000 nodes"]["ms_per_query"] + 1e3 * more / PAIRS)
    show(name, title, found[title])
    add("exact paths", pl.Exact(world))
    if peers and name != "sphere":
        found |= rivals(
            peers,
            name,
            [world.to_json()],
            torch.zeros(PAIRS, dtype=torch.long),
            world[None][torch.zeros(PAIRS, dtype=torch.long)],
            x,
            y,
            shortest,
            seconds,
        )
    return found


# --- worlds that nobody has seen ---------------------------------------------------------------------------------
def unseen(name: str, count: int, discs: tuple[int, int], seconds: float, peers: str | None) -> dict:
    worlds = pl.random_worlds(count, discs, seed=20_261_117)
    rows = torch.arange(count).repeat_interleave(EACH)
    g = torch.Generator().manual_seed(12)
    x, y = (worlds.sample(EACH, generator=g) for _ in range(2))
    shortest = lengths(worlds, x, y)
    narrow = worlds.for_robot(CORRIDOR / 2)
    wide = lengths(narrow, *(narrow_points(narrow, t) for t in (x, y)))
    corridor = torch.isfinite(wide)
    x, y, every = x.flatten(0, 1), y.flatten(0, 1), worlds[rows]
    found = {}
    net = pl.load_sides()
    for title, fallback, dtype in (
        ("sides, as shipped, no fallback", None, torch.float64),
        ("sides, as shipped", lambda w: pl.Roadmap(w, 150), torch.float64),
        ("sides, as shipped, float32", lambda w: pl.Roadmap(w, 150), torch.float32),
    ):
        plan = lambda fallback=fallback, dtype=dtype: pl.Around(every, net, fallback=fallback).plan(x.to(dtype), y.to(dtype))  # noqa: E731
        path, _ = timed(plan)  # the first call imports and fills caches
        spent = sorted(timed(plan)[1] for _ in range(3))[1]
        s = summary(path, shortest, 1e3 * spent / len(x))
        s["infeasible_points"] = infeasible_points(every, path)
        s["reach_by_corridor"] = round(float(path.reached[corridor].double().mean()), 5)
        found[title] = s
        show(name, title, s)
    found["connected"] = float(torch.isfinite(shortest).double().mean())
    found["by_corridor"] = float(corridor.double().mean())
    if peers:
        found |= rivals(peers, name, [worlds[k].to_json() for k in range(count)], rows, every, x, y, shortest, seconds)
    return found


# --- starts where obstacles meet, and many obstacles ---------------------------------------------------------------
def awkward(kind: str) -> dict:
    """300 starts in 30 random worlds, 10 in each: where rims cross, on rims, or on a rim at or beside a contact.

    Targets are uniform. Of the exact lengths, those that are finite; and the planners, on pairs that are connected.
    """
    found: dict = {}
    parts: dict[str, list] = {"sides, as shipped, no fallback": [], "sides, as shipped": [], "exact paths": []}
    every, spent = [], 0.0
    for seed in range(30):
        world, x = awkward_starts(kind, seed)
        y = world.sample(len(x), generator=torch.Generator().manual_seed(seed))
        begin = time.process_time()
        every.append(pl.ShortestPaths(world).distance(x, y))
        spent += time.process_time() - begin
        for title, planner in (
            ("sides, as shipped, no fallback", pl.Around(world, pl.load_sides())),
            ("sides, as shipped", pl.Around(world, pl.load_sides(), fallback=lambda w: pl.Roadmap(w, 150))),
            ("exact paths", pl.Exact(world)),
        ):
            path, seconds = timed(lambda planner=planner, x=x, y=y: planner.plan(x, y))
            parts[title].append((path, seconds))
    shortest = torch.cat(every)
    found["exact solver (lengths only)"] = {
        "finite": round(float(torch.isfinite(shortest).double().mean()), 5),
        "ms_per_query": round(1e3 * spent / len(shortest), 4),
    }
    for title, made in parts.items():
        paths, seconds = zip(*made, strict=True)
        found[title] = summary(together(list(paths)), shortest, 1e3 * sum(seconds) / len(shortest))
        show(f"{kind} starts", title, found[title])
    return found


def awkward_starts(kind: str, seed: int, count: int = 10) -> tuple[pl.World, Tensor]:
    """A random world that has such points, and some of them."""
    g = torch.Generator().manual_seed(seed)
    for k in range(1000):
        world = pl.random_worlds(1, (4, 8), seed=50_000 + 1000 * seed + k)[0]
        c, r = world.centers, world.sizes
        if kind == "vertex":
            points, free = world.M._vertices(torch.zeros(2, dtype=torch.float64))  # pyright: ignore
            points = points[4:][free[4:]]  # without the corners of the box
        elif kind == "rim":
            i = torch.randint(len(r), (400,), generator=g)
            points = world.rim_point(c[i], r[i], 2 * math.pi * torch.rand(400, generator=g, dtype=torch.float64))
        else:
            i, j = pl.ShortestPaths(world).contacts.touching.triu().nonzero().mT
            towards = world.angle(c[i], c[j])[:, None] + torch.tensor([0.0, 1e-8, -1e-8, 1e-6, -1e-6, 1e-4, -1e-4, 0.01, -0.01])
            points = world.rim_point(c[i][:, None].expand(-1, 9, -1), r[i][:, None].expand(-1, 9), towards).flatten(0, 1)
        points = points[world.segment_clearance(points, points) >= 0]
        if len(points):
            return world, points[torch.randint(len(points), (count,), generator=g)]
    raise AssertionError(f"no {kind} starts")


def together(paths: list[pl.Path]) -> pl.Path:
    most = max(p.points.shape[1] for p in paths)
    points = torch.cat([padded(p.points, most) for p in paths])
    clearance = [torch.nn.functional.pad(p.clearance, (0, most - p.points.shape[1]), value=math.inf) for p in paths]
    flags = (torch.cat([getattr(p, name) for p in paths]) for name in ("length", "reached", "fallback"))
    return pl.Path(points, torch.cat(clearance), *flags)


def many(count: int, queries: int = 100) -> dict:
    """Small discs, some of which overlap: as much of the box is covered as by 8 discs of radius 0.1 to 0.5."""
    g = torch.Generator().manual_seed(count)
    radii = (0.1 + 0.4 * torch.rand(count, generator=g, dtype=torch.float64)) * (8 / count) ** 0.5
    centers = torch.tensor([4.0, 3.0], dtype=torch.float64) * torch.rand(count, 2, generator=g, dtype=torch.float64)
    world = pl.BoxWorld([0, 0], [4, 3], centers, radii)
    x, y = (world.sample(queries, generator=g) for _ in range(2))
    start = time.process_time()
    solver = pl.ShortestPaths(world)
    made = time.process_time() - start
    shortest = solver.distance(x, y)
    spent = time.process_time() - start
    found = {"tangents": len(solver.i), "graph_seconds": round(made, 3), "lengths_seconds": round(spent, 3), "queries": queries}
    print(f"{count} discs{'':5} {len(solver.i)} tangents; graph and {queries} exact lengths in {spent:.2f} s")
    path, spent = timed(lambda: pl.Exact(world).plan(x, y))
    found["exact paths"] = summary(path, shortest, 1e3 * spent / queries)
    show(f"{count} discs", "exact paths", found["exact paths"])
    return found


def lengths(worlds: pl.World, x: Tensor, y: Tensor) -> Tensor:
    """World by world: each has few free tangents."""
    return torch.cat([pl.ShortestPaths(worlds[k]).distance(x[k], y[k]) for k in range(len(x))])


def narrow_points(world: pl.World, x: Tensor) -> Tensor:
    """The points where they are free, else nearest."""
    moved = world.M.project(x.transpose(0, 1)).transpose(0, 1)
    return torch.where((world.segment_clearance(x, x) >= 0)[..., None], x, moved)


def rivals(
    python: str, name: str, worlds: list, which: Tensor, every: pl.World, x: Tensor, y: Tensor, shortest: Tensor, seconds
) -> dict:
    """OMPL, checked by us."""
    task = {
        "worlds": worlds,
        "seconds": seconds,
        "pairs": [[int(w), a, b] for w, a, b in zip(which, x.tolist(), y.tolist(), strict=True)],
    }
    script = File(__file__).with_name("planning_peers.py")
    done = subprocess.run([python, str(script)], input=json.dumps(task), capture_output=True, text=True, check=True)
    found = {}
    for line in done.stdout.splitlines():
        if not line.startswith("{"):
            continue
        r = json.loads(line)
        most = max(2, *(len(p) for p in r["paths"]))
        padded = [(p or [a]) + [(p or [a])[-1]] * (most - len(p or [a])) for p, a in zip(r["paths"], x.tolist(), strict=True)]
        reached = torch.tensor([bool(p) for p in r["paths"]])
        path = pl.Path.of(every, torch.tensor(padded, dtype=torch.float64), reached)
        title = f"OMPL {r['name']}, {1e3 * seconds:.0f} ms"
        found[title] = summary(path, shortest, 1e3 * r["seconds"])
        show(name, title, found[title])
    return found


def verdict(found: dict) -> list[str]:
    missed = []
    for name, (reach, mean, p95) in TARGETS.items():
        title = "sides, as shipped" if name == "random" else "sides, trained here"
        for t in (title, title + ", float32"):
            s = found[name][t]
            checks = {
                f"reach {s['reach']}": s["reach"] >= reach,
                f"ratio {s['ratio_mean']}": s["ratio_mean"] <= mean,
                f"p95 {s['ratio_p95']}": s["ratio_p95"] <= p95,
                f"{s['colliding_segments']} colliding": s["colliding_segments"] == 0,
                f"{s['infeasible_points']} points": s["infeasible_points"] == 0,
                f"{s['ms_per_query']} ms": s["ms_per_query"] <= (1.0 if name == "random" else 0.5),
                f"{s['training_cpu_seconds']} s": s["training_cpu_seconds"] <= 60,
            }
            missed += [f"{name}, {t}: {k}" for k, ok in checks.items() if not ok]
    for kind in ("vertex", "rim", "contact"):
        for title, least in (("sides, as shipped", 0.98), ("exact paths", 1.0)):
            s = found[f"{kind} starts"][title]
            missed += [f"{kind} starts, {title}: reach {s['reach']}"] if s["reach"] < least else []
            missed += [f"{kind} starts, {title}: {s['colliding_segments']} colliding"] if s["colliding_segments"] else []
    for count in (64, 256):
        s = found[f"{count} discs"]
        missed += [f"{count} discs: {s['lengths_seconds']} s"] if s["lengths_seconds"] > 10 else []
    if found["random"]["sides, as shipped"]["reach_by_corridor"] < 0.995:
        missed.append(f"random: reach by corridors {found['random']['sides, as shipped']['reach_by_corridor']}")
    return missed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--out", default="results/planning.json")
    parser.add_argument("--peers", metavar="PYTHON", help="of the environment with OMPL, e.g. .venv-peers/bin/python")
    parser.add_argument("--seconds", type=float, default=0.011, help="OMPL's time per query (%(default)s)")
    parser.add_argument(
        "--only", metavar="NAME,NAME", help="measure these again, and keep the others of the file, and OMPL's if it is not given"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    parts: dict[str, Callable[[], dict]] = {
        name: lambda name=name: fixed(name, args.seconds, args.peers) for name in ("rect", "rect-overlap", "sphere")
    }
    parts["random"] = lambda: unseen("random", WORLDS, (3, 8), args.seconds, args.peers)
    parts["crowded"] = lambda: unseen("crowded", CROWDED, (9, 16), args.seconds, None)
    parts |= {f"{kind} starts": lambda kind=kind: awkward(kind) for kind in ("vertex", "rim", "contact")}
    parts |= {f"{count} discs": lambda count=count: many(count) for count in (64, 256)}
    stored = json.loads(File(args.out).read_text()) if args.only else {"worlds": {}}
    found, heads = stored["worlds"], stored.get("measured", {})
    about = head("python benchmarks/planning.py" + (" --peers .venv-peers/bin/python" if args.peers else ""))
    for name in args.only.split(",") if args.only else parts:
        kept = {} if args.peers else {t: s for t, s in found.get(name, {}).items() if t.startswith("OMPL")}
        found[name], heads[name] = kept | parts[name](), {k: about[k] for k in ("commit", "date")}
    missed = verdict(found)
    print("All targets met." if not missed else "MISSED: " + "; ".join(missed))
    about |= {"missed": missed, "measured": heads, "worlds": found}  # measured: what each world's rows are of
    File(args.out).write_text(json.dumps(about, indent=1, default=lambda v: None if math.isinf(v) else v) + "\n")


if __name__ == "__main__":
    main()
