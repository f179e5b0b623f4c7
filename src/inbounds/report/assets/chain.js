// A protein's backbone to turn: the true one as a line, each residue as it was predicted from the one before it.

function chainScene(figure, scene, view) {
  let row = scene.rows[0];
  const picture = new Picture(figure, "A protein backbone, predicted and true; drag to turn it", (w) => Math.min(w, 520), draw);
  turnable(picture, view);
  const told = make(picture.controls, "output");
  choice(picture, "Row", scene.rows.map((r) => r.title), (k) => {
    row = scene.rows[k];
    const off = row.off.filter(Boolean).length;
    told.textContent = `Mean distance to the true residue: ${row.error} Å. ${off} of ${row.off.length} predicted frames are not rigid.`;
  }, bestInside(scene.rows));
  legend(picture, [["true", "true"], ["faa", "predicted"]]);

  function draw(context, width, height) {
    const size = 0.44 * Math.min(width, height);
    const at = (p) => {
      const [x, y, near] = picture.see(p);
      return [width / 2 + size * x, height / 2 + size * y, near];
    };
    const fade = (near) => 0.45 + 0.5 * Math.max(0, Math.min(1, (near + 1) / 2));
    const places = scene.true.map(at);
    for (let k = 1; k < places.length; k++)
      stroke(context, [places[k - 1], places[k]], colour("true"), 2.5, fade(places[k][2]));
    row.places.map(at).forEach((b, k) => {
      stroke(context, [places[k], b], colour("faa"), 1, 0.6 * fade(b[2]));
      spot(context, b, 2.6, colour("faa"), fade(b[2]));
    });
  }
}
