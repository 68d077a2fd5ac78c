'use strict';
/* Helpers that all parts of the page share. Texts only ever become text nodes, so no file's content can become markup. */

const root = document.documentElement;
const SVG = 'http://www.w3.org/2000/svg';

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

/* A number as people read it: five digits, and powers of ten where it is very large or small. */
function fmt(value) {
  if (value === null || value === undefined || !isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) {
    return value.toExponential(3).replace(/\.?0+e/, 'e').replace('e+', 'e');
  }
  return String(+value.toPrecision(5));
}

/* Shorter, for what is only beside the point. */
const fmtShort = (value) => (Math.abs(value) >= 1e-3 && Math.abs(value) < 1e6 ? String(+value.toPrecision(3)) : fmt(value));

function linearTicks(low, high, count) {
  const span = high - low || Math.abs(high) || 1;
  const raw = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= raw * 0.999);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) ticks.push(+(k * step).toPrecision(12));
  return ticks;
}

function logTicks(low, high, count) {
  const first = Math.floor(Math.log10(low));
  const last = Math.ceil(Math.log10(high));
  const decades = last - first;
  const factors = decades > count ? [1] : decades > 2 ? [1] : [1, 2, 5];
  const every = Math.max(1, Math.ceil(decades / count));
  const ticks = [];
  for (let k = first; k <= last; k++) {
    if ((k - first) % every) continue;
    for (const factor of factors) ticks.push(factor * 10 ** k);
  }
  const inside = ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
  return inside.length > 1 ? inside : linearTicks(low, high, count).filter((tick) => tick > 0);
}

/* Maps values to pixels. */
function makeScale(low, high, from, to, log) {
  const f = log ? Math.log10 : (value) => value;
  const a = f(low);
  const b = f(high) - a || 1;
  const scale = (value) => from + ((f(value) - a) / b) * (to - from);
  scale.ticks = (count) => (log ? logTicks(low, high, count) : linearTicks(low, high, count));
  return scale;
}

const live = document.getElementById('live');
let speaking = 0;

/* Tell a screen reader; of a held key only the last place is worth saying. */
function say(text) {
  clearTimeout(speaking);
  speaking = setTimeout(() => { live.textContent = text; }, 120);
}

/* Buttons of which one is pressed. */
function segments(label, choices, chosen, onChoose) {
  const buttons = choices.map(([value, text]) => el('button', {
    type: 'button', 'data-value': value, 'aria-pressed': String(value === chosen),
    onclick: () => {
      buttons.forEach((button) => button.setAttribute('aria-pressed', String(button.dataset.value === value)));
      onChoose(value);
    },
  }, text));
  return el('div', { class: 'segments', role: 'group', 'aria-label': label }, ...buttons);
}

/* A box beside the pointer, kept within the window. */
class Tip {
  constructor(plot) {
    this.plot = plot;
    this.node = el('div', { class: 'tip', hidden: true, 'aria-hidden': 'true' });
    plot.append(this.node);
  }

  show(x, y, title, entries) {
    this.node.replaceChildren(el('b', {}, title), ...entries.map((entry) => el('div', {
      class: entry.strong ? 'entry strong' : 'entry',
    }, el('span', {}, entry.css ? el('i', { class: entry.css }) : null, entry.name),
    el('span', { class: 'value' }, entry.value, entry.range ? el('small', {}, ` ${entry.range}`) : null))));
    this.node.hidden = false;
    const width = this.node.offsetWidth;
    const from = this.plot.getBoundingClientRect().left;
    const most = root.clientWidth - 6 - width - from;
    const left = x + 14 > most ? x - 14 - width : x + 14;
    this.node.style.left = `${Math.max(6 - from, Math.min(left, most))}px`;
    this.node.style.top = `${Math.max(0, y - 10)}px`;
  }

  hide() { this.node.hidden = true; }
}

/* Keys and pointers that move a cursor over a plot; the owner says what to do. */
function interactive(plot, owner) {
  plot.addEventListener('pointermove', (event) => { const box = plot.getBoundingClientRect(); owner.point(event.clientX - box.left, event.clientY - box.top); });
  plot.addEventListener('pointerdown', (event) => { const box = plot.getBoundingClientRect(); owner.point(event.clientX - box.left, event.clientY - box.top); });
  plot.addEventListener('pointerleave', (event) => { if (event.pointerType === 'mouse' && document.activeElement !== plot) owner.leave(); });
  plot.addEventListener('blur', () => owner.leave());
  plot.addEventListener('keydown', (event) => {
    const step = event.shiftKey ? 10 : 1;
    const moves = {
      ArrowRight: [step, 0], ArrowLeft: [-step, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-1e9, 0], End: [1e9, 0],
    };
    if (event.key === 'Escape') owner.leave();
    else if (moves[event.key]) owner.move(...moves[event.key]);
    else return;
    event.preventDefault();
  });
}

/* Draw again when the width changes. */
const watcher = new ResizeObserver((entries) => {
  for (const entry of entries) {
    const owner = entry.target.owner;
    const width = Math.round(entry.contentRect.width);
    if (owner && width && width !== owner.width) requestAnimationFrame(() => owner.draw());
  }
});

/* A table of values that is made when it is asked for. */
function valueTable(makeRows) {
  const details = el('details', {}, el('summary', {}, 'Values as a table'));
  details.addEventListener('toggle', () => {
    details.querySelector('.box')?.remove();
    if (!details.open) return;
    const [head, ...rows] = makeRows();
    details.append(el('div', { class: 'box tall', tabindex: '0', role: 'region', 'aria-label': 'Values' }, el('table', {},
      el('thead', {}, el('tr', {}, ...head.map((name) => el('th', { scope: 'col' }, name)))),
      el('tbody', {}, ...rows.map((row) => el('tr', {}, ...row.map((cell, i) => (
        i ? el('td', { class: 'n' }, cell) : el('th', { scope: 'row' }, cell)))))))));
  });
  return details;
}
