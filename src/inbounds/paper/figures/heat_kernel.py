"""Theorem 4.1 measured: F_t(x) = x + t grad log u_t(x), the mean of M weighted by exp(-|x - y|^2 / 2t), against P_M(x).

The theorem bounds |F_t - P_M| by C t^{1/2}. Laplace's method gives log u_t = -dist^2 / 2t - log det Q / 2 + const + O(t), hence

    F_t(x) = P_M(x) + t c(x) + O(t^2),    c = -grad log det Q / 2,

where Q = I - S_n on the tangent space at P_M(x) is the operator of the paper's proof, n = x - P_M(x).
"""

from __future__ import annotations

import csv
import json
import math
import statistics
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from torch import Generator, Tensor
from torch.special import i0e, i1e

from ...drawing import GREY, GRID, INK, LAND, SECOND, THIRD, save
from ...records import machine, tiny, writable
from ...sets import SO, Sphere

POINTS, SAMPLES, SEED = 200, 4_000, 0  # points x that are projected; samples of M as in the paper's training split
DEPTH = 0.5  # K reaches as far from M as this share of the reach
TIMES = [10 ** (-k / 4) for k in range(4, 25)]  # 1e-1 .. 1e-6
SMALL = 1e-3 * (1 + 1e-9)  # the slope is fitted from here down
WHY = (
    "Why 1 and not 1/2: on M the kernel is a bell of width t^(1/2) around P(x), and the theorem bounds that width. To first "
    "order the bell is even, so its two sides cancel; what remains is F_t(x) = P(x) - (t/2) grad log det Q(x) + O(t^2), where "
    "Q = I - S_n is the curvature of M seen from x, as in the proof: t/(2|x|) on the circle, t/|x| on the sphere. 'Predicted' "
    "is the largest length of that term on K, divided by t."
)
SAMPLED = (
    "From N samples the error has a bias t |c(x)| and a noise of order t^(1/2 - m/4) N^(-1/2), m the dimension of M. For m = 1 "
    "both fall with t, for m = 2 the noise does not depend on t, for m >= 3 it grows as t falls: there a bandwidth has to be "
    "chosen. Below the spacing of the samples F_t(x) is the nearest sample, the flat ends of the curves."
)


class Example(ABC):
    """A compact manifold with everything the theorem speaks of in closed form or as a converged integral, in float64."""

    name: str
    label: str
    colour: str
    dim: int
    reach: float

    @abstractmethod
    def sample(self, n: int, g: Generator) -> Tensor:
        """n points, uniform with respect to the Riemannian measure."""

    @abstractmethod
    def normal(self, p: Tensor, g: Generator) -> Tensor:
        """Random unit normals at the points p of M."""

    @abstractmethod
    def project(self, x: Tensor) -> Tensor:
        """P_M(x)."""

    @abstractmethod
    def smooth(self, x: Tensor, t: float) -> Tensor:
        """F_t(x)."""

    @abstractmethod
    def stretch(self, x: Tensor) -> Tensor:
        """(n, dim): the eigenvalues of Q at x, inverse to those of DP_M(x) on the tangent space."""

    def first_order(self, x: Tensor) -> Tensor:
        """c(x) = -grad log det Q(x) / 2 = lim (F_t(x) - P_M(x)) / t."""
        leaf = x.detach().requires_grad_()
        return -0.5 * torch.autograd.grad(self.stretch(leaf).log().sum(), leaf)[0]

    def points(self, n: int, g: Generator) -> Tensor:
        """K: half of the points at the largest distance allowed, half anywhere below it."""
        p = self.sample(n, g)
        depth = DEPTH * self.reach * (2 * uniform(n, g)).clamp(max=1)
        return p + depth.reshape(-1, *[1] * (p.dim() - 1)) * self.normal(p, g)


def uniform(n: int, g: Generator) -> Tensor:
    """Uniform random numbers in [0, 1)."""
    return torch.rand(n, generator=g, dtype=torch.float64)


def sign(n: int, g: Generator) -> Tensor:
    """Random signs."""
    return (uniform(n, g) < 0.5).double() * 2 - 1


