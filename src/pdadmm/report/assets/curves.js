/* The curves of all runs: small multiples, a row of panels for each data set. */

const DATA = JSON.parse(document.getElementById('data').textContent);
const METRICS = [
  { key: 'objective', name: 'Objective', logs: true },
  { key: 'residual', name: 'Residual', logs: true },
  { key: 'test', name: 'Test score', panel: 'score' },
  { key: 'train', name: 'Train score', panel: 'score' },
  { key: 'stationarity', name: 'Stationarity', logs: true },
  { key: 'ridge', name: 'Ridge', logs: true },
  { key: 'layers', name: 'Depth', whole: true },
];

DATA.runs.forEach((run, index) => { run.index = index; });
const LABELS = [...new Set(DATA.runs.map((run) => run.label))].sort((a, b) => (
  b.startsWith('pdadmm') - a.startsWith('pdadmm') || a.localeCompare(b)));
const repeated = new Set(DATA.runs.map((run) => `${run.data}\n${run.label}`)).size < DATA.runs.length;
const present = METRICS.filter((metric) => DATA.runs.some((run) => run.curves[metric.key]));

const state = {
  x: 'epoch', log: true, mean: repeated, off: new Set(), filter: { data: '', method: '', status: '' },
  shown: new Set(present.map((metric) => metric.key).filter((key) => (
    ['objective', 'residual', 'test'].includes(key) || (key === 'train' && (LABELS.length <= 3 || !present.some((m) => m.key === 'test')))))),
};

const passes = (run) => Object.entries(state.filter).every(([key, value]) => !value || run[key] === value);

/* The mean and range at each epoch over runs that share a label. */
function meanOf(runs, key) {
  const found = new Map();
  for (const run of runs) {
    run.epoch.forEach((epoch, i) => {
      const value = run.curves[key][i];
      if (value === null) return;
      if (!found.has(epoch)) found.set(epoch, []);
      found.get(epoch).push(value);
    });
  }
  const xs = [...found.keys()].sort((a, b) => a - b);
  const all = xs.map((x) => found.get(x));
  return {
    xs, ys: all.map((values) => values.reduce((a, b) => a + b, 0) / values.length),
    low: all.map((values) => Math.min(...values)), high: all.map((values) => Math.max(...values)), count: all.map((values) => values.length),
  };
}

function seriesOf(runs, metric, several) {
  const found = [];
  const suffix = several ? ` (${metric.key})` : '';
  for (const label of LABELS) {
    const mine = runs.filter((run) => run.label === label && run.curves[metric.key]);
    if (!mine.length || state.off.has(label)) continue;
    const colour = LABELS.indexOf(label);
    const style = { colour, dash: Math.floor(colour / 8) % 4, second: several && metric.key === 'train' };
    if (state.mean && state.x === 'epoch' && mine.length > 1) {
      found.push({ ...style, label: label + suffix, ...meanOf(mine, metric.key) });
      continue;
    }
    for (const run of mine) {
      const name = mine.length > 1 ? `${label}: ${run.name}` : label;
      found.push({ ...style, label: name + suffix, thin: mine.length > 1, xs: run[state.x], ys: run.curves[metric.key] });
    }
  }
  return found;
}

/* Growth and hand-overs, where they are few enough to be read. */
function marksOf(runs) {
  const visible = runs.filter((run) => !state.off.has(run.label));
  if (state.x === 'seconds' && visible.length > 1) return [];
  const found = new Map();
  for (const run of visible) {
    for (const mark of run.marks) {
      const i = run.epoch.indexOf(mark.epoch);
      const x = state.x === 'epoch' ? mark.epoch : run.seconds[i];
      if (i >= 0) found.set(`${x} ${mark.text}`, { x, text: mark.text });
    }
  }
  return found.size <= 6 ? [...found.values()] : [];
}

function scoreName(runs, keys) {
  const kinds = [...new Set(runs.map((run) => run.metric))];
  const part = keys.length > 1 ? 'Test and train' : keys[0] === 'test' ? 'Test' : 'Train';
  return `${part} ${kinds.length === 1 ? kinds[0] : 'score'}`;
}

function panelsOf(runs, data, named) {
  const groups = new Map();
  for (const metric of present.filter((m) => state.shown.has(m.key))) {
    const key = metric.panel || metric.key;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(metric);
  }
  const panels = [];
  for (const metrics of groups.values()) {
    const series = metrics.flatMap((metric) => seriesOf(runs, metric, metrics.length > 1));
    if (!series.length) continue;
    const title = metrics[0].panel ? scoreName(runs, metrics.map((m) => m.key)) : metrics[0].name;
    panels.push(new Chart({
      title: named ? `${title}, ${data}` : title, xName: state.x === 'epoch' ? 'epochs' : 'seconds',
      xOne: state.x, place: state.x === 'epoch' ? (x) => `epoch ${fmt(x)}` : (x) => `${fmt(x)} s`, log: Boolean(metrics[0].logs && state.log), whole: metrics[0].whole, series,
      marks: marksOf(runs), reach: state.x === 'epoch' ? 0 : Infinity,
    }));
  }
  return panels;
}

