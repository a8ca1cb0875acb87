// Elements, number formats, and charts as SVG.

const $ = id => document.getElementById(id);

/** Text is inserted as text only, never as markup. */
function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value !== undefined && value !== null) node.setAttribute(key, value);
  }
  for (const child of children) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
/** A name from a file; its text direction does not affect its surroundings. */
const bdi = text => el('bdi', { title: text }, text);

const thousands = n => n.toLocaleString('en');
/** With two decimals, as mcdd evaluate prints it: of two equally near numbers the even one. */
function percent(fraction) {
  const value = 100 * fraction, eighths = 8 * value;
  return (eighths % 4 === 1 ? value - 0.001 : value).toFixed(2) + '%';
}
function number(v) {
  if (v === null || v === undefined) return '–';
  const size = Math.abs(v);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return v.toExponential(2).replace('-', '−');
  return String(Number(v.toPrecision(4))).replace('-', '−');
}

/** Multiples of 1, 2 or 5 times a power of ten. */
function ticks(low, high, most) {
  const rough = (high - low) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= rough * 0.999) || rough;
  const out = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && out.length < 50; i++) out.push(i * step);
  return out;
}
function tickText(v, percentage) {
  if (percentage) return Number((100 * v).toPrecision(6)) + '%';
  return number(Number(v.toPrecision(6)));
}

const DASHES = [null, '7 3', '2 3', '9 3 2 3', '4 2'];

/** A line with its name, for a legend. */
function lineKey(series, text, thin) {
  const line = svg('line', { x1: 0, y1: 8, x2: 24, y2: 8, class: 'line' + (thin ? ' thin' : ''), 'stroke-dasharray': DASHES[series % DASHES.length] });
  line.style.stroke = `var(--s${series % 10})`;
  return el('span', { class: 'key' }, svg('svg', { viewBox: '0 0 24 16', 'aria-hidden': 'true' }, line), bdi(text));
}

const charts = [];

/**
 * A chart with axes: `x` and `y` are ranges, `lines` have points and a series, `bars` are areas made of steps,
 * `marks()` returns the points that move with the slider and `cut()` a vertical line.
 */
function chart(parent, spec) {
  const place = el('div');
  const keys = el('div', { class: 'keys' });
  (spec.keys || []).forEach(k => keys.append(lineKey(k.series, k.name)));
  parent.append(el('div', { class: 'chart' }, el('h3', null, spec.title), keys, place));
  const made = { place, spec, width: 0, draw, update };
  charts.push(made);
  let layer = null, toX = null, toY = null, area = null;
  function draw() {
    const width = Math.max(240, place.clientWidth || 480);
    made.width = width;
    const height = Math.round(Math.min(spec.tall || 280, Math.max(190, width * 0.62)));
    const yTicks = ticks(spec.y[0], spec.y[1], 5);
    const left = 14 + 7 * Math.max(...yTicks.map(t => tickText(t, spec.shareY).length));
    area = { x: left, y: 22, w: width - left - 12, h: height - 64 };
    toX = v => area.x + area.w * (v - spec.x[0]) / (spec.x[1] - spec.x[0]);
    toY = v => area.y + area.h * (1 - (v - spec.y[0]) / (spec.y[1] - spec.y[0]));
    const root = svg('svg', { viewBox: `0 0 ${width} ${height}`, height, role: 'img', 'aria-label': `${spec.title}: ${spec.yName} against ${spec.xName}` });
    for (const t of yTicks) {
      root.append(svg('path', { class: 'grid', d: `M${area.x} ${toY(t)}h${area.w}` }),
        svg('text', { x: area.x - 6, y: toY(t) + 4, 'text-anchor': 'end' }, tickText(t, spec.shareY)));
    }
    for (const t of ticks(spec.x[0], spec.x[1], Math.max(2, area.w / 90))) {
      root.append(svg('path', { class: 'grid', d: `M${toX(t)} ${area.y}v${area.h}` }),
        svg('text', { x: toX(t), y: area.y + area.h + 16, 'text-anchor': 'middle' }, tickText(t, spec.shareX)));
    }
    root.append(svg('path', { class: 'base', d: `M${area.x} ${area.y}v${area.h}h${area.w}` }),
      svg('text', { x: area.x + area.w / 2, y: area.y + area.h + 35, 'text-anchor': 'middle' }, spec.xName),
      svg('text', { x: 0, y: 11, 'text-anchor': 'start' }, spec.yName));
    if (spec.diagonal) root.append(svg('path', { class: 'guide', d: `M${toX(0)} ${toY(0)}L${toX(1)} ${toY(1)}` }));
    for (const bars of spec.bars || []) root.append(steps(bars));
    for (const line of spec.lines || []) root.append(path(line));
    for (const dot of spec.dots || []) root.append(mark(dot));
    layer = svg('g');
    root.append(layer);
    place.replaceChildren(root);
    update();
  }
  const clip = v => Math.max(spec.y[0], Math.min(spec.y[1], v));
  function path(line) {
    const d = line.points.map(([x, y], i) => `${i ? 'L' : 'M'}${toX(x).toFixed(1)} ${toY(clip(y)).toFixed(1)}`).join('');
    const made = svg('path', { class: 'line' + (line.thin ? ' thin' : ''), d, 'stroke-dasharray': DASHES[(line.dash ?? line.series) % DASHES.length] });
    made.style.stroke = `var(--s${line.series % 10})`;
    return made;
  }
  function steps(bars) {
    const wide = (spec.x[1] - spec.x[0]) / bars.values.length;
    let d = '';
    bars.values.forEach((v, i) => { d += `L${toX(spec.x[0] + i * wide).toFixed(1)} ${toY(v).toFixed(1)}H${toX(spec.x[0] + (i + 1) * wide).toFixed(1)}`; });
    const floor = toY(0).toFixed(1);
    const filled = svg('path', { class: 'area', d: `M${toX(spec.x[0])} ${floor}${d}V${floor}Z` });
    const edge = svg('path', { class: 'line', d: `M${toX(spec.x[0])} ${floor}${d}V${floor}`, 'stroke-dasharray': DASHES[bars.series % DASHES.length] });
    filled.style.fill = edge.style.stroke = `var(--s${bars.series % 10})`;
    return svg('g', null, filled, edge);
  }
  function mark(at) {
    const dot = svg('circle', { class: 'mark', cx: toX(at.x), cy: toY(clip(at.y)), r: at.r || 6 });
    dot.style.fill = `var(--s${at.series % 10})`;
    if (at.text) dot.append(svg('title', null, at.text));
    return dot;
  }
  /** Updates what changes with the slider. */
  function update() {
    if (!layer) return;
    layer.replaceChildren(...(spec.marks ? spec.marks().map(mark) : []));
    if (!spec.cut) return;
    const at = spec.cut(), x = toX(Math.max(spec.x[0], Math.min(spec.x[1], at)));
    const right = x > area.x + area.w * 0.6;
    layer.append(svg('path', { class: 'cut', d: `M${x} ${area.y}v${area.h}` }),
      svg('text', { class: 'cut-text', x: x + (right ? -6 : 6), y: area.y + 10, 'text-anchor': right ? 'end' : 'start' }, spec.cutText(at)));
  }
  return made;
}

/** Draws charts in the available width, and again when it changes. */
function keepCharts() {
  const all = () => charts.forEach(c => { if (c.place.clientWidth !== c.width) c.draw(); });
  all();
  window.addEventListener('resize', all);
  window.addEventListener('beforeprint', all);
}
