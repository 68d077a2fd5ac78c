/* A chart of curves over epochs or seconds, with a cursor for pointer, touch and keys.

   spec: title, note, xName, xOne, place (the words for an x), log, logs (whether it may be), own (a switch of its own), height, whole (ticks without fractions),
         series [{label, colour, dash, second, thin, xs, ys, low, high, count}], marks [{x, text}], flags [x] */

const MOST_ENTRIES = 9;

class Chart {
  constructor(spec) {
    this.spec = spec;
    this.log = spec.log;
    this.at = null;
    this.chosen = null;
    this.plot = el('div', {
      class: 'plot', tabindex: '0', role: 'application', 'aria-roledescription': 'chart',
      'aria-label': `${spec.title}. ${this.describe()} Arrow keys left and right move over ${spec.xName}, up and down choose a curve.`,
    });
    this.plot.owner = this;
    this.note = el('p', { class: 'note' });
    const own = spec.own ? segments('Scale', [['log', 'log'], ['linear', 'linear']], this.log ? 'log' : 'linear', (choice) => {
      this.log = choice === 'log';
      this.draw();
    }) : null;
    this.root = el('figure', { class: 'chart' }, el('figcaption', {}, el('span', {}, spec.title), own), this.plot, this.note,
      valueTable(() => this.rows()));
    this.tip = new Tip(this.plot);
    interactive(this.plot, this);
    watcher.observe(this.plot);
  }

  describe() {
    const { series } = this.spec;
    const ends = series.slice(0, 4).map((s) => {
      const ys = s.ys.filter((y) => y !== null);
      return ys.length ? `${s.label} goes from ${fmt(ys[0])} to ${fmt(ys[ys.length - 1])}` : `${s.label} has no values`;
    });
    return `${series.length} curve${series.length === 1 ? '' : 's'}. ${ends.join('; ')}.`;
  }

  shown(value) { return value !== null && value !== undefined && (!this.log || value > 0); }

  bounds() {
    let [x0, x1, y0, y1, lost] = [Infinity, -Infinity, Infinity, -Infinity, 0];
    for (const s of this.spec.series) {
      s.xs.forEach((x, i) => {
        const y = s.ys[i];
        if (y === null || y === undefined) return;
        if (!this.shown(y)) { lost++; return; }
        x0 = Math.min(x0, x); x1 = Math.max(x1, x);
        const low = s.low && this.shown(s.low[i]) ? s.low[i] : y;
        const high = s.high ? s.high[i] : y;
        y0 = Math.min(y0, low); y1 = Math.max(y1, high);
      });
    }
    if (!isFinite(x0)) return null;
    if (y0 === y1) { const pad = Math.abs(y0) * 0.1 || 1; y0 = this.log ? y0 / 2 : y0 - pad; y1 = this.log ? y1 * 2 : y1 + pad; }
    else if (this.log) { const pad = (y1 / y0) ** 0.04; y0 /= pad; y1 *= pad; }
    else { const pad = (y1 - y0) * 0.05; y0 -= pad; y1 += pad; }
    return { x0, x1: x1 === x0 ? x0 + 1 : x1, y0, y1, lost };
  }