class Round(Example):
    """The unit sphere of R^n: F_t(x) = A(r/t) x/r with r = |x|, where A(a) is the mean of y_1 under exp(a y_1) on the sphere."""

    def __init__(self, name: str, n: int, A: Callable[[Tensor], Tensor], colour: str):
        self.M, self.A, self.colour = Sphere(n), A, colour
        self.name, self.label, self.dim, self.reach = name, name, n - 1, self.M.reach

    def sample(self, n, g):
        return self.M.sample(n, generator=g, dtype=torch.float64)

    def normal(self, p, g):
        return sign(len(p), g)[:, None] * p

    def project(self, x):
        return self.M.project(x)

    def smooth(self, x, t):
        r = x.norm(dim=-1, keepdim=True)
        return self.A(r / t) * x / r

    def stretch(self, x):
        return x.norm(dim=-1, keepdim=True).expand(-1, self.dim)


def bessel_ratio(a: Tensor) -> Tensor:
    """I_1(a) / I_0(a) = 1 - 1/(2a) + O(a^-2)."""
    return i1e(a) / i0e(a)


def langevin(a: Tensor) -> Tensor:
    """coth(a) - 1/a. For a away from 0."""
    return 1 / torch.tanh(a) - 1 / a


class Torus(Example):
    """A tube of radius `tube` around the unit circle of the plane z = 0.

    Around the axis the integral is a Bessel function; along the tube it is the midpoint rule, which converges exponentially
    both on the whole circle and where the weight has died out before the ends.
    """

    name, label, colour, dim = "torus", "torus", THIRD, 2
    tube = 0.4
    reach = 0.4
    nodes = 512

    def sample(self, n, g):
        """Along the tube with density 1 + tube cos(phi): keep phi or mirror it."""
        phi, theta = math.tau * uniform(n, g), math.tau * uniform(n, g)
        phi = torch.where(uniform(n, g) < 0.5 * (1 + self.tube * torch.cos(phi)), phi, math.pi - phi)
        ring = 1 + self.tube * torch.cos(phi)
        return torch.stack([ring * torch.cos(theta), ring * torch.sin(theta), self.tube * torch.sin(phi)], -1)

    def core(self, x: Tensor) -> Tensor:
        """The nearest point of the unit circle."""
        flat = x[:, :2] / x[:, :2].norm(dim=-1, keepdim=True)
        return torch.cat([flat, torch.zeros_like(x[:, 2:])], -1)

    def normal(self, p, g):
        return sign(len(p), g)[:, None] * (p - self.core(p)) / self.tube

    def project(self, x):
        v = x - self.core(x)
        return self.core(x) + self.tube * v / v.norm(dim=-1, keepdim=True)

    def smooth(self, x, t):
        across = x[:, :2].norm(dim=-1, keepdim=True)  # distance from the axis
        rho, phi = torch.hypot(across - 1, x[:, 2:]), torch.atan2(x[:, 2:], across - 1)
        half = (16 * torch.sqrt(t / (rho * self.tube))).clamp(max=math.pi)  # beyond: e^-50 at most
        turn = half * ((torch.arange(self.nodes, dtype=x.dtype) + 0.5) * 2 / self.nodes - 1)  # (n, nodes)
        ring, a = 1 + self.tube * torch.cos(phi + turn), across / t
        w = ring * i0e(a * ring) * torch.exp(-2 * rho * self.tube / t * torch.sin(turn / 2) ** 2)
        w = w / w.sum(-1, keepdim=True)
        radius = (w * ring * bessel_ratio(a * ring)).sum(-1, keepdim=True)
        height = self.tube * (w * torch.sin(phi + turn)).sum(-1, keepdim=True)
        return torch.cat([radius * x[:, :2] / across, height], -1)

    def stretch(self, x):
        across, landed = (z[:, :2].norm(dim=-1) for z in (x, self.project(x)))
        return torch.stack([(x - self.core(x)).norm(dim=-1) / self.tube, across / landed], -1)


