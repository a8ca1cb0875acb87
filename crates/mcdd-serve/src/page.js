'use strict';
// Names come from a file: everything is set as text, never as HTML.
const $ = (id) => document.getElementById(id);
const make = (tag, text, name) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
};
const number = (value) => Number(value.toPrecision(3)).toLocaleString('en');
let models = [], shown = '';

// A bar for each minute: the fraction of unknown rows.
function minutes(counts) {
  const place = $('minutes'), drawn = (tag, attributes) => {
    const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  place.hidden = !counts.some(([rows]) => rows);
  const plot = drawn('svg', { viewBox: '0 0 300 50', preserveAspectRatio: 'none', role: 'img', 'aria-label': 'Unknown rows by minute' });
  plot.append(drawn('line', { x1: 0, x2: 300, y1: 49.5, y2: 49.5 }));
  counts.forEach(([rows, unknown], i) => {
    if (!rows) return;
    const height = Math.max(1, 48 * unknown / rows);
    const bar = drawn('rect', { x: 5 * i + 0.5, width: 4, y: 49 - height, height }), title = drawn('title', {});
    title.textContent = (59 - i) + ' minutes ago: ' + unknown + ' of ' + rows + ' rows unknown';
    bar.append(title);
    plot.append(bar);
  });
  const caption = make('p', undefined, 'axis');
  caption.append(make('span', 'an hour ago'), make('span', 'unknown, 0 to 100%'), make('span', 'now'));
  place.replaceChildren(plot, caption);
}

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if ($('token').value) headers.Authorization = 'Bearer ' + $('token').value;
  const response = await fetch(path, { ...options, headers });
  if (response.status === 401) $('access').hidden = false;
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error || response.statusText);
  return answer;
}

const current = () => models.find((m) => m.name === $('model').value) || models[0];

function fields(model) {
  const place = $('fields');
  place.replaceChildren();
  $('drop').hidden = !model.images;
  for (const column of model.columns) {
    const label = make('label', column.name);
    const field = make(column.categories ? 'select' : 'input');
    field.name = column.name;
    if (column.categories) {
      // The last one is a missing cell.
      for (const category of [...column.categories, '']) field.append(make('option', category));
    } else {
      field.value = column.example || '';
    }
    label.append(field);
    place.append(label);
  }
}

function show() {
  const model = current();
  if (!model) return;
  const known = model.classes.length ? model.classes.length + ' classes: ' + model.classes.slice(0, 50).join(', ') : 'no classes';
  $('about').textContent = 'It knows ' + known + '. Trained on ' + model.training_rows.toLocaleString('en') + ' rows.';
  const { rows, unknown } = model.last_hour;
  $('hour').textContent = rows ? rows.toLocaleString('en') + ' rows, ' + number(100 * unknown / rows) + '% unknown' : 'No rows.';
  minutes(model.last_hour.minutes);
  const monitor = model.monitor, alarm = $('alarm');
  alarm.className = monitor && monitor.alarm ? 'alarm' : 'note';
  alarm.textContent = !monitor ? 'Too few calibration rows for a monitor.'
    : monitor.alarm ? 'Alarm at row ' + monitor.alarm + ': rows are no longer like the calibration rows.'
    : 'No alarm. Evidence of a change: ' + number(monitor.evidence) + ' of ' + number(monitor.limit) + '.';
  $('restart').hidden = !(monitor && monitor.alarm);
  if (shown !== model.name + model.version) {
    shown = model.name + model.version;
    fields(model);
    $('verdict').replaceChildren();
  }
}

async function refresh() {
  try {
    const status = await ask('status');
    const chosen = $('model').value;
    models = status.models;
    $('model').replaceChildren(...models.map((m) => make('option', m.name)));
    if (models.some((m) => m.name === chosen)) $('model').value = chosen;
    const broken = status.not_loaded.map((p) => p.model + ' could not be read: ' + p.error);
    $('message').textContent = broken.join(' ');
    $('access').hidden = true;
    $('content').hidden = false;
    show();
  } catch (error) {
    $('message').textContent = error.message;
  }
}

function verdict(row) {
  const place = $('verdict');
  const line = make('p');
  line.append(make('span', row.verdict === 'known' ? (row.label || 'known') : 'unknown', row.verdict));
  const nearest = row.verdict === 'known' || !row.label ? '' : ', nearest to ' + row.label;
  line.append(nearest + '. ' + number(100 * row.p_value) + '% of known rows have a confidence as low or lower.');
  place.replaceChildren(line);
  if (row.areas) place.append(make('p', 'Areas of the image that lower the confidence most are listed by mcdd explain, with a picture.', 'note'));
  if (!row.columns || !row.columns.length) return;
  const table = make('table'), head = make('tr');
  for (const name of ['column', 'value', 'expected', 'gain']) head.append(make('th', name));
  table.append(head);
  for (const reason of row.columns) {
    const line = make('tr');
    for (const text of [reason.column, reason.value, reason.expected, number(reason.gain)]) line.append(make('td', text));
    table.append(line);
  }
  const wide = make('div', undefined, 'wide');
  wide.append(table);
  place.append(make('p', 'Columns that lower the confidence most:', 'note'), wide);
}

async function predict(body, type) {
  try {
    const path = 'predict?explain=1&model=' + encodeURIComponent(current().name);
    const rows = await ask(path, { method: 'POST', body, headers: { 'Content-Type': type } });
    verdict(rows[0]);
    await refresh();
  } catch (error) {
    $('verdict').replaceChildren(make('p', error.message, 'unknown'));
  }
}

$('form').addEventListener('submit', (event) => {
  event.preventDefault();
  const model = current();
  if (model.images) {
    const file = $('file').files[0];
    if (file) predict(file, file.type || 'image/png');
    return;
  }
  const row = {};
  for (const field of $('fields').querySelectorAll('input, select')) {
    const text = field.value.trim();
    row[field.name] = text === '' ? null : field.tagName === 'INPUT' && !isNaN(text) ? Number(text) : text;
  }
  predict(JSON.stringify([row]), 'application/json');
});
$('drop').addEventListener('dragover', (event) => { event.preventDefault(); $('drop').classList.add('over'); });
$('drop').addEventListener('dragleave', () => $('drop').classList.remove('over'));
$('drop').addEventListener('drop', (event) => {
  event.preventDefault();
  $('drop').classList.remove('over');
  const file = event.dataTransfer.files[0];
  if (file) predict(file, file.type || 'image/png');
});
$('model').addEventListener('change', show);
$('access').addEventListener('submit', (event) => { event.preventDefault(); refresh(); });
$('restart').addEventListener('click', async () => {
  await ask('models/' + encodeURIComponent(current().name) + '/restart', { method: 'POST' });
  refresh();
});
setInterval(() => { if (!document.hidden) refresh(); }, 10000);
refresh();
