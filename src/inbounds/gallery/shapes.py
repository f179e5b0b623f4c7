"""The sets themselves as backdrops: each function here returns `draw(ax)` for a plane or a space axes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product

import numpy as np
from matplotlib.patches import Circle, Ellipse, Polygon, Rectangle
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

from ..drawing import INK

Backdrop = Callable[..., None]
FAINT, TINT, GREY = "#b9c2ca", "#dceaf4", "#a3a9af"
BACK, BODY, EDGE = 1, 2, 3  # zorder; points come above
TURN = np.linspace(0, 2 * np.pi, 97)


def together(*parts: Backdrop) -> Backdrop:
    """Several backdrops, one after the other."""

    def draw(ax):
        for part in parts:
            part(ax)

    return draw


# --- the plane -----------------------------------------------------------------------------------------------
def disc(center=(0, 0), radius=1.0, fill: str | None = TINT, edge=INK) -> Backdrop:
    """A disc, or with fill None a circle."""
    style = {"facecolor": fill or "none", "edgecolor": edge, "lw": 1.2, "zorder": BACK}
    return lambda ax: ax.add_patch(Circle(center, radius, **style))


def box(low, high) -> Backdrop:
    """A filled rectangle."""
    size = np.subtract(high, low)
    return lambda ax: ax.add_patch(Rectangle(low, *size, facecolor=TINT, edgecolor=INK, lw=1.2, zorder=BACK))


def shape(corners) -> Backdrop:
    """A filled polygon; where it should go on without end, give it corners outside of the picture."""
    return lambda ax: ax.add_patch(Polygon(corners, facecolor=TINT, edgecolor=INK, lw=1.2, zorder=BACK))


def ellipse(semi_axes) -> Backdrop:
    """A filled ellipse around 0."""
    wide, tall = 2 * np.array(semi_axes)
    return lambda ax: ax.add_patch(Ellipse((0, 0), wide, tall, facecolor=TINT, edgecolor=INK, lw=1.2, zorder=BACK))


def halfplane(a, b) -> Backdrop:
    """{a.x <= b}, as far as any axes reach."""
    n = np.array(a) / np.linalg.norm(a)
    foot, side = n * b / np.linalg.norm(a), np.array([-n[1], n[0]])
    far = 100
    corners = [foot + far * side, foot - far * side, foot - far * (side + n), foot + far * (side - n)]
    return lambda ax: ax.add_patch(Polygon(corners, facecolor=TINT, edgecolor=INK, lw=1.2, zorder=BACK))


def free_plane(low, high, centers, radii) -> Backdrop:
    """Discs are cut at the walls: outside nothing is free anyway."""

    def draw(ax):
        box(low, high)(ax)
        wall = Rectangle(low, *np.subtract(high, low), transform=ax.transData)
        for c, r in zip(centers, radii, strict=True):
            ax.add_patch(Circle(c, r, facecolor=GREY, edgecolor=INK, lw=0.8, zorder=BODY)).set_clip_path(wall)

    return draw


def covariances(radius: float, steps: int = 7, size: float = 0.1) -> Backdrop:
    """The ellipse {y : y.X^-1 y <= size^2} of the trace-one matrix X at each lattice point of the disc."""
    grid = np.linspace(-radius, radius, steps)

    def draw(ax):
        for u, w in product(grid, grid):
            if np.hypot(u, w) > 0.9 * radius:
                continue
            X = 0.5 * np.eye(2) + np.array([[u, w], [w, -u]]) / np.sqrt(2)
            l, q = np.linalg.eigh(X)
            tall, wide = 2 * size * np.sqrt(np.clip(l, 1e-3, None))
            angle = np.degrees(np.arctan2(q[1, 1], q[0, 1]))
            ax.add_patch(Ellipse((u, w), wide, tall, angle=angle, facecolor="white", edgecolor=INK, lw=0.9, zorder=BODY))

    return draw


# --- space ---------------------------------------------------------------------------------------------------
def towards(ax) -> np.ndarray:
    """Unit vector from the middle of the scene to the eye."""
    e, a = np.radians(ax.elev), np.radians(ax.azim)
    return np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])


def screen(ax) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors to the right and up as the eye sees them."""
    right = np.cross([0, 0, 1], towards(ax))
    right /= np.linalg.norm(right)
    return right, np.cross(towards(ax), right)


