// What every moving picture needs: a canvas that fits its figure and its theme, turning by hand, playback, a choice of rows.

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function make(parent, tag, properties = {}) {
  const element = Object.assign(document.createElement(tag), properties);
  parent.append(element);
  return element;
}

// A canvas in place of the figure's still. `draw(context, width, height)` paints it, in units of CSS pixels.
class Picture {
  constructor(figure, label, shape, draw) {
    Object.assign(this, { figure, shape, draw });
    this.canvas = make(figure, "canvas", { tabIndex: 0 });
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", label);
    this.controls = make(figure, "div", { className: "controls" });
    figure.append(...figure.querySelectorAll("figcaption"));
    figure.classList.add("live");
    new ResizeObserver(() => this.redraw()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    this.redraw();
  }

  redraw() {
    if (this.asked) return;
    this.asked = requestAnimationFrame(() => {
      this.asked = 0;
      this.paint();
    });
  }

  paint() {
    const width = this.canvas.clientWidth, height = this.shape(width), scale = window.devicePixelRatio || 1;
    if (!width) return;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    const context = this.canvas.getContext("2d");
    context.scale(scale, scale);
    context.lineCap = context.lineJoin = "round";
    context.font = '13px system-ui, "DejaVu Sans", sans-serif';
    this.draw(context, width, height);
  }

  // Pointer positions in the canvas, while a button or a finger is down.
  onDrag(begin, move) {
    const at = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      this.held = true;
      begin(at(event));
    });
    this.canvas.addEventListener("pointermove", (event) => this.held && move(at(event)));
    for (const end of ["pointerup", "pointercancel"]) this.canvas.addEventListener(end, () => (this.held = false));
  }
}

// --- turning -----------------------------------------------------------------------------------------------
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const mix = (a, s, b, t) => a.map((v, k) => s * v + t * b[k]);

// Drag, or use the arrow keys: the view turns about the screen's axes. The picture gets `see(point)`: right, down, near.
function turnable(picture, view) {
  let [right, up, near] = view;
  let last;
  picture.see = (p) => [dot(right, p), -dot(up, p), dot(near, p)];
  const turn = (across, down) => {
    const [c, s, d, e] = [Math.cos(across), Math.sin(across), Math.cos(down), Math.sin(down)];
    [right, near] = [mix(right, c, near, s), mix(near, c, right, -s)];
    [up, near] = [mix(up, d, near, -e), mix(near, d, up, e)];
    picture.redraw();
  };
  picture.canvas.classList.add("turn");
  picture.onDrag((at) => (last = at), (at) => {
    turn((at[0] - last[0]) / 150, (at[1] - last[1]) / 150);
    last = at;
  });
  const keys = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] };
  picture.canvas.addEventListener("keydown", (event) => {
    if (!keys[event.key]) return;
    event.preventDefault();
    turn(...keys[event.key]);
  });
}

// --- controls ----------------------------------------------------------------------------------------------
// A button and a slider that move `show(t)` from 0 to 1 in some seconds.
function playback(picture, seconds, words, show) {
  const button = make(picture.controls, "button", { type: "button", textContent: "Play" });
  const slider = make(picture.controls, "input", { type: "range", min: 0, max: 1000, value: 1000 });
  slider.setAttribute("aria-label", words);
  let playing = false, last = 0, time = 1;
  const set = (t) => {
    time = t;
    slider.value = Math.round(1000 * t);
    show(t);
    picture.redraw();
  };
  const step = (now) => {
    if (!playing) return;
    set(Math.min(1, time + Math.max(0, now - last) / (1000 * seconds)));
    last = now;
    if (time < 1) requestAnimationFrame(step);
    else stop();
  };
  const stop = () => {
    playing = false;
    button.textContent = "Play";
  };
  button.addEventListener("click", () => {
    if (playing) return stop();
    playing = true;
    button.textContent = "Pause";
    if (time >= 1) set(0);
    last = performance.now();
    requestAnimationFrame(step);
  });
  slider.addEventListener("input", () => {
    stop();
    set(slider.value / 1000);
  });
  set(1);
}

// A list to choose from; `chosen(index)` is called at once with the first.
function choice(picture, words, titles, chosen, first = 0) {
  const label = make(picture.controls, "label", { textContent: `${words} ` });
  const select = make(label, "select");
  titles.forEach((title, k) => make(select, "option", { textContent: title, value: k }));
  select.value = first;
  select.addEventListener("change", () => {
    chosen(Number(select.value));
    picture.redraw();
  });
  chosen(first);
}

// The row that is shown first: the most accurate of those that stay in the set.
function bestInside(rows) {
  const inside = rows.filter((r) => !r.off.some(Boolean));
  const best = (inside.length ? inside : rows).reduce((a, b) => (b.error < a.error ? b : a));
  return rows.indexOf(best);
}

function legend(picture, entries) {
  for (const [name, text] of entries) {
    const span = make(picture.controls, "span");
    make(span, "span", { className: "swatch" }).style.background = `var(--${name})`;
    span.append(text);
  }
}

// --- strokes -----------------------------------------------------------------------------------------------
function stroke(context, points, style, width = 1.5, alpha = 1) {
  context.globalAlpha = alpha;
  context.strokeStyle = style;
  context.lineWidth = width;
  context.beginPath();
  points.forEach(([x, y], k) => (k ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.stroke();
  context.globalAlpha = 1;
}

function spot(context, [x, y], radius, style, alpha = 1) {
  context.globalAlpha = alpha;
  context.fillStyle = style;
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
  context.globalAlpha = 1;
}