/* What must be known to read the panels rightly. */
function notesOf(runs) {
  const visible = runs.filter((run) => !state.off.has(run.label));
  const notes = [];
  if (repeated && state.mean && state.x === 'epoch') notes.push('Lines are means over runs that differ in their seed alone, bands their range.');
  if (state.x === 'seconds') notes.push('Seconds of training, evaluation not counted; each run is a line of its own.');
  if (state.shown.has('objective') && new Set(visible.map((run) => run.method)).size > 1) {
    notes.push('Each method has an objective of its own, so their heights do not compare; scores do.');
  }
  if (state.shown.has('test') && state.shown.has('train')) notes.push('Scores: solid on the test part, dashed on the training part.');
  if (visible.some((run) => run.thinned)) notes.push('Of long runs not every epoch is drawn.');
  return notes.length ? [el('p', { class: 'note' }, notes.join(' '))] : [];
}

const area = el('div', { id: 'panels' });

function drawCurves() {
  const runs = DATA.runs.filter(passes);
  const sets = [...new Set(runs.map((run) => run.data))].sort();
  area.replaceChildren(...notesOf(runs));
  const all = [];
  for (const data of sets) {
    const panels = panelsOf(runs.filter((run) => run.data === data), data, sets.length > 1);
    const grid = el('div', { class: 'panels' }, ...panels.map((panel) => panel.root));
    area.append(...(sets.length > 1 ? [el('h3', {}, data)] : []), grid);
    all.push(...panels);
  }
  if (!all.length) area.append(el('p', { class: 'lead' }, 'Nothing is chosen: switch a curve on above, or choose fewer filters.'));
  all.forEach((panel) => panel.draw());
}

function chips(name, entries, isOn, onToggle) {
  return el('fieldset', {}, el('legend', {}, name), el('div', { class: 'chips' }, ...entries.map(([key, text]) => el('label', {},
    el('input', { type: 'checkbox', value: key, checked: isOn(key), onchange: (event) => onToggle(key, event.target.checked) }), text))));
}

function legend() {
  const box = el('fieldset', { class: 'legend' }, el('legend', { class: 'hidden' }, 'Curves'));
  const inputs = LABELS.map((label, i) => {
    const mine = DATA.runs.filter((run) => run.label === label);
    const count = Math.max(...mine.map((run) => mine.filter((other) => other.data === run.data).length)); // on one data set
    const input = el('input', {
      type: 'checkbox', checked: true, 'data-label': label,
      onchange: () => { state.off[input.checked ? 'delete' : 'add'](label); drawCurves(); },
    });
    box.append(el('label', {}, input, svg('svg', { viewBox: '0 0 24 10', 'aria-hidden': 'true' },
      svg('path', { class: `line c${i % 8} d${Math.floor(i / 8) % 4}`, d: 'M1 5H23' })), label,
    count > 1 ? el('small', {}, `${count} runs`) : null));
    return input;
  });
  const all = (on) => {
    inputs.forEach((input) => { input.checked = on; });
    state.off = new Set(on ? [] : LABELS);
    drawCurves();
  };
  if (LABELS.length > 3) {
    box.append(el('button', { type: 'button', onclick: () => all(true) }, 'All'), el('button', { type: 'button', onclick: () => all(false) }, 'None'));
  }
  return box;
}

function curveControls() {
  const set = (change) => (value) => { change(value); drawCurves(); };
  const group = (name, node) => el('div', {}, el('span', { class: 'name', 'aria-hidden': 'true' }, name), node);
  const parts = [
    group('By', segments('By', [['epoch', 'epoch'], ['seconds', 'seconds']], state.x, set((value) => { state.x = value; }))),
    group('Scale', segments('Scale', [['log', 'log'], ['linear', 'linear']], 'log', set((value) => { state.log = value === 'log'; }))),
  ];
  if (repeated) {
    parts.push(group('Runs that differ in their seed', segments('Runs that differ in their seed', [['mean', 'mean and range'], ['each', 'each']],
      'mean', set((value) => { state.mean = value === 'mean'; }))));
  }
  parts.push(chips('Show', present.map((m) => [m.key, m.name]), (key) => state.shown.has(key), (key, on) => {
    state.shown[on ? 'add' : 'delete'](key);
    drawCurves();
  }));
  return el('div', { class: 'controls' }, ...parts);
}
