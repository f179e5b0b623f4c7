// Rotations as frames of three axes that move from layer to layer; the targets stay behind them, dashed.

function framesScene(figure, scene, view) {
  const bodies = scene.target.length;
  const columns = (width) => (width < 520 ? Math.ceil(bodies / 2) : bodies);
  const cell = (width) => Math.min(112, (width - 8) / columns(width));
  const laneHeight = (width) => 24 + cell(width) * Math.ceil(bodies / columns(width));
  let time = 1;
  const picture = new Picture(figure, "Frames that move from layer to layer", (w) => scene.lanes.length * laneHeight(w) + 8, draw);
  turnable(picture, view);
  playback(picture, 4, "from the input to the output", (t) => (time = t));

  function draw(context, width) {
    scene.lanes.forEach((lane, k) => {
      const top = k * laneHeight(width) + 18, size = cell(width);
      const last = lane.frames.length - 1, shown = lane.frames[Math.round(time * last)];
      context.fillStyle = colour(lane.note ? "off" : "ink");
      context.fillText(lane.title + (lane.note && `: ${lane.note}`), 4, top);
      for (let j = 0; j < bodies; j++) {
        const column = j % columns(width), row = Math.floor(j / columns(width));
        const middle = [4 + size * (column + 0.5), top + 6 + size * (row + 0.5)];
        context.setLineDash([2, 3]);
        axes(context, middle, scene.target[j], 0.42 * size, 1);
        context.setLineDash([]);
        axes(context, middle, shown[j], 0.42 * size, 2.4);
      }
    });
  }

  function axes(context, middle, ends, size, width) {
    ["off", "true", "iaa"].forEach((name, k) => {
      const [x, y] = picture.see(ends[k]);
      stroke(context, [middle, [middle[0] + size * x, middle[1] + size * y]], colour(name), width);
    });
  }
}
