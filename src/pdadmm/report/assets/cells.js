/* Charts of cells: residuals by layer and epoch, and how workers spent their epochs. A cursor moves over both directions. */

const HEAT = ['#00204d', '#28406d', '#535a6c', '#7c7b78', '#a69d75', '#d3c164', '#ffea46']; // cividis

function heatColour(share) {
  const place = Math.max(0, Math.min(1, share)) * (HEAT.length - 1);
  const i = Math.min(HEAT.length - 2, Math.floor(place));
  const part = (k) => [1, 3, 5].map((at) => parseInt(HEAT[k].slice(at, at + 2), 16));
  const [a, b] = [part(i), part(i + 1)];
  return `rgb(${a.map((v, k) => Math.round(v + (b[k] - v) * (place - i))).join(' ')})`;
}

/* What both have in common; subclasses say how cells look and what they mean. */
class Cells {
  constructor(title, help, columns, rows) {
    this.columns = columns;
    this.rows = rows;
    this.cell = null;
    this.title = title;
    this.plot = el('div', {
      class: 'plot', tabindex: '0', role: 'application', 'aria-roledescription': 'chart',
      'aria-label': `${title}. ${help} Arrow keys move over epochs and rows.`,
    });
    this.plot.owner = this;
    this.key = el('div', { class: 'key' });
    this.root = el('figure', { class: 'chart' }, this.key, this.plot, valueTable(() => this.table()));
    this.tip = new Tip(this.plot);
    interactive(this.plot, this);
    watcher.observe(this.plot);
  }

  draw() {
    if (!this.plot.clientWidth) return;
    this.width = Math.round(this.plot.clientWidth);
    this.left = this.labelWidth();
    this.cellWidth = (this.width - this.left - 6) / this.columns;
    const height = this.rows * (this.cellHeight + this.gap) + 34;
    this.plot.querySelector('svg')?.remove();
    const picture = svg('svg', { viewBox: `0 0 ${this.width} ${height}`, role: 'img', 'aria-label': this.title },
      svg('title', {}, this.title), svg('desc', {}, this.summary()));
    for (let r = 0; r < this.rows; r++) {
      const y = this.top(r);
      if (this.cellHeight >= 11 || r % 2 === 0) {
        picture.append(svg('text', { x: this.left - 7, y: y + this.cellHeight / 2 + 4, 'text-anchor': 'end' }, this.rowName(r)));
      }
      this.drawRow(picture, r, y);
    }
    const every = Math.max(1, Math.ceil(46 / this.cellWidth));
    for (let c = 0; c < this.columns; c += every) {
      if (c && this.columns - c < every / 2) continue;
      picture.append(svg('text', { x: this.left + (c + 0.5) * this.cellWidth, y: height - 18, 'text-anchor': 'middle' }, this.epochAt(c)));
    }
    picture.append(svg('text', { x: this.width - 6, y: height - 3, 'text-anchor': 'end' }, 'epoch'));
    this.cursor = svg('g', {});
    picture.append(this.cursor);
    this.plot.prepend(picture);
    if (this.cell) this.show(...this.cell);
  }

  top(r) { return 4 + r * (this.cellHeight + this.gap); }

  point(px, py) {
    if (!this.cellWidth) return;
    const c = Math.floor((px - this.left) / this.cellWidth);
    const r = Math.floor((py - 4) / (this.cellHeight + this.gap));
    this.show(Math.max(0, Math.min(this.columns - 1, c)), Math.max(0, Math.min(this.rows - 1, r)));
  }

  move(dx, dy) {
    const [c, r] = this.cell || [dx < 0 ? this.columns : dx ? -1 : 0, dy ? -dy : 0];
    this.show(Math.max(0, Math.min(this.columns - 1, c + dx)), Math.max(0, Math.min(this.rows - 1, r + dy)));
    say(this.words(...this.cell));
  }

  show(c, r) {
    this.cell = [c, r];
    const x = this.left + c * this.cellWidth;
    const box = { x, y: this.top(r), width: Math.max(2, this.cellWidth), height: this.cellHeight };
    this.cursor.replaceChildren(svg('rect', { class: 'cell-cursor', ...box }), svg('rect', { class: 'cell-cursor inner', ...box }));
    this.tip.show(x + this.cellWidth, this.top(r), ...this.tipOf(c, r));
  }

  leave() {
    this.cell = null;
    this.tip.hide();
    this.cursor?.replaceChildren();
  }
}

