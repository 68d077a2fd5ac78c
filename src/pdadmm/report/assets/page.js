/* The page itself: theme, filters, sortable tables, the run in detail, copying. */

const slot = (name, within = document) => within.querySelector(`[data-slot="${name}"]`);
root.classList.add('js');

/* --- colours */

const stored = { // a page that is opened from a file may be refused its memory
  get() { try { return localStorage.getItem('pdadmm-theme'); } catch { return null; } },
  set(value) { try { localStorage.setItem('pdadmm-theme', value); } catch { /* it is forgotten */ } },
};

function setTheme(choice) {
  if (choice === 'auto') root.removeAttribute('data-theme');
  else root.dataset.theme = choice;
  document.querySelectorAll('[data-theme-choice]').forEach((button) => (
    button.setAttribute('aria-pressed', String(button.dataset.themeChoice === choice))));
}

document.querySelectorAll('[data-theme-choice]').forEach((button) => button.addEventListener('click', () => {
  setTheme(button.dataset.themeChoice);
  stored.set(button.dataset.themeChoice);
}));
if (['light', 'dark'].includes(stored.get())) setTheme(stored.get());

/* --- contents: open where there is room */

const contents = document.querySelector('.contents details');
const wide = matchMedia('(min-width: 760px)');
const fit = () => { contents.open = wide.matches; };
wide.addEventListener('change', fit);
fit();
contents.addEventListener('click', (event) => { if (event.target.closest('a') && !wide.matches) contents.open = false; });

const links = new Map([...contents.querySelectorAll('a')].map((link) => [link.hash.slice(1), link]));
const passing = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const link = links.get(entry.target.id);
    if (entry.isIntersecting) link.setAttribute('aria-current', 'true');
    else link.removeAttribute('aria-current');
  }
}, { rootMargin: '-20% 0px -70% 0px' });
links.forEach((_, id) => { const section = document.getElementById(id); if (section) passing.observe(section); });

/* --- tables that can be sorted */

function sortBy(table, column, direction) {
  const body = table.tBodies[0];
  const key = (row) => row.cells[column].dataset.key ?? '';
  const compare = (a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x === '' || y === '') return (x === '') - (y === ''); // what is missing comes last, either way
    const [p, q] = [Number(x), Number(y)];
    return direction * (isNaN(p) || isNaN(q) ? x.localeCompare(y, undefined, { numeric: true }) : p - q);
  };
  body.append(...[...body.rows].sort(compare));
  [...table.tHead.rows[0].cells].forEach((head, i) => {
    if (i === column) head.setAttribute('aria-sort', direction > 0 ? 'ascending' : 'descending');
    else head.removeAttribute('aria-sort');
  });
}

document.querySelectorAll('table.sortable').forEach((table) => {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = el('button', { type: 'button' }, ...head.childNodes);
    button.addEventListener('click', () => {
      const direction = head.getAttribute('aria-sort') === 'ascending' ? -1 : 1;
      sortBy(table, column, direction);
      say(`sorted by ${button.textContent}, ${direction > 0 ? 'ascending' : 'descending'}`);
    });
    head.replaceChildren(button);
  });
});

/* --- filters */

function filters() {
  const selects = ['data', 'method', 'status'].map((key) => {
    const values = [...new Set(DATA.runs.map((run) => run[key]))].sort();
    if (values.length < 2) return null;
    const select = el('select', { 'data-filter': key, onchange: () => { state.filter[key] = select.value; applyFilter(); } },
      el('option', { value: '' }, `all ${values.length}`), ...values.map((value) => el('option', { value }, value)));
    return el('label', {}, el('span', { class: 'name' }, { data: 'Data set', method: 'Method', status: 'Status' }[key]), select);
  }).filter(Boolean);
  return selects.length ? el('div', { class: 'controls' }, ...selects) : null;
}

function applyFilter() {
  document.querySelectorAll('tr[data-run]').forEach((row) => { row.hidden = !passes(DATA.runs[row.dataset.run]); });
  document.querySelectorAll('.chooser option').forEach((option) => { option.hidden = !passes(DATA.runs[option.value]); });
  drawCurves();
  const left = DATA.runs.filter(passes);
  say(`${left.length} of ${DATA.runs.length} runs`);
  if (left.length && !left.includes(DATA.runs[current])) showRun(left[0].index);
}

