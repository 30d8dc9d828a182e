// What a figure does when it is pointed at, dragged over, or typed to.

/** A shorter drag is a click that trembled. */
const LEAST_DRAG = 8;

class Pointing {
  constructor(chart) {
    this.chart = chart;
    this.current = null;
    this.note = document.createElement("div");
    this.note.className = "note";
    this.note.setAttribute("role", "status");
    this.note.hidden = true;
    chart.place.append(this.note);
    const { svg } = chart;
    svg.addEventListener("pointermove", (event) => this.move(event));
    svg.addEventListener("pointerleave", () => this.drag || this.leave());
    svg.addEventListener("pointerdown", (event) => this.press(event));
    svg.addEventListener("pointerup", (event) => this.release(event));
    svg.addEventListener("pointercancel", () => this.stop());
    svg.addEventListener("dblclick", () => chart.reset());
    svg.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    svg.addEventListener("keydown", (event) => this.key(event));
    svg.addEventListener("blur", () => this.leave());
  }

  /** Where the pointer is on the drawing. */
  at(event) {
    const frame = this.chart.svg.getBoundingClientRect();
    return { x: event.clientX - frame.left, y: event.clientY - frame.top };
  }

  move(event) {
    const at = this.at(event);
    if (this.drag) return this.stretch(at);
    this.show(this.nearest(at));
  }

  /** The point nearest to a place, of those that can be seen. */
  nearest(at) {
    let [best, least] = [null, Infinity];
    this.chart.groups.forEach(({ places }, curve) => {
      places.forEach((place, point) => {
        if (!this.isVisible(place)) return;
        const distance = (place.x - at.x) ** 2 + (place.y - at.y) ** 2;
        if (distance < least) [best, least] = [{ curve, point }, distance];
      });
    });
    return best;
  }

  isVisible({ x, y }) {
    const { box } = this.chart;
    return x >= box.x - 1 && x <= box.x + box.width + 1 && y >= box.y - 1 && y <= box.y + box.height + 1;
  }

  show(current) {
    this.current = current;
    this.update();
  }

  leave() {
    this.show(null);
  }

  /** Draws the cross and the note anew where the current point now lies. */
  update() {
    const { chart, current, note } = this;
    chart.above.replaceChildren();
    const place = current && chart.groups[current.curve].places[current.point];
    note.hidden = !place || !this.isVisible(place);
    chart.emphasize(note.hidden ? null : current.curve);
    if (note.hidden) return;
    const { box } = chart;
    const [x, y] = [tenth(place.x), tenth(place.y)];
    draw(chart.above, "line", { class: "cross", x1: x, x2: x, y1: box.y, y2: box.y + box.height });
    draw(chart.above, "line", { class: "cross", x1: box.x, x2: box.x + box.width, y1: y, y2: y });
    const curve = chart.data.curves[current.curve];
    draw(draw(chart.above, "g", { class: curve.classes }), "circle", { class: "ring", cx: x, cy: y, r: 5.5 });
    this.fill(curve, curve.points[current.point]);
    this.put(place);
  }

  fill(curve, point) {
    const { x, y } = this.chart.axes;
    const rows = [[x.label, exactly(x, point[X])], [point[REPETITIONS] === null ? y.label : "median", exactly(y, point[MEDIAN])]];
    if (point[LOWER] !== null && point[UPPER] !== null) rows.push(["quartiles", range(y, point[LOWER], point[UPPER])]);
    if (point[LEAST] !== null && point[GREATEST] !== null) rows.push(["least, greatest", range(y, point[LEAST], point[GREATEST])]);
    if (point[REPETITIONS] !== null) rows.push(["repetitions", significant(point[REPETITIONS], 9)]);
    const list = document.createElement("dl");
    for (const [name, text] of rows) {
      list.append(Object.assign(document.createElement("dt"), { textContent: name }));
      list.append(Object.assign(document.createElement("dd"), { textContent: text }));
    }
    const title = Object.assign(document.createElement("strong"), { textContent: curve.name });
    const role = Object.assign(document.createElement("span"), { textContent: curve.role, className: "role" });
    title.append(role);
    this.note.replaceChildren(title, list);
  }

  /** Puts the note beside the point, on the side of the window that has space; below it where none has. */
  put({ x, y }) {
    const { note, chart } = this;
    const [width, height, gap] = [note.offsetWidth, note.offsetHeight, 14];
    const start = chart.place.getBoundingClientRect().left;
    const right = start + x + gap + width <= document.documentElement.clientWidth;
    const beside = right || start + x - gap - width >= 0;
    const left = right ? x + gap : Math.max(-start, x - gap - width);
    const top = beside ? Math.max(0, Math.min(y - height / 2, chart.height - height)) : y + gap;
    note.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  }

