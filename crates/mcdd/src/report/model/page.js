// The sections of the page, and what changes with the slider.

const R = JSON.parse($('data').textContent);
let at = R.used;
const now = () => R.positions[at];
const labeled = R.accuracy !== null;
const live = [];
const rowsOf = n => n === 1 ? '1 row' : `${thousands(n)} rows`;
const signed = (v, digits) => (v < 0 ? '−' : '+') + Math.abs(v).toFixed(digits);
const section = (id, test = true) => { $(id).hidden = !test; return $(id); };
const known = level => level <= at;
const column = (...content) => el('th', { scope: 'col' }, ...content);
const rowHead = (...content) => el('th', { scope: 'row' }, ...content);

/** The verdict on a row; it changes with the slider. */
function chip(level) {
  const node = el('span', { class: 'chip', 'data-level': level });
  verdict(node);
  return node;
}
const verdict = node => { node.textContent = known(Number(node.dataset.level)) ? '● known' : '○ unknown'; };

/** The pixels of a row; with a map, what is strange is red. */
function picture(p, map) {
  if (!p.picture) return null;
  const [width, height, channels] = R.picture, bytes = atob(p.picture);
  const canvas = el('canvas', { width, height, role: 'img', 'aria-label': map ? 'where the image is strange' : R.images ? 'the image' : 'the row as an image' });
  const pen = canvas.getContext('2d'), image = pen.createImageData(width, height);
  const level = (i) => 17 * (i % 2 ? bytes.charCodeAt(i >> 1) & 15 : bytes.charCodeAt(i >> 1) >> 4);
  for (let i = 0; i < width * height; i++) {
    const color = [0, 1, 2].map((c) => level(i * channels + (channels === 3 ? c : 0)));
    if (map) {
      const side = map.cell * width, cell = Math.floor(Math.floor(i / width) / side) * map.columns + Math.floor(i % width / side);
      const share = 0.75 * (map.shares[cell] || 0);
      [220, 38, 38].forEach((red, c) => { color[c] = color[c] * (1 - share) + red * share; });
    }
    image.data.set([...color, 255], 4 * i);
  }
  pen.putImageData(image, 0, 0);
  return canvas;
}

function rowName(p) {
  if (p.file) return p.file;
  const row = `${R.images ? 'image' : 'row'} ${thousands(p.row)}${p.line ? ` (line ${thousands(p.line)})` : ''}`;
  return p.set === 0 ? row : `${row} of ${R.sets[p.set - 1].name}`;
}

/** A row: its label, the prediction, its scores. */
function card(p, map) {
  const list = el('dl');
  const put = (name, value) => list.append(el('dt', null, name), el('dd', null, value));
  if (p.label !== null) put('label', bdi(p.label));
  if (p.predicted !== null) put('predicted', bdi(p.predicted));
  if (p.probability !== null) put('probability', number(p.probability));
  put('confidence', number(p.confidence));
  put('p-value', number(p.p_value));
  return [el('h4', null, bdi(rowName(p)), chip(p.level)), el('div', { class: map ? 'body pair' : 'body' }, picture(p), map ? picture(p, map) : null, list)];
}

const interval95 = p => p.interval95 && `[${p.interval95.join(', ')}]`;

function tiles() {
  const tile = (id, name, text, small) => {
    const value = el('b', { id }), under = el('small');
    live.push(() => { value.textContent = text(); under.textContent = small(); });
    $('tiles').append(el('div', { class: 'tile' }, value, el('span', null, ...name), under));
  };
  const of = (n, m) => `${thousands(n)} of ${thousands(m)}`;
  tile('kept', [R.about.on_calibration_rows ? 'of calibration rows kept' : 'of known rows kept'], () => now().kept + '%', () => of(now().counts[0], R.rows));
  R.sets.forEach((s, i) => tile(`rejected-${i}`, ['rejected of ', bdi(s.name)], () => now().rejected[i] + '%',
    () => of(s.rows - now().counts[2][i], s.rows)));
  if (labeled) {
    tile('right', ['of kept known rows correct'], () => now().right === null ? '–' : now().right + '%',
      () => of(now().counts[1], now().counts[0]));
    const value = el('b', { id: 'accuracy' }, R.accuracy.value + '%'), interval = interval95(R.accuracy);
    $('tiles').append(el('div', { class: 'tile' }, value, el('span', null, 'accuracy without rejection'),
      interval && el('small', null, `95% interval ${interval}`)));
  }
}

