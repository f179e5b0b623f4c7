"""Charts as SVG, written by hand: lines and points on logarithmic or plain axes, with a legend inside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 360, 300  # pixels
LEFT, RIGHT, TOP, BOTTOM = 58, 338, 34, 218  # of the field between the axes
LEGEND_TOP, LEGEND_ROW, LEGEND_COLUMNS = 266, 17, 3  # pixels from above, pixels a row, entries a row
TICKS = 5  # labels on an axis, at most

# the paper's two questions are two channels: where a row enforces the set is a colour, how it does so is a mark and a dash
MARKS = {"proj": "circle", "exp": "triangle", "flow": "diamond", "wide": "square", "fit": "cross", "prob": "square"}
DASHES = {"exp": "6 3", "flow": "2 3", "wide": "9 3 2 3", "fit": "1 2", "prob": "5 4"}


@dataclass(frozen=True)
class Look:
    """colour: a class of figures.css; mark: a key of the shapes below; dash: of a line."""

    colour: str
    mark: str = "circle"
    dash: str = ""


def look_of(row: str) -> Look:
    """How a row is drawn: its colour says where it is constrained, its mark and dashes say by what."""
    how, _, where = row.partition("-")
    return Look(where or "free", MARKS.get(how, "circle"), DASHES.get(how, ""))


@dataclass(frozen=True)
class Series:
    """One line, or one group of points; says: the words beside each point when the pointer is on it."""

    label: str
    look: Look
    x: Sequence[float]
    y: Sequence[float]
    says: Sequence[str] = ()
    hollow: bool = False
    listed: bool = True  # in the legend


@dataclass(frozen=True)
class Axis:
    """floor: values at or below it are drawn there, and it is labelled 0. Only logarithmic axes have one."""

    label: str
    log: bool = False
    floor: float = 0.0

    def range(self, values: Sequence[float]) -> tuple[float, float]:
        """The ends of an axis that shows all these values."""
        seen = [self.clip(v) for v in values if math.isfinite(v)] or [1.0]
        low, high = min(seen), max(seen)
        if self.log:
            low, high = 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))
            return (low, high) if low < high else (low / 10, high * 10)
        return (low, high) if low < high else (low - 0.5, high + 0.5)

    def clip(self, value: float) -> float:
        """The value, or the floor of a logarithmic axis if it lies below."""
        return max(value, self.floor or 1e-300) if self.log else value

    def ticks(self, low: float, high: float) -> list[float]:
        """Where the axis is labelled: round numbers between its ends."""
        if self.log:
            first, last = round(math.log10(low)), round(math.log10(high))
            every = math.ceil((last - first + 1) / TICKS)
            return [10.0**e for e in range(first, last + 1, every)]
        step = 10.0 ** math.floor(math.log10((high - low) / 2))
        step = next(step * m for m in (1, 2, 5, 10, 20) if (high - low) / (step * m) <= TICKS)
        return [k * step for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]

    def tick_text(self, value: float) -> str:
        """The label at this value."""
        if not self.log:
            return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
        if self.floor and value <= self.floor:
            return "0"
        return f"{value:,g}" if 0.005 < value < 1e6 else f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")

    def place(self, value: float, low: float, high: float, start: float, end: float) -> float:
        """Where the value lies on the page if the axis goes from `start` to `end` there."""
        part = math.log(self.clip(value) / low) / math.log(high / low) if self.log else (value - low) / (high - low)
        return start + min(max(part, 0.0), 1.0) * (end - start)


def chart(title: str, x: Axis, y: Axis, series: Sequence[Series], joined: bool = True, marks: bool = True) -> str:
    """joined: lines between the points of a series; marks: the points themselves."""
    x_range = x.range([v for s in series for v in s.x])
    y_range = y.range([v for s in series for v in s.y])

    def at(u: float, v: float) -> tuple[float, float]:
        return x.place(u, *x_range, LEFT, RIGHT), y.place(v, *y_range, BOTTOM, TOP)

    parts = [f'<text class="title" x="{LEFT}" y="18">{escape(title)}</text>', *_axes(x, x_range, y, y_range)]
    for s in series:
        known = [(*at(u, v), k) for k, (u, v) in enumerate(zip(s.x, s.y, strict=True)) if math.isfinite(u) and math.isfinite(v)]
        if joined and len(known) > 1:
            parts.append(_line([(p, q) for p, q, _ in known], s.look))
        if marks:
            parts += [mark(p, q, s.look, s.hollow, s.says[k] if s.says else "") for p, q, k in known]
    listed = [s for s in series if s.listed]
    parts += [_legend_entry(k, s, joined) for k, s in enumerate(listed)]
    height = LEGEND_TOP + LEGEND_ROW * math.ceil(len(listed) / LEGEND_COLUMNS)
    return svg(WIDTH, max(height, HEIGHT - 20), "\n".join(parts), title)


def _axes(x: Axis, x_range: tuple[float, float], y: Axis, y_range: tuple[float, float]) -> list[str]:
    parts = []
    for value in x.ticks(*x_range):
        p = x.place(value, *x_range, LEFT, RIGHT)
        parts.append(f'<path class="grid" d="M{p:.1f} {TOP}V{BOTTOM}"/>')
        parts.append(f'<text class="tick" x="{p:.1f}" y="{BOTTOM + 15}" text-anchor="middle">{x.tick_text(value)}</text>')
    for value in y.ticks(*y_range):
        q = y.place(value, *y_range, BOTTOM, TOP)
        parts.append(f'<path class="grid" d="M{LEFT} {q:.1f}H{RIGHT}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{q + 4:.1f}" text-anchor="end">{y.tick_text(value)}</text>')
    middle = (TOP + BOTTOM) / 2
    parts.append(f'<text class="tick" x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 33}" text-anchor="middle">{escape(x.label)}</text>')
    turned = f'transform="translate(14 {middle}) rotate(-90)" text-anchor="middle"'
    return [*parts, f'<text class="tick" {turned}>{escape(y.label)}</text>']


def _line(points: Sequence[tuple[float, float]], look: Look) -> str:
    way = "L".join(f"{p:.1f} {q:.1f}" for p, q in points)
    dash = f' stroke-dasharray="{look.dash}"' if look.dash else ""
    return f'<path class="line {look.colour}" d="M{way}"{dash}/>'


def mark(p: float, q: float, look: Look, hollow: bool = False, says: str = "", size: float = 4.5) -> str:
    """One point of a series as SVG; `says` is what it tells when the pointer rests on it."""
    r, d, e = size, 1.3 * size, 1.2 * size
    shapes = {
        "circle": f"M{p - r:.1f} {q:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0Z",
        "triangle": f"M{p:.1f} {q - r * 1.2:.1f}l{r * 1.1:.1f} {r * 2:.1f}h{-r * 2.2:.1f}Z",
        "diamond": f"M{p:.1f} {q - d:.1f}l{e:.1f} {d:.1f}l{-e:.1f} {d:.1f}l{-e:.1f} {-d:.1f}Z",
        "square": f"M{p - r:.1f} {q - r:.1f}h{2 * r}v{2 * r}h{-2 * r}Z",
        "cross": f"M{p - r:.1f} {q - r:.1f}l{2 * r} {2 * r}m0 {-2 * r}l{-2 * r} {2 * r}",
    }
    kind = "hollow" if hollow or look.mark == "cross" else "dot"
    words = f"<title>{escape(says)}</title>" if says else ""
    return f'<path class="{kind} {look.colour}" d="{shapes[look.mark]}">{words}</path>'


def _legend_entry(k: int, s: Series, joined: bool) -> str:
    p = 16 + (k % LEGEND_COLUMNS) * (WIDTH - 16) / LEGEND_COLUMNS
    q = LEGEND_TOP + LEGEND_ROW * (k // LEGEND_COLUMNS)
    sign = _line([(p, q), (p + 22, q)], s.look) if joined else ""
    return (
        sign
        + mark(p + 11, q, s.look, s.hollow, size=3.5)
        + f'<text class="tick" x="{p + 27}" y="{q + 4}">{escape(s.label)}</text>'
    )


def svg(width: float, height: float, body: str, title: str) -> str:
    """A picture that is styled by figures.css, in the page and alone."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" class="figure" role="img"'
    return f'{head} aria-label="{escape(title)}">\n{body}\n</svg>\n'
