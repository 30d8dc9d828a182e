// A figure that answers: holds what is shown of it and draws that.

const MARGIN = { top: 34, right: 18, bottom: 46 };
const LETTER = 6.7;
/** What the buttons above a figure take of its width. */
const CONTROLS = 240;
/** Where the numbers of a point lie in the data. */
const [X, MEDIAN, LOWER, UPPER, LEAST, GREATEST, REPETITIONS] = [0, 1, 2, 3, 4, 5, 6];
/** A band may make an axis longer than its curves need, but not more than so many times. */
const BAND_STRETCH = 1.5;
const SPREADS = { quartiles: [LOWER, UPPER], extremes: [LEAST, GREATEST], none: null };

class Chart {
  static count = 0;

  constructor(figure) {
    this.figure = figure;
    this.place = figure.querySelector(".chart");
    this.data = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
    this.axes = {
      x: { ...this.data.x, logarithmicFirst: this.data.x.logarithmic, ends: null },
      y: { ...this.data.y, logarithmicFirst: this.data.y.logarithmic, ends: null },
    };
    this.hidden = new Set();
    this.spread = "quartiles";
    this.build();
    this.controls = new Controls(this);
    this.pointing = new Pointing(this);
    new ResizeObserver(() => this.resize()).observe(this.place);
    this.resize();
    figure.dataset.drawn = "yes";
  }

  /** Puts a drawing of its own in the place of the one that came with the page. */
  build() {
    this.place.replaceChildren();
    const label = `${this.data.title}. Arrow keys go from point to point and from curve to curve, plus and minus zoom, Escape shows all.`;
    this.svg = draw(this.place, "svg", { class: "drawing live", tabindex: 0, role: "application", "aria-label": label });
    const clip = `clip-${Chart.count++}`;
    this.clip = draw(draw(this.svg, "clipPath", { id: clip }), "rect");
    this.area = draw(this.svg, "rect", { class: "area" });
    this.frame = draw(this.svg, "g");
    const inside = draw(this.svg, "g", { "clip-path": `url(#${clip})` });
    this.groups = this.data.curves.map((curve) => {
      const group = draw(inside, "g", { class: curve.classes });
      const paths = { band: draw(group, "path", { class: "band" }), line: draw(group, "path", { class: "line" }) };
      return { group, ...paths, marks: draw(group, "path", { class: "marks" }) };
    });
    this.above = draw(this.svg, "g", { class: "above" });
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.place;
    if (width === 0 || (width === this.width && height === this.height)) return;
    Object.assign(this, { width, height });
    this.render();
  }