function slider() {
  const input = $('tpr');
  input.max = R.positions.length - 1;
  input.value = at;
  $('reset').textContent = `back to ${R.positions[R.used].tpr}`;
  const go = i => { at = i; refresh(); };
  input.addEventListener('input', () => go(Number(input.value)));
  $('reset').addEventListener('click', () => { input.value = R.used; go(R.used); });
  // The numbers stay visible when the tiles are not.
  const watched = new IntersectionObserver(([e]) => { $('summary').hidden = e.isIntersecting; });
  watched.observe($('tiles'));
  // Headings that are jumped to are placed below the bar, with its numbers.
  const room = () => {
    const { hidden } = $('summary');
    $('summary').hidden = false;
    document.documentElement.style.setProperty('--bar', `${document.querySelector('.slider').offsetHeight}px`);
    $('summary').hidden = hidden;
  };
  window.addEventListener('resize', room);
  live.push(() => {
    const p = now();
    $('verdict').textContent = p.sentence;
    $('target').textContent = Number((100 * p.tpr).toPrecision(6)) + '%';
    $('option').textContent = `--tpr ${p.tpr}`;
    input.setAttribute('aria-valuetext', `${$('target').textContent}: ${p.sentence}`);
    $('reset').disabled = at === R.used;
    const rejected = p.rejected.length ? ` · rejected ${p.rejected.slice(0, 3).join('%, ')}%` : '';
    $('summary').textContent = `kept ${p.kept}%${rejected}${p.right === null ? '' : ` · correct ${p.right}%`}`;
    const short = p.short ? ` More calibration rows are needed for ${$('target').textContent}.` : '';
    $('threshold').textContent = `Rows with a confidence of ${p.threshold.toFixed(4).replace('-', '−')} or more are known. This threshold was set on ${thousands(R.calibration_rows)} calibration ${R.calibration_rows === 1 ? 'row' : 'rows'}. It is expected to keep ${p.set_for}% of new known rows.${short}`;
  });
  return room;
}

function scores() {
  const h = R.histogram, bins = h.known.length;
  const fraction = (counts, rows) => counts.map(n => n / rows);
  const bars = [{ series: 0, values: fraction(h.known, R.rows) }, ...h.sets.map((s, i) => ({ series: i + 1, values: fraction(s, R.sets[i].rows) }))];
  const top = Math.max(...bars.flatMap(b => b.values), 1e-9);
  chart($('scores'), {
    title: 'Distribution of the confidence', xName: 'confidence', yName: 'fraction of rows', x: [h.low, h.high], y: [0, top * 1.06], shareY: true, bars, tall: 320,
    keys: [{ series: 0, name: `known (${thousands(R.rows)})` }, ...R.sets.map((s, i) => ({ series: i + 1, name: `${s.name} (${thousands(s.rows)})` }))],
    cut: () => now().threshold, cutText: v => `threshold ${number(v)}`,
  });
  const out = h.outside[0] + h.outside[1];
  $('scores-note').textContent = `Rows left of the line are called unknown. ${bins} bins` +
    (out ? `; ${rowsOf(out)} beyond the range ${out === 1 ? 'is' : 'are'} counted in the first and last bin.` : '.');
}

