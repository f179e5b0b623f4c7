"""Certified paths for a round robot: its centre is planned among thicker obstacles, its whole body stays free. Needs [lab]."""

import torch

from inbounds import planning as pl

RADIUS = 0.1


def main(count: int = 50):
    torch.manual_seed(0)
    world = pl.BoxWorld([0, 0], [4, 3], centers=[[1, 1], [2.2, 1.9], [3.1, 0.9]], radii=[0.5, 0.55, 0.45])
    room = world.for_robot(RADIUS)  # where the robot's centre may be
    planner = pl.Around(room, pl.load_sides(), fallback=pl.roadmap(room, 150))
    path = planner.plan(room.sample(count), room.sample(count))
    clearance = world.clearance(path.points).min()  # of the centre from the true obstacles, whole segments
    shortest = pl.ShortestPaths(room).solve(path.points[:, 0], path.points[:, -1])[0]
    longer = (path.length / shortest).nan_to_num(1.0).mean()
    print(f"{int(path.certified.sum())} of {count} certified; clearance {clearance:.4f}; {longer:.4f} of the shortest length")
    return world, path, float(clearance), float(longer)


if __name__ == "__main__":
    main()