def hidden(ax, p: np.ndarray, balls) -> np.ndarray:
    """Which points the eye does not see because they are in or behind a ball (center, radius)."""
    out = np.zeros(len(p), dtype=bool)
    for c, r in balls:
        d = p - np.array(c)
        depth, length2, r2 = d @ towards(ax), (d * d).sum(-1), 0.999 * r * r
        out |= (length2 < r2) | ((depth < 0) & (length2 - depth**2 < r2))
    return out


def rings(lines: int) -> list[np.ndarray]:
    """Parallels and meridians of the unit sphere."""
    polar = np.arange(1, lines) * np.pi / lines
    flat = [np.stack([np.sin(s) * np.cos(TURN), np.sin(s) * np.sin(TURN), np.cos(s) + 0 * TURN], -1) for s in polar]
    turned = np.arange(lines) * np.pi / lines
    return flat + [np.stack([np.sin(TURN) * np.cos(t), np.sin(TURN) * np.sin(t), np.cos(TURN)], -1) for t in turned]


def globe(center=(0, 0, 0), radius=1.0, fill: str | None = None) -> Backdrop:
    """Parallels, meridians and outline; without `fill` one sees through it to a fainter far side."""

    def draw(ax):
        right, up = screen(ax)
        outline = center + radius * (np.outer(np.cos(TURN), right) + np.outer(np.sin(TURN), up))
        if fill:
            ax.add_collection3d(Poly3DCollection([outline], facecolors=fill, zorder=BODY))
        for ring in rings(6):
            near = np.where(ring @ towards(ax) > 0, 1, np.nan)[:, None]
            if not fill:
                ax.plot(*(center + radius * ring).T, color=FAINT, lw=0.5, alpha=0.5, zorder=BACK)
            ax.plot(*(center + radius * ring * near).T, color=GREY if fill else FAINT, lw=0.7, zorder=BODY)
        ax.plot(*outline.T, color=INK, lw=1, zorder=BODY)

    return draw


def room(low, high, centers, radii) -> Backdrop:
    """A box of edges with solid balls, painted from the back to the front."""
    corners = np.array(list(product(*zip(low, high, strict=True))), dtype=float)
    edges = [(a, b) for a in corners for b in corners if (a != b).sum() == 1 and tuple(a) < tuple(b)]

    def draw(ax):
        eye = towards(ax)
        last = min(corners @ eye)
        for a, b in edges:
            behind = min(a @ eye, b @ eye) == last
            ax.plot(*np.stack([a, b]).T, color=FAINT if behind else INK, lw=1, zorder=BACK if behind else EDGE)
        for c, r in sorted(zip(centers, radii, strict=True), key=lambda ball: ball[0] @ eye):
            globe(c, r, fill="#d3d7da")(ax)

    return draw


def caps(centers, angles) -> Backdrop:
    """Filled caps; those behind the globe fainter."""

    def draw(ax):
        for c, a in zip(centers, angles, strict=True):
            u = np.array(c) / np.linalg.norm(c)
            e = np.linalg.svd(u[None])[2][1:]
            s, t = np.meshgrid(np.linspace(0, a, 12), TURN)
            patch = [np.cos(s) * u[i] + np.sin(s) * (np.cos(t) * e[0, i] + np.sin(t) * e[1, i]) for i in range(3)]
            near = u @ towards(ax) > 0
            colour, zorder = (GREY, BODY) if near else ("#e6e9eb", BACK)
            ax.plot_surface(*patch, color=colour, lw=0, shade=False, antialiased=False, zorder=zorder)
            rim = np.stack([w[:, -1] for w in patch])
            ax.plot(*rim, color=INK, lw=0.9, alpha=1 if near else 0.3, zorder=EDGE if near else BACK)

    return draw