function detection() {
  if (!R.sets.length) return;
  const box = section('detection'), place = box.querySelector('.charts');
  const keys = R.sets.length > 1 ? R.sets.map((s, i) => ({ series: i + 1, name: s.name })) : [];
  const lines = key => R.sets.map((s, i) => ({ series: i + 1, points: s[key], dash: R.sets.length > 1 ? i + 1 : 0 }));
  const common = { x: [0, 1], y: [0, 1], shareX: true, shareY: true, keys };
  const each = f => () => R.sets.map((s, i) => {
    const [kept, , taken] = now().counts;
    return { series: i + 1, ...f(kept, taken[i], s.rows) };
  }).filter(m => Number.isFinite(m.x) && Number.isFinite(m.y));
  chart(place, { ...common, title: 'ROC', xName: 'unknown rows kept', yName: 'known rows kept', diagonal: true, lines: lines('roc'),
    marks: each((k, t, n) => ({ x: t / n, y: k / R.rows })) });
  chart(place, { ...common, title: 'Precision and recall of known rows', xName: 'known rows kept', yName: 'known among kept', lines: lines('pr_known'),
    marks: each((k, t) => ({ x: k / R.rows, y: k / (k + t) })) });
  chart(place, { ...common, title: 'Precision and recall of unknown rows', xName: 'unknown rows rejected', yName: 'unknown among rejected', lines: lines('pr_unknown'),
    marks: each((k, t, n) => ({ x: (n - t) / n, y: (n - t) / (n - t + R.rows - k) })) });
  const head = el('tr', null, column('%'), ...R.sets.map(s => column(bdi(s.name))));
  const value = p => el('td', null, p.value, p.interval95 && el('span', { class: 'interval' }, ' ' + interval95(p)));
  const rows = R.sets[0].metrics.map(({ name }, i) => el('tr', null, rowHead(name), ...R.sets.map(s => value(s.metrics[i].percent))));
  box.querySelector('.wide').append(el('table', null, el('thead', null, head), el('tbody', null, ...rows)));
  $('detection-note').textContent = 'Positive: the side that counts as found. ID (in-distribution) are known rows, OOD (out-of-distribution) unknown ones.' +
    (R.replicates ? ` In brackets: the 95% bootstrap interval, ${thousands(R.replicates)} replicates.` : '');
  box.querySelector('.words').append(...R.sets[0].metrics.flatMap(({ name, meaning }) => [el('dt', null, name), el('dd', null, meaning)]));
}

function classification() {
  if (!labeled) return;
  const place = section('classification').querySelector('.charts');
  const most = Math.max(0.01, ...R.risk.map(p => p[1]));
  chart(place, { title: 'Risk against coverage', xName: 'known rows kept', yName: 'wrong among kept', x: [0, 1], y: [0, Math.min(1, most * 1.15)], shareX: true, shareY: true,
    lines: [{ series: 0, points: R.risk }],
    marks: () => now().counts[0] ? [{ series: 0, x: now().counts[0] / R.rows, y: 1 - now().counts[1] / now().counts[0] }] : [] });
  const r = R.reliability;
  if (r) {
    const most = Math.max(...r.bins.map(b => b[2]));
    chart(place, { title: 'Calibration of the probability', xName: 'predicted probability', yName: 'accuracy', x: [0, 1], y: [0, 1], shareX: true, shareY: true, diagonal: true,
      lines: [{ series: 0, points: r.bins }],
      dots: r.bins.map(([x, y, n]) => ({ series: 0, x, y, r: 3 + 7 * Math.sqrt(n / most), text: `${rowsOf(n)}: predicted ${percent(x)}, accuracy ${percent(y)}` })) });
  }
  $('classification-note').textContent = (r ? `The expected calibration error is ${(100 * r.error).toFixed(1)} percentage points (ten bins; the area of a dot grows with its rows). ` : '') +
    'Known rows only.';
}