  draw() {
    const width = Math.max(240, Math.round(this.plot.clientWidth));
    if (!this.plot.clientWidth) return;
    this.width = Math.round(this.plot.clientWidth);
    const height = this.spec.height || 220;
    const bounds = this.bounds();
    this.plot.querySelector('svg')?.remove();
    this.lines = [];
    const picture = svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': this.spec.title },
      svg('title', {}, this.spec.title), svg('desc', {}, this.describe()));
    this.plot.prepend(picture);
    this.picture = picture;
    const lost = bounds ? bounds.lost : 0;
    this.note.textContent = [this.spec.note, lost ? `${lost} values that are not positive have no place on a log scale.` : '']
      .filter(Boolean).join(' ');
    if (!bounds) {
      picture.append(svg('text', { x: width / 2, y: height / 2, 'text-anchor': 'middle' }, 'nothing to show'));
      this.x = null;
      return;
    }
    const edge = { left: 50, right: 10, top: 8, bottom: 32 };
    this.edge = { ...edge, width, height };
    this.x = makeScale(bounds.x0, bounds.x1, edge.left, width - edge.right, false);
    this.y = makeScale(bounds.y0, bounds.y1, height - edge.bottom, edge.top, this.log);
    this.axes(picture);
    this.curves(picture);
    this.cursor = svg('g', {});
    picture.append(this.cursor);
    if (this.at !== null) this.point(this.x(this.at), null);
  }

  axes(picture) {
    const { left, right, top, bottom, width, height } = this.edge;
    const whole = (ticks) => (this.spec.whole ? ticks.filter(Number.isInteger) : ticks);
    for (const tick of whole(this.y.ticks(5))) {
      const y = this.y(tick);
      picture.append(svg('line', { class: 'grid', x1: left, x2: width - right, y1: y, y2: y }),
        svg('text', { x: left - 6, y: y + 4, 'text-anchor': 'end' }, fmt(tick)));
    }
    for (const tick of this.x.ticks(Math.max(2, Math.floor((width - left) / 70)))) {
      picture.append(svg('text', { x: this.x(tick), y: height - bottom + 16, 'text-anchor': 'middle' }, fmt(tick)));
    }
    picture.append(svg('line', { class: 'axis', x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }),
      svg('text', { x: width - right, y: height - 2, 'text-anchor': 'end' }, this.spec.xName));
    (this.spec.marks || []).forEach((mark, i) => {
      const x = this.x(mark.x);
      if (x < left || x > width - right) return;
      const end = x > width * 0.7;
      picture.append(svg('line', { class: 'mark', x1: x, x2: x, y1: top, y2: height - bottom }),
        svg('text', { class: 'halo', x: end ? x - 4 : x + 4, y: top + 9 + 12 * (i % 3), 'text-anchor': end ? 'end' : 'start' }, mark.text));
    });
  }

  curves(picture) {
    for (const s of this.spec.series) {
      const css = `c${s.colour % 8}`;
      const dash = s.second ? 'second' : `d${s.dash || 0}`;
      if (s.low) {
        const upper = [];
        const lower = [];
        s.xs.forEach((x, i) => {
          if (!this.shown(s.ys[i])) return;
          upper.push(`${this.x(x).toFixed(1)} ${this.y(s.high[i]).toFixed(1)}`);
          lower.unshift(`${this.x(x).toFixed(1)} ${this.y(this.shown(s.low[i]) ? s.low[i] : s.ys[i]).toFixed(1)}`);
        });
        if (upper.length > 1) picture.append(svg('path', { class: `band ${css}`, d: `M${[...upper, ...lower].join('L')}Z` }));
      }
      const d = this.path(s);
      const line = d ? svg('path', { class: `line ${css} ${dash}${s.thin ? ' thin' : ''}`, 'data-label': s.label, d }) : null;
      if (line) picture.append(line);
      this.lines.push(line);
    }
    for (const x of this.spec.flags || []) {
      const s = this.spec.series[0];
      const i = s.xs.indexOf(x);
      const y = i >= 0 && this.shown(s.ys[i]) ? this.y(s.ys[i]) : this.edge.height - this.edge.bottom;
      picture.append(svg('path', { class: 'flag', d: `M${this.x(x) - 4} ${y - 4}l8 8m0-8l-8 8` }));
    }
  }

  /* What was not measured is bridged; what a log scale has no place for is a gap. */
  path(s) {
    const runs = [[]];
    s.xs.forEach((x, i) => {
      const y = s.ys[i];
      if (y === null || y === undefined) return;
      if (this.shown(y)) runs[runs.length - 1].push(`${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)}`);
      else if (runs[runs.length - 1].length) runs.push([]);
    });
    return runs.filter((run) => run.length).map((run) => `M${run.join('L')}${run.length === 1 ? 'h0' : ''}`).join('');
  }

  /* Every x that some curve has a value at. */
  places() {
    const found = new Set();
    for (const s of this.spec.series) s.xs.forEach((x, i) => { if (this.shown(s.ys[i])) found.add(x); });
    return [...found].sort((a, b) => a - b);
  }

  /* The value of each curve nearest to x. */
  values(x) {
    const found = [];
    this.spec.series.forEach((s, index) => {
      let best = -1;
      s.xs.forEach((other, i) => {
        if (this.shown(s.ys[i]) && (best < 0 || Math.abs(other - x) < Math.abs(s.xs[best] - x))) best = i;
      });
      if (best < 0) return;
      const ends = Math.abs(s.xs[best] - x) > (this.spec.reach || 0) && (x > s.xs[s.xs.length - 1] || x < s.xs[0]);
      if (!ends) found.push({ s, index, i: best, x: s.xs[best], y: s.ys[best] });
    });
    return found;
  }

  point(px, py) {
    if (!this.x) return;
    const places = this.places();
    const at = places.reduce((best, x) => (Math.abs(this.x(x) - px) < Math.abs(this.x(best) - px) ? x : best), places[0]);
    this.show(at, py);
  }

  move(dx, dy) {
    if (!this.x) return;
    const places = this.places();
    const now = this.at === null ? (dx < 0 ? places.length : -1) : places.indexOf(this.at);
    if (dy && this.at === null) this.at = places[places.length - 1];
    const next = dx ? places[Math.max(0, Math.min(places.length - 1, now + dx))] : this.at;
    if (dy) {
      const count = this.spec.series.length;
      const order = [null, ...Array(count).keys()];
      this.chosen = order[(order.indexOf(this.chosen) + dy + order.length) % order.length];
    }
    this.show(next, null);
    this.speak();
  }

  show(at, py) {
    this.at = at;
    const found = this.values(at);
    const { top, bottom, height } = this.edge;
    const x = this.x(at);
    this.cursor.replaceChildren(svg('line', { class: 'cursor', x1: x, x2: x, y1: top, y2: height - bottom }),
      ...found.map((v) => svg('circle', { class: `dot c${v.s.colour % 8}`, cx: this.x(v.x), cy: this.y(v.y), r: 4 })));
    const near = py === null ? this.chosen : found.reduce((best, v) => {
      const far = Math.abs(this.y(v.y) - py);
      return far < best.far ? { far, index: v.index } : best;
    }, { far: 24, index: null }).index;
    this.lines.forEach((line, i) => {
      line?.classList.toggle('faded', near !== null && i !== near);
      line?.classList.toggle('strong', i === near);
    });
    this.tip.show(x, py === null ? top : Math.min(py, height - 40), this.spec.place(at), this.entries(found, near, py));
  }

  entries(found, near, py) {
    let kept = [...found].sort((a, b) => b.y - a.y);
    if (kept.length > MOST_ENTRIES) {
      const target = near !== null ? this.y(found.find((v) => v.index === near)?.y ?? found[0].y) : py ?? 0;
      kept = [...found].sort((a, b) => Math.abs(this.y(a.y) - target) - Math.abs(this.y(b.y) - target)).slice(0, MOST_ENTRIES)
        .sort((a, b) => b.y - a.y);
    }
    const entries = kept.map((v) => ({
      name: v.s.label, css: `c${v.s.colour % 8}`, strong: v.index === near,
      value: fmt(v.y), range: v.s.low && v.s.count[v.i] > 1 ? `${fmtShort(v.s.low[v.i])} to ${fmtShort(v.s.high[v.i])}` : '',
    }));
    if (found.length > kept.length) entries.push({ name: `and ${found.length - kept.length} more`, value: '' });
    return entries;
  }

  speak() {
    const found = this.values(this.at).filter((v) => this.chosen === null || v.index === this.chosen);
    const more = found.length > 4 ? `, and ${found.length - 4} more` : '';
    say(`${this.spec.place(this.at)}: ${found.slice(0, 4).map((v) => `${v.s.label} ${fmt(v.y)}`).join(', ')}${more}`);
  }

  leave() {
    this.at = null;
    this.chosen = null;
    this.tip.hide();
    this.cursor?.replaceChildren();
    (this.lines || []).forEach((line) => line?.classList.remove('faded', 'strong'));
  }

  rows() {
    const places = this.places();
    const { series } = this.spec;
    const maps = series.map((s) => new Map(s.xs.map((x, i) => [x, s.ys[i]])));
    return [[this.spec.xOne, ...series.map((s) => s.label)],
      ...places.map((x) => [fmt(x), ...maps.map((map) => (map.has(x) ? fmt(map.get(x)) : ''))])];
  }
}
