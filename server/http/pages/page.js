// Brings the numbers up to date each second, and the charts every ten; where more than numbers has
// changed (`shape`), the server draws the page anew. Sorts and filters the models.
'use strict';

const missing = '\u2013';

function scaled(value, units, step) {
  let unit = 0;
  while (value >= step && unit + 1 < units.length) {
    value /= step;
    ++unit;
  }
  return (unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)) + ' ' + units[unit];
}

function duration(seconds) {
  const s = Math.floor(seconds);
  if (s < 60) return s + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min ' + (s % 60) + ' s';
  if (s < 86400) return Math.floor(s / 3600) + ' h ' + Math.floor(s % 3600 / 60) + ' min';
  return Math.floor(s / 86400) + ' d ' + Math.floor(s % 86400 / 3600) + ' h';
}

function seconds(value) {
  if (value >= 60) return duration(value);
  if (value >= 1) return value.toFixed(2) + ' s';
  if (value >= 1e-3) return (value * 1e3).toFixed(2) + ' ms';
  return (value * 1e6).toFixed(0) + ' \u00b5s';
}

const formats = {
  count: value => String(value),
  bytes: value => scaled(value, ['B', 'KiB', 'MiB', 'GiB', 'TiB'], 1024),
  share: value => (value * 100).toFixed(1) + ' %',
  mean: value => value.toFixed(1),
  seconds,
  duration,
};

function find(status, path) {
  return path.split('.').reduce((value, key) => value === null || value === undefined ? null : value[key], status);
}

const part = (page, selector) => [...page.querySelectorAll(selector)];
const rows = page => part(page, 'tbody');

function write(field, text) {
  if (field.textContent !== text) field.textContent = text;
}

function show(status) {
  for (const field of part(document, '[data-path]')) {
    const value = find(status, field.dataset.path);
    const none = value === null || value === undefined;
    if (field.localName === 'progress') {
      field.value = none ? 0 : value;
    } else {
      write(field, none ? missing : formats[field.dataset.as](value));
    }
  }
}

let before = null;  // {at, status}
let rates = new Map();  // by path, each second

function showRates(status, at) {
  for (const field of part(document, '[data-rate]')) {
    const path = field.dataset.rate;
    const now = find(status, path);
    const then = before === null ? null : find(before.status, path);
    const known = typeof now === 'number' && typeof then === 'number' && now >= then;
    if (known) rates.set(path, (now - then) / (at - before.at) * 1000);
    write(field, known ? rates.get(path).toFixed(1) : missing);
  }
  before = {at, status};
}

let order = {by: 'name', down: false};

// Returns what a model is sorted by; undefined for unknown values, which come last. The server's
// own order is that of names.
function rank(row) {
  const at = 'models.' + row.dataset.index + '.';
  const [kind, path] = order.by.includes(' ') ? order.by.split(' ') : ['', order.by];
  if (path === 'name' || before === null) return Number(row.dataset.index);
  if (kind === 'rate') return rates.get(at + path);
  return find(before.status, at + (kind === 'latency' ? row.dataset.latency + '.' : '') + path) ?? undefined;
}

function compare(a, b) {
  if (a.rank === undefined || b.rank === undefined) return (a.rank === undefined) - (b.rank === undefined);
  const way = a.rank < b.rank ? -1 : a.rank > b.rank ? 1 : 0;
  return order.down ? -way : way;
}

// What has the keyboard keeps it when its row moves or is drawn anew.
function keepFocus(change) {
  const focused = document.activeElement;
  const {sort} = focused.dataset;
  const key = focused.parentElement?.dataset.key;
  change();
  if (document.activeElement === focused) return;
  const again = sort !== undefined ? part(document, '[data-sort]').find(each => each.dataset.sort === sort)
    : part(document, 'details[data-key]').find(each => each.dataset.key === key)?.querySelector('summary');
  again?.focus({preventScroll: true});
}

function arrange() {
  const now = rows(document);
  const sorted = now.map(row => ({row, rank: rank(row)})).sort(compare).map(each => each.row);
  if (sorted.some((row, i) => row !== now[i])) {
    keepFocus(() => document.querySelector('table').append(...sorted));
  }
  for (const button of part(document, '[data-sort]')) {
    const mine = button.dataset.sort === order.by;
    button.parentElement.ariaSort = mine ? (order.down ? 'descending' : 'ascending') : null;
  }
}