/** The confusion matrix: true kind, predicted class, and whether a row is kept. */
function confusion() {
  const kinds = [...R.classes.map(c => ({ name: c.name, rows: c.rows })), ...R.sets.map(s => ({ name: s.name, rows: s.rows, unknown: true }))];
  const bare = R.counts.filter(c => c[0] === kinds.length).reduce((n, c) => n + c[3], 0);
  kinds.push({ name: R.classifies ? 'rows without a label' : 'known rows', rows: bare, bare: true });
  const columns = R.classifies ? R.classes.map(c => c.name) : ['known'];
  const cells = kinds.map(() => columns.concat('').map(() => el('td')));
  const head = el('tr', null, column('true ↓ · predicted →'), ...columns.map(c => column(R.classifies ? bdi(c) : c)), column('unknown'));
  const firstSet = kinds.findIndex(k => k.unknown);
  const row = (k, i) => k.rows ? el('tr', { class: i === firstSet ? 'first-set' : null }, rowHead(bdi(k.name)), ...cells[i]) : null;
  const all = kinds.map(row), body = [...all.filter((_, i) => !kinds[i].unknown), ...all.filter((_, i) => kinds[i].unknown)];
  $('confusion').querySelector('.wide').append(el('table', null, el('thead', null, head), el('tbody', null, ...body)));
  $('confusion-note').textContent = `Number of rows at the threshold of the slider. Blue is correct, orange is wrong, gray are known rows that are rejected${R.sets.length ? '; below the line are rows that should be unknown' : ''}.`;
  live.push(() => {
    const sums = kinds.map(() => columns.concat('').map(() => 0));
    for (const [kind, predicted, level, n] of R.counts) sums[kind][known(level) ? predicted : columns.length] += n;
    kinds.forEach((kind, i) => sums[i].forEach((n, j) => {
      const cell = cells[i][j], rejected = j === columns.length;
      cell.textContent = n ? thousands(n) : '·';
      cell.className = n ? '' : 'zero';
      const right = kind.unknown ? rejected : rejected || (kind.bare && R.classifies) ? null : R.classifies ? i === j : true;
      const color = right === null ? 'var(--mut)' : right ? 'var(--s0)' : 'var(--s1)';
      const strength = n ? 8 + 42 * n / Math.max(1, kind.rows) : 0;
      cell.style.background = `color-mix(in srgb, ${color} ${strength.toFixed(0)}%, var(--bg))`;
    }));
  });
}

function perClass() {
  if (!R.classes.some(c => c.rows)) return;
  const box = section('classes');
  const sigma = R.classes.some(c => c.sigma !== null), radius = R.classes.some(c => c.radius !== null);
  const head = ['class', 'rows', labeled && 'recall', labeled && 'precision', 'kept', labeled && 'correct of kept', sigma && 'sigma', radius && 'radius'].filter(Boolean);
  const rows = R.classes.map((c, k) => {
    if (!c.rows) return null;
    const kept = el('td'), right = el('td');
    live.push(() => {
      let n = 0, good = 0;
      for (const [kind, predicted, level, m] of R.counts) {
        if (kind === k && known(level)) { n += m; good += predicted === k ? m : 0; }
      }
      kept.textContent = percent(n / c.rows);
      right.textContent = n ? percent(good / n) : '–';
    });
    const text = p => el('td', null, p === null ? 'n/a' : p + '%');
    const parts = [rowHead(bdi(c.name)), el('td', null, thousands(c.rows)), labeled ? text(c.recall) : null, labeled ? text(c.precision) : null, kept, labeled ? right : null,
      sigma ? el('td', null, number(c.sigma)) : null, radius ? el('td', null, number(c.radius)) : null];
    return el('tr', null, ...parts);
  });
  const table = el('table', null, el('thead', null, el('tr', null, ...head.map(h => column(h)))), el('tbody', null, ...rows));
  box.querySelector('.wide').append(table);
  if (rows.filter(Boolean).length > 1) sortable(table, $('classes-order'));
  $('classes-note').textContent = (labeled ? 'Recall: the fraction of the rows of a class that are predicted as this class. Precision: the fraction of the rows predicted as a class that belong to it. Both count all rows, kept or not. ' : '') +
    'Kept and correct of kept change with the slider.' + (sigma ? ' Sigma: the standard deviation of the class in the first network.' : '') +
    (radius ? ' Radius: the distance from the class mean within which 95% of its drawn rows are, in the latent space of the first network.' : '');
}