/* --- a run in detail */

const drawn = new Set();
let current = 0;
let chooser = null;

function drawRun(index) {
  const run = DATA.runs[index];
  const article = document.getElementById(`run-${index}`);
  const put = (name, part) => {
    const place = slot(name, article);
    if (!place) return;
    place.append(part.root);
    part.draw();
  };
  if (run.heat) put('heat', new HeatMap(run.heat));
  if (run.workers) put('workers', new Timeline(run.workers));
  const names = { drop: 'drop', certain_drop: 'guaranteed drop', paper_drop: 'the paper\u2019s bound', c_k: 'c_k' };
  const keys = Object.keys(names).filter((key) => run.curves[key]);
  if (keys.length) {
    const series = keys.map((key, i) => ({ label: names[key], colour: i, dash: 0, second: i === 1, xs: run.epoch, ys: run.curves[key] }));
    const shown = new Set(run.epoch);
    put('certificate', new Chart({
      title: 'By how much the objective fell, and had to', xName: 'epochs', xOne: 'epoch', place: (x) => `epoch ${fmt(x)}`, log: true, own: true, height: 250, series,
      flags: run.uncertified.filter((epoch) => shown.has(epoch)), marks: run.marks.map((mark) => ({ x: mark.epoch, text: mark.text })),
      note: run.uncertified.length ? 'Crosses mark epochs whose certificate failed.' : '',
    }));
    slot('certificate', article).prepend(el('div', { class: 'key' }, ...series.map((s) => el('span', {}, el('i', { class: `c${s.colour}` }), s.label))));
  }
}

function showRun(index) {
  current = index;
  document.querySelectorAll('article.run').forEach((article) => { article.hidden = Number(article.dataset.run) !== index; });
  if (chooser) chooser.value = String(index);
  if (drawn.has(index)) return;
  drawn.add(index);
  drawRun(index);
}

function runChooser() {
  chooser = el('select', { id: 'chooser', onchange: () => showRun(Number(chooser.value)) },
    ...DATA.runs.map((run) => el('option', { value: run.index }, `${run.name} (${run.label}, ${run.data})`)));
  const step = (by) => () => {
    const left = DATA.runs.filter(passes).map((run) => run.index);
    const at = left.indexOf(current) + by;
    if (left.length) showRun(left[(at + left.length) % left.length]);
  };
  return el('div', { class: 'chooser' }, el('label', {}, el('span', { class: 'hidden' }, 'Run'), chooser),
    el('button', { type: 'button', class: 'more', 'aria-label': 'Run before', onclick: step(-1) }, '←'),
    el('button', { type: 'button', class: 'more', 'aria-label': 'Run after', onclick: step(1) }, '→'));
}

function followHash() {
  const match = /^#run-(\d+)$/.exec(location.hash);
  if (!match || !DATA.runs[match[1]]) return;
  showRun(Number(match[1]));
  document.getElementById(`run-${match[1]}`).scrollIntoView();
}

/* --- copying */

document.querySelectorAll('.copy').forEach((button) => button.addEventListener('click', async () => {
  const code = button.parentElement.querySelector('code');
  const range = document.createRange();
  range.selectNodeContents(code);
  getSelection().removeAllRanges();
  getSelection().addRange(range); // where copying is refused, the text is at least selected
  let done = false;
  try { await navigator.clipboard.writeText(code.textContent); done = true; } catch { try { done = document.execCommand('copy'); } catch { done = false; } }
  button.textContent = done ? 'Copied' : 'Selected';
  say(done ? 'copied' : 'the command is selected; copy it with your keyboard');
  setTimeout(() => { button.textContent = 'Copy'; }, 2000);
}));

/* --- begin */

if (DATA.runs.length) {
  const bar = filters();
  if (bar) slot('filters').append(bar);
  slot('curves').append(...[curveControls(), LABELS.length > 1 ? legend() : null, area].filter(Boolean));
  if (slot('chooser')) slot('chooser').append(runChooser());
  drawCurves();
  showRun(Math.max(0, DATA.runs.findIndex((run) => run.heat))); // the first that has most to show
  followHash();
  addEventListener('hashchange', followHash);
}
