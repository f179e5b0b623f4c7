// The shortest path around discs in a box, and the certificate of a path. No drawing: the same file is tested by itself.
//
// A world is {box: [low, high], discs: [[x, y, radius], ...]}. A shortest path is straight but for arcs of the rims of discs,
// which it enters and leaves along tangents. So the search goes over straight ways: from the start to a rim, from rim to rim,
// from a rim to the target. Two ways follow each other if one arrives on the rim and side that the other leaves from, and the
// arc between them is free.
//
// The search sees discs that are thicker by THICKER, so that rounding does no harm, and gaps narrower than twice that are
// closed. Arcs become polygons around the thicker discs. The certificate then looks at the true discs.

const TURN = 2 * Math.PI;
const THICKER = 1e-8; // of a quarter of the box's longer side
const ANGLE = 1e-9; // radians: rim points so near to each other are one
const CORNERS = [0.02, 0.02 / 8, 0.02 / 64]; // sides of polygons, tried in turn, as parts of the same unit

const minus = (a, b) => [a[0] - b[0], a[1] - b[1]];
const distance = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
const around = (c, r, angle) => [c[0] + r * Math.cos(angle), c[1] + r * Math.sin(angle)];
const wrap = (angle) => ((angle % TURN) + TURN) % TURN;
const unitOf = (world) => Math.max(...minus(world.box[1], world.box[0])) / 4;

// --- the certificate ---------------------------------------------------------------------------------------
function toWalls(world, p) {
  const [low, high] = world.box;
  return Math.min(p[0] - low[0], p[1] - low[1], high[0] - p[0], high[1] - p[1]);
}

function toSegment(c, a, b) {
  const d = minus(b, a), w = minus(c, a);
  const along = (w[0] * d[0] + w[1] * d[1]) / Math.max(d[0] * d[0] + d[1] * d[1], 1e-300);
  const t = Math.min(1, Math.max(0, along));
  return Math.hypot(w[0] - t * d[0], w[1] - t * d[1]);
}

// The least distance of the segment from discs and walls, negative inside. A box is convex: its ends speak for the walls.
function clearance(world, a, b) {
  let least = Math.min(toWalls(world, a), toWalls(world, b));
  for (const [x, y, r] of world.discs) if (r > 0) least = Math.min(least, toSegment([x, y], a, b) - r);
  return least;
}

// What a path is worth: whether it ends at the target, and the clearance of every one of its segments.
function certificate(world, points, target) {
  const clear = [];
  let length = 0;
  for (let k = 1; k < points.length; k++) {
    clear.push(clearance(world, points[k - 1], points[k]));
    length += distance(points[k - 1], points[k]);
  }
  const reached = distance(points[points.length - 1], target) === 0;
  const least = clear.length ? Math.min(...clear) : clearance(world, points[0], points[0]);
  return { clearance: clear, least, length, reached, certified: reached && least >= 0 };
}

// --- the graph of straight ways ----------------------------------------------------------------------------
// The straight way that leaves circle i with it on its left (side 1) or right (-1), and meets circle j likewise.
function tangent(ci, ri, si, cj, rj, sj) {
  const D = minus(cj, ci), k = sj * rj - si * ri;
  const L2 = D[0] * D[0] + D[1] * D[1];
  if (!(L2 > 0) || L2 < k * k * (1 - 1e-12)) return null;
  const root = Math.sqrt(Math.max(0, L2 - k * k));
  const normal = [(k * D[0] - root * D[1]) / L2, (k * D[1] + root * D[0]) / L2];
  const a = [ci[0] - si * ri * normal[0], ci[1] - si * ri * normal[1]];
  const b = [cj[0] - sj * rj * normal[0], cj[1] - sj * rj * normal[1]];
  return { a, b, length: root };
}

// Which parts of the rim of disc i other discs and the walls hide: [middle, half width] of angles.
function hidden(thick, i) {
  const [x, y, r] = thick.discs[i], [low, high] = thick.box, parts = [];
  thick.discs.forEach(([u, v, s], k) => {
    const L = Math.hypot(u - x, v - y);
    if (k === i || s <= 0 || L >= r + s || L <= r - s) return;
    const half = L <= s - r ? Math.PI : Math.acos(Math.min(1, Math.max(-1, (r * r + L * L - s * s) / (2 * r * L))));
    parts.push([Math.atan2(v - y, u - x), half]);
  });
  const walls = [[Math.PI, x - low[0]], [-Math.PI / 2, y - low[1]], [0, high[0] - x], [Math.PI / 2, high[1] - y]];
  for (const [middle, gap] of walls) if (gap < r) parts.push([middle, Math.acos(Math.max(-1, gap / r))]);
  return parts;
}

// The angle from start to end, counterclockwise for side 1; infinite where something hides a part of the rim between them.
function sweepOf(parts, side, start, end) {
  let sweep = wrap(side * (end - start));
  if (sweep > TURN - ANGLE) sweep = 0;
  for (const [middle, half] of parts) {
    const ahead = wrap(side * (middle - start));
    if ((ahead - half < sweep - ANGLE && ahead + half > ANGLE) || ahead + half > TURN + ANGLE) return Infinity;
  }
  return sweep;
}

