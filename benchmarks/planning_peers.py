"""BIT* and RRT* of OMPL on given worlds and pairs, for benchmarks/planning.py; runs in the peers' environment.

Reads {"worlds": [{"box": ..., "discs": ...}], "pairs": [[world, x, y], ...], "seconds": s} from standard input, writes one JSON
line per planner: its paths and seconds per query. Its own collision check is the default: points along a segment.
"""

import json
import sys
import time

from ompl import base as ob
from ompl import geometric as og
from ompl import util as ou


def setup(world):
    (a, b), (c, d) = world["box"]
    space = ob.RealVectorStateSpace(2)
    bounds = ob.RealVectorBounds(2)
    for axis, (low, high) in enumerate(((a, c), (b, d))):
        bounds.setLow(axis, low)
        bounds.setHigh(axis, high)
    space.setBounds(bounds)
    discs = [(x, y, r * r) for x, y, r in world["discs"] if r > 0]
    simple = og.SimpleSetup(space)
    simple.setStateValidityChecker(lambda s: all((s[0] - x) ** 2 + (s[1] - y) ** 2 >= r for x, y, r in discs))
    return space, simple


def solve(name, world, x, y, seconds):
    """Points, and the time that it took."""
    space, simple = setup(world)
    start, goal = space.allocState(), space.allocState()
    for k in (0, 1):
        start[k], goal[k] = x[k], y[k]
    simple.setStartAndGoalStates(start, goal)
    simple.setPlanner(getattr(og, name)(simple.getSpaceInformation()))
    before = time.perf_counter()
    simple.solve(seconds)
    spent = time.perf_counter() - before
    if not simple.haveExactSolutionPath():
        return [], spent
    return [[s[0], s[1]] for s in simple.getSolutionPath().getStates()], spent


def main():
    ou.setLogLevel(ou.LOG_ERROR)
    task = json.load(sys.stdin)
    for name in ("BITstar", "RRTstar"):
        found = [solve(name, task["worlds"][w], x, y, task["seconds"]) for w, x, y in task["pairs"]]
        print(json.dumps({"name": name, "paths": [p for p, _ in found], "seconds": sum(s for _, s in found) / len(found)}))


main()