function filter() {
  const box = document.getElementById('filter');
  const all = rows(document);
  const wanted = box.value.trim().toLowerCase();
  box.hidden = all.length < 8 && wanted === '';
  let shown = 0;
  for (const row of all) {
    const text = row.querySelector('summary').textContent + ' ' + row.querySelector('.state').textContent;
    row.hidden = !text.toLowerCase().includes(wanted);
    shown += row.hidden ? 0 : 1;
  }
  write(document.getElementById('shown'), wanted === '' ? '' : shown + ' of ' + all.length);
}

function prepare() {
  for (const button of part(document, '[data-sort]')) {
    if (button.dataset.sort === '') continue;
    button.disabled = false;
    button.addEventListener('click', () => {
      const by = button.dataset.sort;
      const text = by === 'name' || by === 'state';
      order = {by, down: by === order.by ? !order.down : !text};
      arrange();
    });
  }
  arrange();
  filter();
}

function replaceParts(page) {
  const open = new Set(part(document, 'details[open]').map(each => each.dataset.key));
  keepFocus(() => {
    for (const old of part(document, '[data-part]')) {
      old.replaceWith(page.querySelector('[data-part=' + old.dataset.part + ']'));
    }
    for (const each of part(document, 'details')) each.open = open.has(each.dataset.key);
    document.querySelector('main').dataset.shape = page.querySelector('main').dataset.shape;
    before = null;
    rates = new Map();
    prepare();
  });
}

function replaceCharts(page) {
  const fresh = new Map(rows(page).map(row => [row.dataset.key, row]));
  for (const row of rows(document)) {
    for (const chart of ['.recent', '.charts']) {
      const drawn = fresh.get(row.dataset.key)?.querySelector(chart);
      if (drawn) row.querySelector(chart).replaceWith(drawn);
    }
  }
}

async function get(name) {
  // Without the name and password of the page's own address, which fetch refuses.
  const url = new URL(name, location.origin + location.pathname);
  const answer = await fetch(url, {cache: 'no-store', signal: AbortSignal.timeout(5000)});
  if (!answer.ok) throw new Error('refused: ' + answer.status);
  return answer;
}

const drawnEvery = 10000;  // ms: a step of the charts
let drawn = performance.now();

// Reports whether the models may have another order now.
async function redraw(status) {
  const changed = status.shape !== document.querySelector('main').dataset.shape;
  if (!changed && performance.now() - drawn < drawnEvery) return false;
  drawn = performance.now();
  const page = new DOMParser().parseFromString(await (await get('.')).text(), 'text/html');
  if (page.querySelector('main').dataset.shape !== document.querySelector('main').dataset.shape) {
    replaceParts(page);
  } else {
    replaceCharts(page);
  }
  return true;
}

async function refresh() {
  const live = document.getElementById('live');
  try {
    const status = await (await get('status.json')).json();
    const anew = await redraw(status);
    // A model may have come between the two answers; the next round has it.
    if (status.shape === document.querySelector('main').dataset.shape) {
      show(status);
      showRates(status, performance.now());
      if (anew) arrange();
    }
    write(live, 'live');
    live.classList.remove('stale');
  } catch (error) {
    write(live, error.message.startsWith('refused') ? error.message : 'no answer');
    live.classList.add('stale');
  }
}

const steps = 60;  // of a chart
let plotted = null;  // the chart that the pointer is on

function tell(event) {
  const plot = event.target.closest?.('.plot') ?? null;
  const answer = each => each.closest('figure').querySelector('output');
  if (plotted !== null && plotted !== plot) answer(plotted).textContent = '';
  plotted = plot;
  if (plot === null) return;
  const [p50, p99, calls] = ['p50', 'p99', 'calls'].map(name => plot.dataset[name].split(','));
  const box = plot.getBoundingClientRect();
  const step = Math.floor((event.clientX - box.left) / box.width * steps);
  const at = step - steps + p50.length;
  const then = duration((steps - step) * 10) + ' ago: ';
  answer(plot).textContent = !p50[at] ? then + 'no calls'
    : then + 'p50 ' + seconds(Number(p50[at])) + ', p99 ' + seconds(Number(p99[at])) + ', ' + calls[at] + ' times';
}

async function run() {
  if (!document.hidden) await refresh();
  setTimeout(run, 1000);
}

document.getElementById('filter').addEventListener('input', filter);
document.addEventListener('pointermove', tell);
document.addEventListener('pointerdown', tell);
prepare();
run();