  /** Draws soon, once, however often it is asked to. */
  renderSoon() {
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => {
      this.due = false;
      this.render();
    });
  }

  render() {
    const { x, y } = this.axes;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    const shown = this.data.curves.filter((_, place) => !this.hidden.has(place));
    const isShown = (point) => Scale.shows(point[X], x.logarithmic) && Scale.shows(point[MEDIAN], y.logarithmic);
    this.isEmpty = !shown.some(({ points }) => points.some(isShown));
    const xEnds = x.ends ?? Scale.ends(this.values(shown, [X]), x.logarithmic, false);
    const inside = ([at]) => !x.ends || (at >= xEnds[0] && at <= xEnds[1]);
    const medians = [...this.values(shown, [MEDIAN], inside)];
    const bands = [...this.values(shown, SPREADS[this.spread] ?? [], inside)];
    const yEnds = y.ends ?? Scale.ends([...medians, ...limited(bands, medians)], y.logarithmic, true);
    this.scaleY = new Scale(y.logarithmic, yEnds, [this.height - MARGIN.bottom, MARGIN.top]);
    const yTicks = this.ticks(this.scaleY, y, Math.max(4, Math.round(this.height / 50)));
    const letters = Math.max(...yTicks.map(({ label }) => label.length), 1);
    const left = Math.round(14 + LETTER * letters);
    const right = this.width - MARGIN.right;
    this.scaleX = new Scale(x.logarithmic, xEnds, [left, right]);
    const box = { x: left, y: MARGIN.top, width: Math.max(right - left, 1), height: this.height - MARGIN.bottom - MARGIN.top };
    // A mark at the edge is to be seen whole; what goes on beyond it is not.
    const [beside, above] = [x.ends ? 0 : 4, y.ends ? 0 : 4];
    const wider = { x: box.x - beside, y: box.y - above, width: box.width + 2 * beside, height: box.height + 2 * above };
    for (const name of Object.keys(box)) {
      this.area.setAttribute(name, box[name]);
      this.clip.setAttribute(name, wider[name]);
    }
    this.box = box;
    this.renderFrame(left, right, yTicks);
    this.data.curves.forEach((curve, place) => this.renderCurve(curve, place));
    this.controls.update();
    this.pointing?.update();
  }

  *values(curves, columns, inside = () => true) {
    for (const { points } of curves) {
      for (const point of points) if (inside(point)) for (const column of columns) yield point[column];
    }
  }

  ticks(scale, axis, wanted) {
    if (this.isEmpty) return [];
    const steps = stepsOf(axis.unit);
    return scale.ticks(wanted, axis.rounding).map((value) => ({ place: scale.place(value), label: tickLabel(steps, value) }));
  }

  renderFrame(left, right, yTicks) {
    const [frame, bottom] = [this.frame, this.height - MARGIN.bottom];
    frame.replaceChildren();
    for (const { place, label } of yTicks) {
      draw(frame, "line", { class: "grid", x1: left, x2: right, y1: tenth(place), y2: tenth(place) });
      draw(frame, "text", { class: "tick end", x: left - 8, y: tenth(place + 4) }, label);
    }
    for (const { place, label } of this.ticks(this.scaleX, this.axes.x, Math.max(2, Math.floor((right - left) / 72)))) {
      draw(frame, "line", { class: "stroke", x1: tenth(place), x2: tenth(place), y1: bottom, y2: bottom + 5 });
      draw(frame, "text", { class: "tick middle", x: tenth(place), y: bottom + 20 }, label);
    }
    draw(frame, "line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom });
    if (this.isEmpty) {
      const middle = { x: (left + right) / 2, y: (MARGIN.top + bottom) / 2 };
      draw(frame, "text", { class: "empty middle", ...middle }, "nothing to draw");
    }
    const letters = (width) => Math.floor(width / LETTER);
    draw(frame, "text", { class: "name", x: 2, y: 16 }, shortened(axisName(this.axes.y), letters(this.width - CONTROLS)));
    draw(frame, "text", { class: "name end", x: right, y: this.height - 6 }, shortened(axisName(this.axes.x), letters(this.width)));
  }

  renderCurve(curve, place) {
    const { group, band, line, marks } = this.groups[place];
    const hidden = this.hidden.has(place);
    group.toggleAttribute("hidden", hidden);
    const [x, y] = [this.scaleX, this.scaleY];
    const places = hidden ? [] : curve.points.map((point) => ({ x: x.place(point[X]), y: y.place(point[MEDIAN]) }));
    this.groups[place].places = places;
    if (hidden) return;
    const columns = curve.joined ? SPREADS[this.spread] : null;
    const bounds = columns?.map((column) => curve.points.map((point) => y.place(point[column])));
    band.setAttribute("d", bounds ? bandPath(places.map(({ x }, at) => ({ x, low: bounds[0][at], high: bounds[1][at] }))) : "");
    line.setAttribute("d", curve.joined ? linePath(places) : "");
    marks.setAttribute("d", curve.marked ? marksPath(curve, places, this.width) : "");
  }

  /** How many values of the curves that are shown have no place on a logarithmic axis. */
  dropped() {
    const { x, y } = this.axes;
    const lost = ([at, median]) => (x.logarithmic && at !== null && at <= 0) || (y.logarithmic && median !== null && median <= 0);
    const counts = this.data.curves.map(({ points }, place) => (this.hidden.has(place) ? 0 : points.filter(lost).length));
    return counts.reduce((sum, count) => sum + count, 0);
  }

  /** Shows a part of the drawing, given by places on it; an axis without places stays as it is. */
  zoom(xPlaces, yPlaces) {
    if (xPlaces) this.axes.x.ends = zoomed(this.scaleX, xPlaces);
    if (yPlaces) this.axes.y.ends = zoomed(this.scaleY, yPlaces);
    this.renderSoon();
  }

  /** Shows all, on the axes it began with. */
  reset() {
    for (const axis of Object.values(this.axes)) Object.assign(axis, { ends: null, logarithmic: axis.logarithmicFirst });
    this.renderSoon();
  }

  toggleLogarithmic(name) {
    const axis = this.axes[name];
    Object.assign(axis, { logarithmic: !axis.logarithmic, ends: null });
    this.render();
  }

  get isChanged() {
    return Object.values(this.axes).some((axis) => axis.ends || axis.logarithmic !== axis.logarithmicFirst);
  }
}

/** What an axis counts, with its unit unless its labels have one. */
function axisName({ label, unit }) {
  return unit && !stepsOf(unit) ? `${label} (${unit})` : label;
}

/**
 * Ends of bands, as far as they may stretch an axis: where a few repetitions took very long, their band would otherwise
 * press the curves flat.
 */
function limited(bands, medians) {
  const greatest = medians.reduce((greatest, value) => (Number.isFinite(value) ? Math.max(greatest, value) : greatest), 0);
  return bands.map((value) => (value === null ? value : Math.min(value, BAND_STRETCH * greatest)));
}

/** The values between two places, as long as numbers can still tell them apart. */
function zoomed(scale, places) {
  const ends = places.map((place) => scale.at(place)).sort((one, another) => one - another);
  const width = ends[1] - ends[0];
  const apart = width > 1e-9 * Math.max(Math.abs(ends[0]), Math.abs(ends[1]));
  return Number.isFinite(width) && apart ? ends : [scale.first, scale.last];
}
