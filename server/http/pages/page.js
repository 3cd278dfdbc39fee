// Brings the numbers up to date each second; where more than numbers has changed (`shape`), the
// server draws the page anew.
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

function show(status) {
  for (const field of document.querySelectorAll('[data-path]')) {
    const value = find(status, field.dataset.path);
    if (field.localName === 'progress') {
      field.value = value;
    } else {
      field.textContent = value === null || value === undefined ? missing : formats[field.dataset.as](value);
    }
  }
}

let before = null;  // {at, status}

function showRates(status, at) {
  for (const field of document.querySelectorAll('[data-rate]')) {
    const now = find(status, field.dataset.rate);
    const then = before === null ? null : find(before.status, field.dataset.rate);
    const known = typeof now === 'number' && typeof then === 'number' && now >= then;
    field.textContent = known ? ((now - then) / (at - before.at) * 1000).toFixed(1) + '/s' : missing;
  }
  before = {at, status};
}

async function get(url) {
  const answer = await fetch(url, {cache: 'no-store', signal: AbortSignal.timeout(5000)});
  if (!answer.ok) throw new Error(url + ': ' + answer.status);
  return answer;
}

async function refresh() {
  const live = document.getElementById('live');
  try {
    const status = await (await get('status.json')).json();
    if (status.shape !== document.querySelector('main').dataset.shape) {
      const page = new DOMParser().parseFromString(await (await get('.')).text(), 'text/html');
      document.querySelector('main').replaceWith(page.querySelector('main'));
      before = null;
    }
    // A model may have come between the two answers; the next round has it.
    if (status.shape === document.querySelector('main').dataset.shape) {
      show(status);
      showRates(status, performance.now());
    }
    live.textContent = 'live';
    live.classList.remove('stale');
  } catch (error) {
    live.textContent = 'no answer';
    live.classList.add('stale');
  }
}

async function run() {
  if (!document.hidden) await refresh();
  setTimeout(run, 1000);
}

run();