class Rotations(Example):
    """SO(3) in R^9: F_t(x) = U diag(E R_kk) V^T for x = U diag(s) V^T, R with density exp(sum s_k R_kk / t): matrix Fisher.

    With unit quaternions in two pairs, u = R_kk is uniform on [-1, 1] and the angles of the pairs are independent of it, so that
    E R_kk is the mean of u under I_0((s_i - s_j)(1 - u) / 2t) I_0((s_i + s_j)(1 + u) / 2t) exp(s_k u / t). Here v = 1 - u.
    """

    name, label, colour, dim = "so3", "SO(3)", INK, 3
    M = SO(3)
    reach = math.sqrt(2)
    nodes, weights = (torch.from_numpy(z) / 2 for z in np.polynomial.legendre.leggauss(120))

    def sample(self, n, g):
        return self.M.sample(n, generator=g, dtype=torch.float64)

    def normal(self, p, g):
        """p S with S symmetric."""
        S = torch.randn(p.shape, generator=g, dtype=p.dtype)
        S = S + S.mT
        return p @ (S / S.flatten(1).norm(dim=-1)[:, None, None])

    def project(self, x):
        return self.M.project(x)

    def smooth(self, x, t):
        U, s, Vh = torch.linalg.svd(x)
        s = signed(s, x)
        U = torch.cat([U[..., :2], U[..., 2:] * torch.det(U @ Vh).sign()[:, None, None]], -1)
        i, j = s[:, [1, 0, 0], None], s[:, [2, 2, 1], None]
        rate = (s[..., None] + j) / t  # the scaled Bessel functions take the rest of the exponent
        v = (60 / rate).clamp(max=2) * (0.5 + self.nodes)  # (n, 3, nodes)
        w = self.weights * i0e((i - j) / (2 * t) * v) * i0e((i + j) / (2 * t) * (2 - v)) * torch.exp(-rate * v)
        return U @ torch.diag_embed(1 - (w * v).sum(-1) / w.sum(-1)) @ Vh

    def stretch(self, x):
        s = signed(torch.linalg.svdvals(x), x)
        return (s + s.roll(1, -1)) / 2


def signed(s: Tensor, x: Tensor) -> Tensor:
    """Singular values, the smallest with the sign of det x: those of x as U diag(s) V^T with U V^T a rotation."""
    return torch.cat([s[:, :2], s[:, 2:] * torch.det(x.detach()).sign()[:, None]], -1)


EXAMPLES = [Round("circle", 2, bessel_ratio, LAND), Round("sphere", 3, langevin, SECOND), Torus(), Rotations()]


def smooth_samples(x: Tensor, y: Tensor, t: float) -> Tensor:
    """F_t for the empirical measure of y: the mean of the samples weighted by exp(-|x - y|^2 / 2t)."""
    square = torch.cdist(x.flatten(1), y.flatten(1), compute_mode="donot_use_mm_for_euclid_dist") ** 2
    return (torch.softmax(-square / (2 * t), -1) @ y.flatten(1)).reshape(x.shape)


def measure(e: Example) -> dict:
    """Errors on K by t, of the whole manifold and of samples, with the slope and the constant of the former."""
    g = Generator().manual_seed(SEED)
    x, y = e.points(POINTS, g), e.sample(SAMPLES, g)
    p = e.project(x)
    exact = [lengths(e.smooth(x, t) - p) for t in TIMES]
    sampled = [lengths(smooth_samples(x, y, t) - p) for t in TIMES]
    sup = [float(d.max()) for d in exact]
    return {
        "set": e.name,
        "ambient": x[0].numel(),
        "dimension": e.dim,
        "reach": e.reach,
        "t": TIMES,
        "sup_error": sup,
        "rms_error": [rms(d) for d in exact],
        "slope": slope(TIMES, sup),
        "predicted_constant": float(lengths(e.first_order(x)).max()),
        "measured_constant": sup[-1] / TIMES[-1],
        "bound": max(d / math.sqrt(t) for d, t in zip(sup, TIMES, strict=True)),
        "sampled_sup_error": [float(d.max()) for d in sampled],
        "sampled_rms_error": [rms(d) for d in sampled],
    }