  press(event) {
    if (event.button !== 0 || event.pointerType === "touch") return;
    const { chart } = this;
    chart.svg.setPointerCapture(event.pointerId);
    this.drag = { from: this.at(event), to: this.at(event), pan: event.shiftKey, scales: [chart.scaleX, chart.scaleY] };
  }

  stretch(to) {
    this.drag.to = to;
    const { chart, drag } = this;
    chart.above.replaceChildren();
    this.note.hidden = true;
    if (drag.pan) {
      const [dx, dy] = [to.x - drag.from.x, to.y - drag.from.y];
      const [x, y] = drag.scales;
      chart.axes.x.ends = [x.at(x.from - dx), x.at(x.to - dx)];
      chart.axes.y.ends = [y.at(y.from - dy), y.at(y.to - dy)];
      return chart.renderSoon();
    }
    const area = this.dragged();
    if (area) draw(chart.above, "rect", { class: "dragged", ...area });
  }

  /** What is marked: a rectangle, or the whole height or width where the drag goes along one axis only. */
  dragged() {
    const { box } = this.chart;
    const within = (value, low, size) => Math.max(low, Math.min(value, low + size));
    const xs = [this.drag.from.x, this.drag.to.x].map((x) => within(x, box.x, box.width)).sort((a, b) => a - b);
    const ys = [this.drag.from.y, this.drag.to.y].map((y) => within(y, box.y, box.height)).sort((a, b) => a - b);
    const [wide, high] = [xs[1] - xs[0] >= LEAST_DRAG, ys[1] - ys[0] >= LEAST_DRAG];
    if (!wide && !high) return null;
    const [x, width] = wide ? [xs[0], xs[1] - xs[0]] : [box.x, box.width];
    const [y, height] = high ? [ys[0], ys[1] - ys[0]] : [box.y, box.height];
    return { x, y, width, height };
  }

  release(event) {
    if (!this.drag) return;
    const area = this.drag.pan ? null : this.dragged();
    const { box } = this.chart;
    this.stop();
    if (!area) return this.move(event);
    const xs = area.width < box.width ? [area.x, area.x + area.width] : null;
    const ys = area.height < box.height ? [area.y, area.y + area.height] : null;
    this.chart.zoom(xs, ys);
  }

  stop() {
    this.drag = null;
    this.leave();
  }

  wheel(event) {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
    event.preventDefault();
    const turned = event.deltaY || event.deltaX;
    this.zoomAround(this.at(event), Math.exp(Math.max(-200, Math.min(200, turned)) * 0.002));
  }

  /** Shows more (a factor above 1) or less of the surroundings of a place. */
  zoomAround({ x, y }, factor) {
    const { scaleX, scaleY } = this.chart;
    const around = (scale, place) => [scale.from, scale.to].map((end) => place + (end - place) * factor);
    this.chart.zoom(around(scaleX, x), around(scaleY, y));
  }

  key(event) {
    const action = {
      ArrowRight: () => this.step(1),
      ArrowLeft: () => this.step(-1),
      ArrowUp: () => this.change(-1),
      ArrowDown: () => this.change(1),
      "+": () => this.zoomAround(this.centre(), 0.7),
      "=": () => this.zoomAround(this.centre(), 0.7),
      "-": () => this.zoomAround(this.centre(), 1 / 0.7),
      Escape: () => this.chart.reset(),
      0: () => this.chart.reset(),
    }[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  }

  centre() {
    const { box, groups } = this.chart;
    const place = this.current && groups[this.current.curve].places[this.current.point];
    return place ?? { x: box.x + box.width / 2, y: box.y + box.height / 2 };
  }

  /** To the next point of the same curve that can be seen. */
  step(direction) {
    if (!this.current) return this.show(this.nearest({ x: 0, y: 0 }));
    const { places } = this.chart.groups[this.current.curve];
    for (let point = this.current.point + direction; point >= 0 && point < places.length; point += direction) {
      if (this.isVisible(places[point])) return this.show({ ...this.current, point });
    }
  }

  /** To the nearest point of the next curve. */
  change(direction) {
    if (!this.current) return this.step(1);
    const { groups } = this.chart;
    const from = groups[this.current.curve].places[this.current.point];
    for (let turn = 1; turn < groups.length; turn++) {
      const curve = (this.current.curve + direction * turn + groups.length * turn) % groups.length;
      const seen = groups[curve].places.map((place, point) => ({ place, point })).filter(({ place }) => this.isVisible(place));
      const by = (one, another) => Math.abs(one.place.x - from.x) - Math.abs(another.place.x - from.x);
      const [nearest] = seen.sort(by);
      if (nearest) return this.show({ curve, point: nearest.point });
    }
  }
}
