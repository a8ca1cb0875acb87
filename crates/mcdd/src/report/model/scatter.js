// The scatter plot: zoom, pan, select a row.

const SHAPES = [
  (x, y, r) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`,
  (x, y, r) => `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}z`,
  (x, y, r) => `M${x} ${y - 1.3 * r}l${1.2 * r} ${2.1 * r}h${-2.4 * r}z`,
  (x, y, r) => `M${x} ${y - 1.4 * r}l${1.4 * r} ${1.4 * r}l${-1.4 * r} ${1.4 * r}l${-1.4 * r} ${-1.4 * r}z`,
];
const UNKNOWN_SHAPES = [
  (x, y, r) => `M${x - r} ${y - r}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}`,
  (x, y, r) => `M${x - r} ${y}h${2 * r}m${-r} ${-r}v${2 * r}`,
  (x, y, r) => `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}z`,
  (x, y, r) => `M${x} ${y - 1.4 * r}l${1.4 * r} ${1.4 * r}l${-1.4 * r} ${1.4 * r}l${-1.4 * r} ${-1.4 * r}z`,
  (x, y, r) => `M${x} ${y - 1.3 * r}l${1.2 * r} ${2.1 * r}h${-2.4 * r}z`,
  (x, y, r) => `M${x - r} ${y}h${2 * r}m${-r} ${-r}v${2 * r}m${-r * 0.7} ${-r * 1.7}l${r * 1.4} ${r * 1.4}m0 ${-r * 1.4}l${-r * 1.4} ${r * 1.4}`,
];
const shapeOf = i => i < firstSet() ? SHAPES[i % SHAPES.length] : UNKNOWN_SHAPES[(i - firstSet()) % UNKNOWN_SHAPES.length];
const MEAN = (x, y) => `M${x - 2} ${y - 7}h4v5h5v4h-5v5h-4v-5h-5v-4h5z`;

/** Which series of the plot a point belongs to: its class, or its unknown set. */
const firstSet = () => Math.max(1, R.classes.length);
const seriesOf = p => p.set === 0 ? p.class ?? 0 : firstSet() + p.set - 1;

function scatter(box, show) {
  const [x0, y0, side] = R.plane.view;
  const view = { x: x0 + side / 2, y: y0 + side / 2, side };
  const root = svg('svg', { tabindex: 0, role: 'application', 'aria-label': 'Rows in the latent space; arrow keys move from row to row' });
  box.append(root);
  const names = [...(R.classes.length ? R.classes.map(c => c.name) : ['known rows']), ...R.sets.map(s => s.name)];
  const groups = names.map((_, i) => R.points.filter(p => seriesOf(p) === i));
  let width = 0, height = 0, only = null, chosen = -1;
  const scale = () => Math.min(width, height) / view.side;
  const toX = v => width / 2 + (v - view.x) * scale();
  const toY = v => height / 2 - (v - view.y) * scale();
  const seen = ([x, y]) => x > -20 && x < width + 20 && y > -20 && y < height + 20;
  const place = p => [toX(p.at[0]), toY(p.at[1])];

  function draw() {
    width = Math.max(260, box.clientWidth);
    height = Math.round(Math.min(620, Math.max(300, width * 0.72)));
    root.setAttribute('viewBox', `0 0 ${width} ${height}`);
    root.setAttribute('height', height);
    const parts = [];
    axes(parts);
    groups.forEach((points, i) => {
      const known = i < firstSet();
      const shape = shapeOf(i);
      const r = known ? 3.4 : 3.2;
      let d = '';
      for (const p of points) {
        const at = place(p);
        if (seen(at)) d += shape(at[0].toFixed(1) * 1, at[1].toFixed(1) * 1, r);
      }
      const path = svg('path', { d, class: (known ? 'dots' : 'crosses') + (only === null || only === i ? '' : ' faded') });
      if (known) {
        path.style.fill = `var(--s${i % 10})`;
        path.style.stroke = `color-mix(in srgb, var(--s${i % 10}) 55%, var(--ink))`;
      }
      parts.push(path);
    });
    R.classes.forEach((c, i) => {
      if (!c.mean || (only !== null && only !== i)) return;
      const [x, y] = [toX(c.mean[0]), toY(c.mean[1])], r = (c.circle || 0) * scale();
      if (r > 1 && r < 1e5) {
        const circle = svg('circle', { class: 'sphere', cx: x, cy: y, r });
        circle.style.stroke = `var(--s${i % 10})`;
        parts.push(circle);
      }
    });
    const taken = [];
    R.classes.forEach((c, i) => {
      if (!c.mean || (only !== null && only !== i)) return;
      const [x, y] = [toX(c.mean[0]), toY(c.mean[1])];
      if (!seen([x, y])) return;
      parts.push(svg('path', { class: 'mean', d: MEAN(x, y) }));
      const text = c.name.length > 16 ? c.name.slice(0, 15) + '…' : c.name;
      const put = { x: x - 4 * text.length, y: y - 24, w: 8 * text.length + 4, h: 16 };
      if (taken.some(t => t.x < put.x + put.w && put.x < t.x + t.w && t.y < put.y + put.h && put.y < t.y + t.h)) return;
      taken.push(put);
      parts.push(svg('text', { class: 'name', x, y: y - 11, 'text-anchor': 'middle' }, text));
    });
    if (chosen >= 0) {
      const [x, y] = place(R.points[chosen]);
      parts.push(svg('circle', { class: 'ring', cx: x, cy: y, r: 8 }));
    }
    root.replaceChildren(...parts);
  }

  function axes(parts) {
    const half = [width / 2 / scale(), height / 2 / scale()];
    for (const t of ticks(view.x - half[0], view.x + half[0], width / 110)) {
      parts.push(svg('path', { class: 'grid', d: `M${toX(t)} 0V${height}` }), svg('text', { x: toX(t) + 3, y: height - 5 }, number(Number(t.toPrecision(6)))));
    }
    for (const t of ticks(view.y - half[1], view.y + half[1], height / 90)) {
      parts.push(svg('path', { class: 'grid', d: `M0 ${toY(t)}H${width}` }), toY(t) > 40 ? svg('text', { x: 4, y: toY(t) - 4 }, number(Number(t.toPrecision(6)))) : '');
    }
    parts.push(svg('text', { x: width - 6, y: height - 22, 'text-anchor': 'end' }, R.plane.axes[0] + ' →'), svg('text', { x: 8, y: 18 }, '↑ ' + R.plane.axes[1]));
  }

  let waiting = false;
  function later() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  }
  function choose(i) {
    if (i === chosen) return;
    chosen = i;
    if (i >= 0) show(R.points[i]);
    later();
  }
  /** Zooms around (x, y). */
  function zoom(factor, x = width / 2, y = height / 2) {
    const side0 = view.side;
    view.side = Math.max(side * 1e-6, Math.min(side * 1e6, side0 / factor));
    const k = (side0 - view.side) / Math.min(width, height);
    view.x += (x - width / 2) * k;
    view.y -= (y - height / 2) * k;
    later();
  }
  function near(x, y, most) {
    let best = -1, least = most * most;
    R.points.forEach((p, i) => {
      if (only !== null && seriesOf(p) !== only) return;
      const [a, b] = place(p), d = (a - x) ** 2 + (b - y) ** 2;
      if (d < least) { least = d; best = i; }
    });
    return best;
  }
  const local = e => {
    const r = root.getBoundingClientRect();
    return [(e.clientX - r.left) * width / r.width, (e.clientY - r.top) * height / r.height];
  };

  const fingers = new Map();
  let moved = 0;
  root.addEventListener('pointerdown', e => {
    fingers.set(e.pointerId, local(e));
    moved = 0;
    try { root.setPointerCapture(e.pointerId); } catch { /* a pointer that is gone */ }
  });
  root.addEventListener('pointermove', e => {
    const to = local(e), from = fingers.get(e.pointerId);
    if (!from) {
      const i = near(...to, 14);
      if (i >= 0) choose(i);
      return;
    }
    const apart = () => { const [a, b] = [...fingers.values()]; return Math.hypot(a[0] - b[0], a[1] - b[1]) || 1; };
    const before = fingers.size === 2 ? apart() : 0;
    fingers.set(e.pointerId, to);
    moved += Math.abs(to[0] - from[0]) + Math.abs(to[1] - from[1]);
    const part = 1 / fingers.size;
    view.x -= (to[0] - from[0]) / scale() * part;
    view.y += (to[1] - from[1]) / scale() * part;
    if (fingers.size === 2) {
      const [a, b] = [...fingers.values()];
      zoom(apart() / before, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2);
    }
    later();
  });
  const up = e => {
    const at = fingers.get(e.pointerId);
    fingers.delete(e.pointerId);
    if (at && moved < 6 && e.type === 'pointerup') {
      const i = near(...at, 24);
      if (i >= 0) choose(i);
    }
  };
  root.addEventListener('pointerup', up);
  root.addEventListener('pointercancel', up);
  // The wheel zooms only after a click, so that scrolling the page does not zoom.
  root.addEventListener('wheel', e => {
    if (document.activeElement !== root && !e.ctrlKey) return;
    e.preventDefault();
    zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.002)), ...local(e));
  }, { passive: false });
  root.addEventListener('keydown', e => {
    const count = R.points.length;
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
    if (step && count) choose(((chosen < 0 && step < 0 ? 0 : chosen) + step + count) % count);
    else if (e.key === '+' || e.key === '=') zoom(1.5);
    else if (e.key === '-') zoom(1 / 1.5);
    else return;
    e.preventDefault();
  });
  $('in').addEventListener('click', () => zoom(1.6));
  $('out').addEventListener('click', () => zoom(1 / 1.6));
  $('all').addEventListener('click', () => { Object.assign(view, { x: x0 + side / 2, y: y0 + side / 2, side }); later(); });
  window.addEventListener('resize', draw);
  window.addEventListener('beforeprint', draw);
  draw();

  /** A button for each series, which shows it alone. */
  const buttons = groups.map((points, i) => {
    const known = i < firstSet();
    const mark = svg('path', { d: shapeOf(i)(12, 8, 5), class: known ? '' : 'crosses' });
    if (known) mark.style.fill = `var(--s${i % 10})`;
    const text = names[i] + (known ? '' : ' (unknown)');
    const button = el('button', { type: 'button', 'aria-pressed': 'false' },
      el('span', { class: 'key' }, svg('svg', { viewBox: '0 0 24 16', 'aria-hidden': 'true' }, mark), bdi(text)));
    button.addEventListener('click', () => {
      only = only === i ? null : i;
      buttons.forEach((b, j) => b.setAttribute('aria-pressed', only === j));
      later();
    });
    return button;
  });
  $('legend').append(...buttons.filter((_, i) => groups[i].length));
  return { choose };
}