def lengths(v: Tensor) -> Tensor:
    """The length of every row."""
    return v.flatten(1).norm(dim=-1)


def rms(d: Tensor) -> float:
    """The root of the mean square."""
    return float(d.square().mean().sqrt())


def slope(times: list[float], errors: list[float]) -> float:
    """The slope of log error against log t, over t <= SMALL."""
    pairs = [(math.log(t), math.log(d)) for t, d in zip(times, errors, strict=True) if t <= SMALL]
    return statistics.linear_regression(*zip(*pairs, strict=True)).slope


def run(args) -> int:
    """`inbounds figure heat-kernel`. Returns the exit code."""
    try:
        out = writable(Path(args.out))
    except OSError as error:
        print(f"inbounds figure heat-kernel: {error}", file=sys.stderr)
        return 2
    console = Console(width=None if sys.stdout.isatty() else 140)
    rows = [measure(e) for e in EXAMPLES]
    draw(rows, out / "heat-kernel.png")
    write_csv(rows, out / "heat-kernel.csv")
    write_json(rows, args.line, out / "heat-kernel.json")
    console.print(rate_table(rows))
    console.print(WHY + "\n", highlight=False)
    console.print(sample_table(rows))
    console.print(SAMPLED + "\n", highlight=False)
    return conclude(rows, out, console)


def rate_table(rows: list[dict]) -> Table:
    """The largest error for every tenth power of t."""
    shown = [k for k, t in enumerate(TIMES) if math.isclose(math.log10(t), round(math.log10(t)), abs_tol=1e-9)]
    t = Table(title=f"largest |F_t(x) - P(x)| over {POINTS} points x with dist(x, M) <= {DEPTH} reach", box=SIMPLE_HEAD)
    t.add_column("set")
    for k in shown:
        t.add_column(f"t = {TIMES[k]:.0e}", justify="right")
    for head in ("slope", "error / t\npredicted", "measured", "error / t^(1/2)\nat most"):
        t.add_column(head, justify="right")
    for r, e in zip(rows, EXAMPLES, strict=True):
        constants = [f"{r[k]:.4f}" for k in ("slope", "predicted_constant", "measured_constant", "bound")]
        t.add_row(e.label, *[f"{r['sup_error'][k]:.2e}" for k in shown], *constants)
    return t


def sample_table(rows: list[dict]) -> Table:
    """The best t of every set that is known from samples, and the error there."""
    t = Table(title=f"M known from N = {SAMPLES:,} samples: root mean square error over the same points", box=SIMPLE_HEAD)
    t.add_column("set")
    for head in ("dimension m", "best t", "error there", f"at t = {TIMES[-1]:.0e}", f"at t = {TIMES[0]:.0e}"):
        t.add_column(head, justify="right")
    for r, e in zip(rows, EXAMPLES, strict=True):
        errors = r["sampled_rms_error"]
        k = errors.index(min(errors))
        t.add_row(e.label, str(e.dim), f"{TIMES[k]:.1e}", *[tiny(errors[n]) for n in (k, -1, 0)])
    return t


def conclude(rows: list[dict], out: Path, console: Console) -> int:
    """Print whether the theorem's rate was seen. Returns the exit code, 1 if it was not."""
    slow = [r["set"] for r in rows if r["slope"] < 0.5]
    slopes = [r["slope"] for r in rows]
    found = f"NOT seen on {', '.join(slow)}" if slow else f"seen on all {len(rows)} sets"
    text = f"Theorem 4.1, slope >= 1/2: {found}, slopes {min(slopes):.3f} to {max(slopes):.3f}."
    console.print(f"{text} Picture: {out / 'heat-kernel.png'}, numbers beside it.", highlight=False, markup=False, soft_wrap=True)
    return 1 if slow else 0


def write_csv(rows: list[dict], path: Path) -> None:
    """Write the errors, a line for every set and t."""
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["set", "samples", "t", "sup_error", "rms_error"])
        for r in rows:
            for samples, prefix in ((math.inf, ""), (SAMPLES, "sampled_")):
                errors = zip(r["t"], r[prefix + "sup_error"], r[prefix + "rms_error"], strict=True)
                lines.writerows([r["set"], samples, *numbers] for numbers in errors)


