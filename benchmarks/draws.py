"""How much do the draws behind a cell of the table decide? Rows trained with other anchors and on other fields, all else equal.

The published numbers come from one draw of 100 anchors (Prob) and one random field on the sphere, which are not ours. Here `Prob`
is trained on our sphere and disk with several draws of anchors and with anchors that are spread out, and `Prob` and `Proj FAA` on
other fields of the sphere; depth 4, no decay, three seeds, 8,000 steps of 500 (a tenth of the protocol). Reported is the loss
on 20,000 test points, and for anchors the loss of perfect labels: the row cannot do better by choosing one anchor. Writes
results/draws.json. `--protein` trains nothing: it says what constants and perfect labels score on the test split of protein, and
writes results/draws_protein.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from inbounds.data import disk, protein, sphere
from inbounds.data.pairs import Pairs, generator
from inbounds.nets import AnchorMixture
from inbounds.paper.models import ANCHORS, anchor_error
from inbounds.paper.rows import ROWS
from inbounds.records import head
from inbounds.train.training import Member, Problem, Protocol, StackTraining

RESULTS = Path(__file__).parents[1] / "results" / "draws.json"
SIZES = {"train": 4_000, "val": 800, "test": 1_200, "large": 20_000}
PUBLISHED = {"sphere": {"prob": 7.48e-3, "proj-faa": 5.03e-3}, "disk": {"prob": 2.58e-3}}


def drawn(pairs: Pairs, stream: int) -> Tensor:
    """100 training targets; stream 77 is the table's draw."""
    y = pairs["train"][1]
    return y[torch.randperm(len(y), generator=generator(0, stream=stream))[:ANCHORS]]


def spread(pairs: Pairs) -> Tensor:
    """100 training targets, each the one farthest from those before it."""
    y = pairs["train"][1]
    chosen, away = [0], (y - y[0]).norm(dim=-1)
    while len(chosen) < ANCHORS:
        chosen.append(int(away.argmax()))
        away = torch.minimum(away, (y - y[chosen[-1]]).norm(dim=-1))
    return y[chosen]


def prob(pairs: Pairs, anchors: Tensor) -> tuple[Problem, float]:
    """What `Prob` learns with these anchors, and the test loss of perfect labels."""
    (x, y), (x_val, y_val), (_, y_large) = pairs["train"], pairs["val"], pairs["large"]
    mixture = AnchorMixture(nn.Identity(), anchors)
    build = ROWS["prob"].problem(pairs).build
    return Problem(build, x, mixture.label(y), x_val, y_val, anchor_error, mixture.read), perfect(anchors, y_large)


def perfect(anchors: Tensor, y: Tensor) -> float:
    """The loss of the nearest anchor of every target."""
    return float((anchors[AnchorMixture(nn.Identity(), anchors).label(y)] - y).square().mean())


def test_losses(pairs: Pairs, problem: Problem, epochs: int) -> list[float]:
    """Of three seeds, each at its best epoch."""
    training = StackTraining(problem, Protocol(epochs=epochs), [Member(seed, depth=4) for seed in range(3)])
    while not training.done:
        training.advance()
    x, y = pairs["large"]
    with torch.no_grad():
        return [float((problem.read(net(x)) - y).square().mean()) for net in map(training.model, range(3))]


def floors(pairs: Pairs, draws: int = 20) -> list[float]:
    """The loss of perfect labels for so many draws of anchors."""
    return [prob(pairs, drawn(pairs, 77 + i))[1] for i in range(draws)]


def cases() -> Iterator[tuple[dict, Pairs, Problem]]:
    """Every training: what it is, its data, its problem."""
    for make, draws in ((disk, 1), (sphere, 3)):
        pairs = make(SIZES)
        anchors = {f"draw {i}": drawn(pairs, 77 + i) for i in range(draws)} | {"spread out": spread(pairs)}
        for name, chosen in anchors.items():
            problem, floor = prob(pairs, chosen)
            yield {"data": pairs.name, "row": "prob", "field": 0, "anchors": name, "floor": floor}, pairs, problem
    for seed in range(3):
        pairs = sphere(SIZES, seed=seed)
        if seed:  # field 0 is there already
            problem, floor = prob(pairs, drawn(pairs, 77))
            yield {"data": "sphere", "row": "prob", "field": seed, "anchors": "draw 0", "floor": floor}, pairs, problem
        yield {"data": "sphere", "row": "proj-faa", "field": seed}, pairs, ROWS["proj-faa"].problem(pairs)


def on_protein() -> dict[str, float | list[float]]:
    """What answers that learn nothing score on the test split of protein, and perfect labels of 20 draws of anchors."""
    pairs = protein()
    y, (x_test, y_test) = pairs["train"][1], pairs["test"]
    return {
        "mean of the training targets": float((y.mean(0) - y_test).square().mean()),
        "input": float((x_test - y_test).square().mean()),
        "perfect labels": [perfect(drawn(pairs, 77 + i), y_test) for i in range(20)],
    }


def written(file: Path, command: str, **found: object) -> None:
    """The results with where they come from."""
    file.write_text(json.dumps({**head(command), **found}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--epochs", type=int, default=1_000, help="of 8 steps (%(default)s)")
    parser.add_argument("--protein", action="store_true", help="constants and perfect labels on protein only")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.protein:
        scores = on_protein()
        print(json.dumps(scores, indent=1))
        return written(RESULTS.with_name("draws_protein.json"), "python benchmarks/draws.py --protein", **scores)
    found = []
    least = {make.__name__: floors(make(SIZES)) for make in (sphere, disk)}
    for name, values in least.items():
        print(f"{name}: perfect labels, 20 draws of anchors: {min(values):.1e} to {max(values):.1e}", flush=True)
    for about, pairs, problem in cases():
        losses = test_losses(pairs, problem, args.epochs)
        found.append({**about, "loss": statistics.mean(losses), "by_seed": losses})
        said = ", ".join(f"{k} {v:.2g}" if isinstance(v, float) else f"{k} {v}" for k, v in about.items())
        published = PUBLISHED[about["data"]][about["row"]]
        print(
            f"{said}: loss {found[-1]['loss']:.2e} ({min(losses):.1e} to {max(losses):.1e}), published {published:.1e}",
            flush=True,
        )
    written(RESULTS, f"python benchmarks/draws.py --epochs {args.epochs}", floors=least, rows=found)


if __name__ == "__main__":
    main()
