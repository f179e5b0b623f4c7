// Worlds of discs: drag the start or the target, the shortest path follows, and its certificate is checked anew.

function planningScene(figure, scene) {
  let graph, ends, path, held = 1, time = 1;
  const picture = new Picture(figure, "A box with discs and a shortest path; drag the start or the target", (w) => 0.75 * w, draw);
  picture.canvas.classList.add("drag");
  const told = make(picture.controls, "output");
  choice(picture, "World", scene.cases.map((c) => c.title), (k) => {
    graph = prepare(scene.cases[k].world);
    ends = [scene.cases[k].start, scene.cases[k].target];
    replan();
  });
  playback(picture, 3, "along the path", (t) => (time = t));
  legend(picture, [["true", "start"], ["faa", "target"]]);
  make(picture.controls, "output", { className: "quiet", textContent: agreement(scene.cases) });

  function replan() {
    path = plan(graph, ...ends);
    const length = path.length.toFixed(4), least = path.least.toExponential(1);
    told.dataset.certified = path.certified;
    told.textContent = path.certified
      ? `Certified: length ${length}, ${path.clearance.length} segments, none nearer than ${least} to a disc or wall.`
      : "No certificate: there is no free way to this target.";
    picture.redraw();
  }

  const frame = (width) => {
    const [low, high] = graph.world.box, scale = (width - 8) / (high[0] - low[0]);
    return {
      at: (p) => [4 + scale * (p[0] - low[0]), 4 + scale * (high[1] - p[1])],
      from: (q) => [low[0] + (q[0] - 4) / scale, high[1] - (q[1] - 4) / scale],
      scale,
    };
  };
  picture.onDrag((q) => {
    const f = frame(picture.canvas.clientWidth), [s, t] = ends.map((p) => distance(f.at(p), q));
    held = s < t ? 0 : 1;
    moveTo(q);
  }, moveTo);

  function moveTo(q) {
    const p = nearestFree(graph, frame(picture.canvas.clientWidth).from(q));
    if (!p) return;
    ends[held] = p;
    ends = [...ends];
    replan();
  }

  function draw(context, width, height) {
    const { at, scale } = frame(width), [low, high] = graph.world.box;
    const [x0, y0] = at([low[0], high[1]]), [x1, y1] = at([high[0], low[1]]);
    context.save();
    context.beginPath();
    context.rect(x0, y0, x1 - x0, y1 - y0);
    context.clip();
    for (const [x, y, r] of graph.world.discs) spot(context, at([x, y]), scale * r, colour("grid"));
    context.restore();
    stroke(context, [[x0, y0], [x1, y0], [x1, y1], [x0, y1], [x0, y0]], colour("quiet"), 1);
    if (path.certified) {
      stroke(context, path.points.map(at), colour("iaa"), 2.5);
      spot(context, at(along(path.points, time * path.length)), 5, colour("iaa"));
    }
    spot(context, at(ends[0]), 8, colour("true"));
    spot(context, at(ends[1]), 8, colour("faa"));
  }
}

// The point of a polygon at a distance from its start.
function along(points, far) {
  for (let k = 1; k < points.length; k++) {
    const step = distance(points[k - 1], points[k]);
    if (far < step) return points[k - 1].map((v, i) => v + (far / step) * (points[k][i] - v));
    far -= step;
  }
  return points[points.length - 1];
}

// A free point near p: into the box, then out of the disc that p is in, until it is in none; null if that does not end.
function nearestFree(graph, p) {
  const margin = 1e-3 * graph.unit, [low, high] = graph.world.box;
  for (let round = 0; round < 20; round++) {
    p = p.map((v, k) => Math.min(high[k] - margin, Math.max(low[k] + margin, v)));
    const inside = graph.world.discs.find(([x, y, r]) => r > 0 && distance(p, [x, y]) < r + margin / 2);
    if (!inside) return p;
    p = around(inside, inside[2] + margin, Math.atan2(p[1] - inside[1], p[0] - inside[0]));
  }
  return null;
}

// What the library found for the recorded queries, against what this page finds.
function agreement(cases) {
  const differ = cases.filter((c) => {
    const path = plan(prepare(c.world), c.start, c.target);
    return path.certified !== c.library.certified || Math.abs(path.length - c.library.length) > 1e-7;
  });
  return differ.length
    ? `On ${differ.length} of ${cases.length} recorded queries this page and the library differ.`
    : `On all ${cases.length} recorded queries this page and the library agree in length and certificate.`;
}