function worth() {
  const plot = scatter(document.querySelector('.plot'), p => $('card').replaceChildren(...card(p)));
  $('plane-note').textContent = `${R.plane.caption} Drawn: ${rowsOf(R.points.length)}.`;
  const explained = R.groups.some(g => g.rows.some(r => r.columns.length));
  const against = R.classifies ? 'in the predicted class' : 'in training';
  if (R.images) document.querySelector('#worth h2').textContent = 'Notable images';
  const mapped = R.groups.some(g => g.rows.some(r => r.map));
  $('worth-note').textContent = `The p-value is the fraction of known ${R.images ? 'images' : 'rows'} whose confidence is as low or lower. ` + (explained ? `Below a row: the columns that would add most to its confidence if they were as usual ${against}; +/− in standard deviations of all training rows. mcdd explain prints the same.`
    : mapped ? 'Beside an image: the same image, with the parts in red that would add most to its confidence if they were covered. mcdd explain makes the same maps.' : '');
  for (const group of R.groups) {
    const cards = el('div', { class: 'cards' });
    for (const row of group.rows) {
      const p = R.points[row.point];
      const box = el('div', { class: 'card' }, ...card(p, row.map));
      if (row.columns.length) {
        const head = el('tr', null, ...['column', 'is', 'usual', '+/−', 'adds'].map(t => el('th', null, t)));
        const against = row.class === null ? ['Usual: in all training rows.'] : ['Usual: in class ', bdi(row.class), '.'];
        box.append(el('p', { class: 'against' }, ...against), el('table', null, el('thead', null, head), el('tbody', null, ...row.columns.map(([name, value, usual, deviations, gain]) =>
          el('tr', null, el('th', null, bdi(name)), el('td', null, bdi(value)), el('td', null, bdi(usual)), el('td', null, deviations === null ? '' : signed(deviations, 1)), el('td', null, signed(gain, 3)))))));
      }
      cards.append(box);
    }
    $('worth').append(el('h3', null, bdi(group.title)), el('p', { class: 'note' }, group.rows.length ? group.note : 'None.'), cards);
  }
  return plot;
}

function training() {
  if (!R.training.length) return;
  const place = section('training').querySelector('.charts');
  const end = Math.max(...R.training.map(t => t.epochs[t.epochs.length - 1]));
  const zip = (t, values) => values.map((v, i) => [t.epochs[i], v]);
  const all = R.training.flatMap(t => [...t.loss, ...t.validation_loss]).sort((a, b) => a - b);
  // The largest 2% of losses, usually of the first epochs, do not extend the axis.
  const high = all[Math.min(all.length - 1, Math.floor(all.length * 0.98))], low = Math.min(0, all[0]);
  const thin = R.training.length > 1;
  chart(place, { title: 'Loss', xName: 'epoch', yName: 'loss', x: [1, end], y: [low, high > low ? high * 1.05 : low + 1],
    keys: [{ series: 0, name: 'training rows' }, { series: 1, name: 'validation rows' }],
    lines: R.training.flatMap(t => [{ series: 0, points: zip(t, t.loss), thin }, { series: 1, points: zip(t, t.validation_loss), thin }]) });
  const rates = R.training.flatMap(t => t.accuracy);
  if (rates.length) {
    const least = Math.min(...rates);
    chart(place, { title: 'Accuracy on validation rows', xName: 'epoch', yName: 'accuracy', x: [1, end], y: [Math.max(0, least - 0.05), 1], shareY: true,
      lines: R.training.map(t => ({ series: 1, dash: 0, points: zip(t, t.accuracy), thin })) });
  }
  $('training-note').textContent = thin ? `A line for each of ${R.training.length} networks.` : '';
}

/** A finding. Settings, which the library names in backticks, become options of the command. */
function finding(text) {
  const part = (t, i) => i % 2 ? el('code', null, '--' + t.replaceAll('_', '-')) : t;
  return el('li', null, el('bdi', null, ...text.split(/`([a-z_]+)`/).map(part)));
}

function made() {
  if (R.findings.length) section('findings').querySelector('ul').append(...R.findings.map(finding));
  $('notices').append(...R.about.notices.map(n => el('li', null, bdi(n))));
  for (const [name, value] of R.settings) $('settings').append(el('dt', null, name), el('dd', null, bdi(value)));
}

/** A link to each section that is shown. */
function contents() {
  const link = s => el('li', null, el('a', { href: `#${s.id}` }, s.querySelector('h2').textContent));
  $('contents').append(...[...document.querySelectorAll('section:not([hidden])')].map(link));
}

function refresh() {
  live.forEach(f => f());
  document.querySelectorAll('.chip').forEach(verdict);
  charts.forEach(c => c.update());
}

tiles();
const room = slider();
scores();
detection();
classification();
confusion();
perClass();
worth();
training();
made();
contents();
refresh();
keepCharts();
room();