class HeatMap extends Cells {
  constructor(heat) {
    super('Residuals by layer and epoch', 'Colours are on a log scale.', heat.epoch.length, heat.values.length);
    this.heat = heat;
    this.cellHeight = Math.max(8, Math.min(24, 320 / this.rows));
    this.gap = 1;
    const values = heat.values.flat().filter((v) => v !== null && v > 0);
    this.low = Math.log10(Math.min(...values));
    this.high = Math.log10(Math.max(...values));
    const stops = HEAT.map((colour, i) => svg('stop', { offset: i / (HEAT.length - 1), 'stop-color': colour }));
    const id = `heat-${HeatMap.count = (HeatMap.count || 0) + 1}`;
    this.key.append(el('span', {}, `${values.length ? fmt(10 ** this.low) : ''} `), svg('svg', { viewBox: '0 0 170 10', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
      svg('defs', {}, svg('linearGradient', { id }, ...stops)), svg('rect', { width: 170, height: 10, fill: `url(#${id})` })),
    el('span', {}, `${values.length ? fmt(10 ** this.high) : ''}  |p − q| of each boundary, log scale`));
  }

  labelWidth() { return 62; }
  rowName(r) { return `layer ${r + 1}`; }
  epochAt(c) { return String(this.heat.epoch[c]); }
  share(v) { return (Math.log10(v) - this.low) / (this.high - this.low || 1); }

  drawRow(picture, r, y) {
    this.heat.values[r].forEach((v, c) => {
      if (v === null) return;
      picture.append(svg('rect', {
        x: (this.left + c * this.cellWidth).toFixed(2), y, width: (this.cellWidth + 0.3).toFixed(2), height: this.cellHeight,
        fill: heatColour(v > 0 ? this.share(v) : 0),
      }));
    });
  }

  tipOf(c, r) {
    const v = this.heat.values[r][c];
    return [`epoch ${this.heat.epoch[c]}`, [{ name: this.rowName(r), value: v === null ? 'not there yet' : fmt(v) }]];
  }

  words(c, r) {
    const v = this.heat.values[r][c];
    return `epoch ${this.heat.epoch[c]}, ${this.rowName(r)}: ${v === null ? 'not there yet' : fmt(v)}`;
  }

  summary() { return `${this.rows} layers over ${this.columns} epochs, residuals from ${fmt(10 ** this.low)} to ${fmt(10 ** this.high)}.`; }

  table() {
    return [['epoch', ...this.heat.values.map((_, r) => this.rowName(r))],
      ...this.heat.epoch.map((e, c) => [String(e), ...this.heat.values.map((row) => (row[c] === null ? '' : fmt(row[c])))])];
  }
}

const SPENT = ['compute', 'wait', 'send'];

class Timeline extends Cells {
  constructor(workers) {
    super('Workers by epoch', 'Bars show the seconds of compute, send and wait.', workers.epoch.length, workers.times.length);
    this.workers = workers;
    this.cellHeight = Math.max(22, Math.min(64, 360 / this.rows));
    this.gap = 8;
    this.most = Math.max(...workers.times.flat().map((times) => times.reduce((a, b) => a + b, 0))) || 1;
    this.key.append(...SPENT.map((name) => el('span', {}, el('i', { class: name }), name)),
      el('span', {}, `full height: ${fmt(this.most)} s. Within an epoch the order is not recorded.`));
  }

  labelWidth() { return 66; }
  rowName(r) { return `worker ${r + 1}`; }
  epochAt(c) { return String(this.workers.epoch[c][0]); }
  span(c) { const [a, b] = this.workers.epoch[c]; return a === b ? `epoch ${a}` : `epochs ${a} to ${b}`; }

  drawRow(picture, r, y) {
    picture.append(svg('rect', { class: 'lane', x: this.left, y, width: this.cellWidth * this.columns, height: this.cellHeight }));
    const pad = this.cellWidth > 5 ? 1 : 0;
    this.workers.times[r].forEach((times, c) => {
      let bottom = y + this.cellHeight;
      for (const k of [0, 2, 1]) {
        const height = (times[k] / this.most) * this.cellHeight;
        bottom -= height;
        picture.append(svg('rect', {
          class: SPENT[k], x: (this.left + c * this.cellWidth).toFixed(2), y: bottom.toFixed(2),
          width: Math.max(0.5, this.cellWidth - pad).toFixed(2), height: height.toFixed(2),
        }));
      }
    });
  }

  tipOf(c, r) {
    const times = this.workers.times[r][c];
    return [`${this.rowName(r)}, ${this.span(c)}`, SPENT.map((name, k) => ({ name, css: name, value: `${fmt(times[k])} s` }))];
  }

  words(c, r) {
    return `${this.span(c)}, ${this.rowName(r)}: ${SPENT.map((name, k) => `${name} ${fmt(this.workers.times[r][c][k])} seconds`).join(', ')}`;
  }

  summary() {
    return this.workers.times.map((parts, r) => `${this.rowName(r)}: ${SPENT.map((name, k) => (
      `${name} ${fmt(parts.reduce((sum, times) => sum + times[k], 0))} s`)).join(', ')}`).join('; ');
  }

  table() {
    return [['epochs', ...this.workers.times.flatMap((_, r) => SPENT.map((name) => `${this.rowName(r)} ${name}`))],
      ...this.workers.epoch.map((_, c) => [this.span(c), ...this.workers.times.flatMap((parts) => parts[c].map(fmt))])];
  }
}