// A world made ready for queries: its thicker discs, what hides their rims, the free tangents between them.
function prepare(world) {
  const unit = unitOf(world), tol = 4e-9 * unit;
  const discs = world.discs.filter((d) => d[2] > 0).map(([x, y, r]) => [x, y, r + THICKER * unit]);
  const thick = { box: world.box, discs };
  const graph = { world, thick, unit, tol, hidden: discs.map((_, i) => hidden(thick, i)), ways: [] };
  for (let i = 0; i < discs.length; i++)
    for (let j = 0; j < discs.length; j++)
      if (i !== j) for (const si of [1, -1]) for (const sj of [1, -1]) addWay(graph, graph.ways, rim(graph, i, si), rim(graph, j, sj));
  return graph;
}

const rim = (graph, disc, side) => ({ disc, side, c: graph.thick.discs[disc].slice(0, 2), r: graph.thick.discs[disc][2] });
const point = (p) => ({ disc: -1, side: 1, c: p, r: 0 });

function addWay(graph, ways, from, to) {
  const t = tangent(from.c, from.r, from.side, to.c, to.r, to.side);
  if (!t || clearance(graph.thick, t.a, t.b) < -graph.tol) return;
  const angle = (end, p) => (end.disc < 0 ? 0 : Math.atan2(p[1] - end.c[1], p[0] - end.c[0]));
  ways.push({ from, to, a: t.a, b: t.b, length: t.length, leave: angle(from, t.a), arrive: angle(to, t.b) });
}

// Dijkstra's algorithm over ways. Returns those of a shortest path, with the arcs between them; null if there is none.
function search(graph, start, target) {
  const ways = [...graph.ways], p = point(start), q = point(target);
  addWay(graph, ways, p, q);
  graph.thick.discs.forEach((_, i) => {
    for (const side of [1, -1]) {
      addWay(graph, ways, p, rim(graph, i, side));
      addWay(graph, ways, rim(graph, i, side), q);
    }
  });
  const cost = ways.map((w) => (w.from === p ? w.length : Infinity));
  const before = ways.map(() => -1), open = new Set(ways.keys());
  for (;;) {
    let k = -1;
    for (const w of open) if (cost[w] < (k < 0 ? Infinity : cost[k])) k = w;
    if (k < 0) return null;
    if (ways[k].to === q) return { length: cost[k], ways: trace(ways, before, k) };
    open.delete(k);
    const { disc, side } = ways[k].to;
    for (const n of open) {
      const next = ways[n];
      if (next.from.disc !== disc || next.from.side !== side) continue;
      const far = cost[k] + next.from.r * sweepOf(graph.hidden[disc], side, ways[k].arrive, next.leave) + next.length;
      if (far < cost[n]) [cost[n], before[n]] = [far, k];
    }
  }
}

function trace(ways, before, k) {
  const found = [];
  for (; k >= 0; k = before[k]) found.unshift(ways[k]);
  return found;
}

// --- paths -------------------------------------------------------------------------------------------------
// Corners outside of a rim, whose sides touch it.
function polygon(graph, way, next, corner) {
  const { c, r, disc, side } = way.to;
  const sweep = sweepOf(graph.hidden[disc], side, way.arrive, next.leave);
  const sides = Math.max(1, Math.ceil(sweep / Math.min(0.2, (corner * graph.unit) / r)));
  const step = sweep / sides;
  return Array.from({ length: sides }, (_, k) => around(c, r / Math.cos(step / 2), way.arrive + side * step * (k + 0.5)));
}

// The point itself, or just outside of the thicker disc whose skin it is in.
function outOfSkin(graph, p) {
  for (let round = 0; round < 4; round++) {
    const d = graph.thick.discs.find(([x, y, r]) => distance(p, [x, y]) < r);
    if (!d) return p;
    p = around(d, d[2] + 1e-10 * graph.unit, Math.atan2(p[1] - d[1], p[0] - d[0]));
  }
  return p;
}

// The shortest path of a prepared world from start to target: {points, exact, ...certificate}. `exact` is the length of the
// smooth path, infinite if there is none: then the only point is the start.
function plan(graph, start, target) {
  const { world } = graph;
  const nowhere = { points: [start], exact: Infinity, ...certificate(world, [start], target) };
  if (clearance(world, start, start) < 0 || clearance(world, target, target) < 0) return { ...nowhere, certified: false };
  const far = distance(start, target);
  if (!far || clearance(graph.thick, start, target) >= -graph.tol) return pathOf(world, [start, target], far, target);
  const a = outOfSkin(graph, start), b = outOfSkin(graph, target);
  const found = search(graph, a, b);
  if (!found) return { ...nowhere, certified: false };
  const exact = distance(start, a) + found.length + distance(b, target);
  for (const corner of CORNERS) {
    const points = [start];
    if (a !== start) points.push(a);
    for (let k = 0; k + 1 < found.ways.length; k++) points.push(...polygon(graph, found.ways[k], found.ways[k + 1], corner));
    if (b !== target) points.push(b);
    const path = pathOf(world, [...points, target], exact, target);
    if (path.certified || corner === CORNERS[CORNERS.length - 1]) return path;
  }
}

function pathOf(world, points, exact, target) {
  return { points, exact, ...certificate(world, points, target) };
}

if (typeof module !== "undefined") module.exports = { prepare, plan, certificate, clearance };