def write_json(rows: list[dict], command: str, path: Path) -> None:
    """Write all that was measured, with the command and the machine."""
    record = {
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "points": POINTS,
        "samples": SAMPLES,
        "seed": SEED,
        "depth": DEPTH,
        "rows": rows,
    }
    path.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")


def draw(rows: list[dict], path: Path) -> None:
    """Draw both panels."""
    fig = Figure(figsize=(12.5, 5.8), dpi=110, facecolor="white")
    left, right = fig.subplots(1, 2, gridspec_kw={"left": 0.05, "right": 0.9, "bottom": 0.1, "top": 0.83, "wspace": 0.4})
    panel(left, "All of M: the error falls like t", r"largest $|F_t(x) - P_M(x)|$ on K")
    panel(right, f"{SAMPLES:,} samples of M: bias against noise", r"root mean square of $|F_t(x) - P_M(x)|$ on K")
    for r, e in zip(rows, EXAMPLES, strict=True):
        sampled = r["sampled_rms_error"]
        left.plot(TIMES, r["sup_error"], color=e.colour, lw=1.8)
        right.plot(TIMES, r["rms_error"], color=e.colour, lw=1, ls=(0, (4, 3)))
        right.plot(TIMES, sampled, color=e.colour, lw=1.8, marker="o", ms=7, markevery=[sampled.index(min(sampled))])
    references(left)
    right.set_ylim(3e-4, 0.5)
    right.text(0.03, 0.04, "dashed: all of M\ndot: best t", transform=right.transAxes, color=GREY, size=10, linespacing=1.5)
    names(left, rows, "sup_error", lambda r: rf"  {r['measured_constant']:.2f} $t$")
    names(right, rows, "sampled_rms_error", lambda r: f"  m = {r['dimension']}")
    save(fig, path)


def panel(ax, title: str, quantity: str) -> None:
    """t falls to the right, as in the theorem."""
    ax.set(xscale="log", yscale="log", xlim=(TIMES[0], TIMES[-1]))
    ax.set_title(title, loc="left", size=13, weight="bold", color=INK, pad=30)
    ax.text(0, 1.035, quantity, transform=ax.transAxes, color=GREY, size=11)
    ax.set_xlabel("t", color=GREY)
    ax.grid(color=GRID, lw=0.8)
    ax.tick_params(which="both", colors=GREY, length=0)
    ax.spines[:].set_visible(False)


def references(ax) -> None:
    """Lines of the slopes 1/2 and 1."""
    for factor, power, words, place in ((1.0, 0.5, "slope 1/2: the theorem", "left"), (0.15, 1, "slope 1", "right")):
        line = [factor * t**power for t in TIMES]
        ax.plot(TIMES, line, color=GREY, lw=1.2, ls=":")
        nudge = (6, 6) if place == "left" else (-6, -12)
        ax.annotate(words, (TIMES[10], line[10]), nudge, textcoords="offset points", ha=place, color=GREY, size=10)


def names(ax, rows: list[dict], quantity: str, says: Callable[[dict], str]) -> None:
    """Each line's name behind its small-t end, moved apart where they would touch."""
    low, high = (math.log10(y) for y in ax.get_ylim())
    ends = sorted((math.log10(r[quantity][-1]), e.label + says(r), e.colour) for r, e in zip(rows, EXAMPLES, strict=True))
    heights = spread([(end - low) / (high - low) for end, _, _ in ends], 0.052)
    for height, (_, words, colour) in zip(heights, ends, strict=True):
        ax.text(1.015, height, words, transform=ax.transAxes, color=colour, va="center", size=11)


def spread(heights: list[float], gap: float) -> list[float]:
    """Ascending heights, neighbours pushed apart evenly until they are `gap` apart."""
    h = list(heights)
    for _ in range(100):
        for k in range(1, len(h)):
            push = max(0.0, gap - (h[k] - h[k - 1])) / 2
            h[k - 1], h[k] = h[k - 1] - push, h[k] + push
    return h
