// A sphere to turn: the field that moves points, where test points end, and where a row of the table says they end.

function sphereScene(figure, scene, view) {
  let row = scene.rows[0];
  const picture = new Picture(figure, "A sphere with true and predicted end points; drag to turn it", (w) => Math.min(w, 560), draw);
  turnable(picture, view);
  const told = make(picture.controls, "output");
  choice(picture, "Row", scene.rows.map((r) => r.title), (k) => {
    row = scene.rows[k];
    const off = row.off.filter(Boolean).length;
    told.textContent = `Mean distance to the true point: ${row.error}. ${off} of ${row.off.length} predictions are off the sphere.`;
  }, bestInside(scene.rows));
  legend(picture, [["true", "true"], ["iaa", "predicted"], ["off", "predicted, off the sphere"]]);

  function draw(context, width, height) {
    const size = 0.4 * Math.min(width, height);
    const at = (p) => {
      const [x, y, near] = picture.see(p);
      return [width / 2 + size * x, height / 2 + size * y, near];
    };
    const fade = (near) => (near > 0 ? 1 : 0.15);
    spot(context, [width / 2, height / 2], size, colour("grid"), 0.35);
    context.strokeStyle = colour("grid");
    context.lineWidth = 1.5;
    context.beginPath();
    context.arc(width / 2, height / 2, size, 0, 2 * Math.PI);
    context.stroke();
    for (const [p, v] of scene.field) {
      const a = at(p);
      stroke(context, [a, at(p.map((x, k) => x + 0.07 * v[k]))], colour("free"), 1.2, 0.8 * fade(a[2]));
      spot(context, a, 1.4, colour("free"), 0.8 * fade(a[2]));
    }
    scene.true.forEach((p, k) => {
      const a = at(p), b = at(row.ends[k]), style = colour(row.off[k] ? "off" : "iaa"), alpha = fade(a[2]);
      stroke(context, [a, b], style, 1.2, alpha);
      spot(context, a, 3.5, colour("true"), alpha);
      spot(context, b, 3.5, style, alpha);
    });
  }
}