def torus(radius: float, tube: float) -> Backdrop:
    """A see-through torus around the third axis, with rings in both directions."""

    def at(s, t):
        wide = radius + tube * np.cos(t)
        return wide * np.cos(s), wide * np.sin(s), tube * np.sin(t)

    def draw(ax):
        ax.plot_surface(*at(*np.meshgrid(TURN, TURN[::4])), color="#9cc3df", alpha=0.22, lw=0, shade=False, zorder=BACK)
        for s in TURN[:-1:6]:
            ax.plot(*at(s + 0 * TURN, TURN), color=FAINT, lw=0.7, zorder=BODY)
        for t in TURN[:-1:24]:
            ax.plot(*at(TURN, t + 0 * TURN), color=FAINT, lw=0.7, zorder=BODY)

    return draw


def elliptope() -> Backdrop:
    """{(x, y, z) : [[1, x, y], [x, 1, z], [y, z, 1]] >= 0}: on its boundary x = cos s, y = cos t, z = cos(s + t)."""
    s, t = np.meshgrid(np.linspace(0, np.pi, 33), np.linspace(-np.pi, np.pi, 65))

    def draw(ax):
        ax.plot_surface(np.cos(s), np.cos(t), np.cos(s + t), color="#9cc3df", alpha=0.22, lw=0, shade=False, zorder=BACK)
        for level in np.linspace(0, np.pi, 9):
            for sign in (1, -1):
                turn = sign * s[0]
                ax.plot(np.cos(level) + 0 * turn, np.cos(turn), np.cos(level + turn), color=FAINT, lw=0.7, zorder=BODY)
        tips = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
        for a, b in combinations(tips, 2):
            ax.plot(*np.stack([a, b]).T, color=INK, lw=1, zorder=BODY)

    return draw


def bowl(wide: float, height: Callable[[np.ndarray], np.ndarray]) -> Backdrop:
    """{z = height(|(x, y)|)} for |(x, y)| up to `wide`, with rings and ribs."""
    r = np.linspace(0, wide, 25)
    R, t = np.meshgrid(r, TURN)

    def draw(ax):
        ax.plot_surface(R * np.cos(t), R * np.sin(t), height(R), color="#9cc3df", alpha=0.22, lw=0, shade=False, zorder=BACK)
        for ring in wide * np.array([1 / 3, 2 / 3, 1]):
            ax.plot(
                ring * np.cos(TURN), ring * np.sin(TURN), height(ring), color=INK if ring == wide else FAINT, lw=1, zorder=BODY
            )
        for s in TURN[:-1:8]:
            ax.plot(r * np.cos(s), r * np.sin(s), height(r), color=FAINT, lw=0.7, zorder=BODY)

    return draw


def cone(height: float) -> Backdrop:
    """{|(x, y)| <= z}."""
    return bowl(height, lambda r: r)


def sheet(wide: float) -> Backdrop:
    """{z = sqrt(1 + x^2 + y^2)}, the hyperbolic plane."""
    return bowl(wide, lambda r: np.sqrt(1 + r * r))


def polygon(corners) -> Backdrop:
    """A transparent polygon in space."""
    face = {"facecolors": "#9cc3df", "edgecolors": INK, "alpha": 0.35, "lw": 1.2, "zorder": BACK}
    return lambda ax: ax.add_collection3d(Poly3DCollection([np.array(corners, dtype=float)], **face))


def plane(a, b, radius: float) -> Backdrop:
    """A disc of {a.x = b} around its point nearest to 0."""
    n = np.array(a, dtype=float)
    e = np.linalg.svd(n[None])[2][1:]
    return polygon(n * b / (n @ n) + radius * (np.outer(np.cos(TURN), e[0]) + np.outer(np.sin(TURN), e[1])))


def triad(length: float, names=("$x_1$", "$x_2$", "$x_3$"), aside=(0, 0)) -> Backdrop:
    """Named coordinate axes at 0, or moved `aside` (right, up) on the screen."""

    def draw(ax):
        start = np.array(aside) @ np.stack(screen(ax))
        for axis, name in zip(np.eye(3), names, strict=True):
            ax.plot(*np.stack([start, start + length * axis]).T, color=INK, lw=1, zorder=EDGE)
            ax.text(*(start + (length + 0.2) * axis), name, color=INK, ha="center", va="center", zorder=20)

    return draw
