// Buttons of a figure: axes, spread, reset, the legend, and its values as a table.

class Controls {
  constructor(chart) {
    this.chart = chart;
    const bar = document.createElement("div");
    bar.className = "controls";
    this.toggles = ["x", "y"].map((name) => {
      const axis = chart.axes[name].label;
      const toggle = button(`log ${name}`, `${axis} in equal ratios`, () => chart.toggleLogarithmic(name));
      return { name, toggle };
    });
    this.reset = button("reset", "show all", () => chart.reset());
    bar.append(...this.toggles.map(({ toggle }) => toggle), ...this.spreadChoice(), this.reset);
    chart.place.prepend(bar);
    this.message = Object.assign(document.createElement("p"), { className: "message", hidden: true });
    this.message.setAttribute("role", "status");
    chart.place.after(this.message);
    this.keys = [...chart.figure.querySelectorAll(".key")];
    this.keys.forEach((key, place) => this.listen(key, place));
    chart.figure.append(this.values());
  }

  /** How far repetitions lie apart, where there are any. */
  spreadChoice() {
    const { chart } = this;
    if (!chart.data.curves.some(({ points }) => points.some((point) => point[LOWER] !== null))) return [];
    const choice = document.createElement("select");
    choice.setAttribute("aria-label", "band");
    const names = { quartiles: "quartiles", extremes: "min–max", none: "no band" };
    for (const [value, text] of Object.entries(names)) choice.append(new Option(text, value));
    choice.addEventListener("change", () => {
      chart.spread = choice.value;
      chart.render();
    });
    return [choice];
  }

  listen(key, place) {
    const { chart } = this;
    key.addEventListener("click", () => {
      if (!chart.hidden.delete(place)) chart.hidden.add(place);
      chart.render();
    });
    key.addEventListener("dblclick", () => {
      chart.hidden = new Set(chart.groups.map((_, other) => other).filter((other) => other !== place));
      chart.render();
    });
    key.addEventListener("pointerenter", () => chart.emphasize(place));
    key.addEventListener("pointerleave", () => chart.emphasize(null));
    key.title = "click: hide or show; double click: only this one";
  }

  /** Says what is shown now. */
  update() {
    const { chart } = this;
    for (const { name, toggle } of this.toggles) toggle.setAttribute("aria-pressed", chart.axes[name].logarithmic);
    this.reset.disabled = !chart.isChanged;
    this.keys.forEach((key, place) => key.setAttribute("aria-pressed", !chart.hidden.has(place)));
    const dropped = chart.dropped();
    this.message.hidden = dropped === 0;
    const values = dropped === 1 ? "1 value of zero or less has" : `${dropped} values of zero or less have`;
    this.message.textContent = dropped === 0 ? "" : `${values} no place on a logarithmic axis.`;
  }

  /** The numbers themselves, for readers, copies and screen readers; made when they are first asked for. */
  values() {
    const details = document.createElement("details");
    details.className = "data";
    details.append(Object.assign(document.createElement("summary"), { textContent: "values" }));
    details.addEventListener("toggle", () => details.children.length > 1 || details.append(this.table()));
    return details;
  }

  table() {
    const { axes, data } = this.chart;
    const table = document.createElement("table");
    table.className = "values";
    const withUnit = ({ label, unit }) => (unit ? `${label} (${unit})` : label);
    const names = ["curve", withUnit(axes.x), withUnit(axes.y), "lower quartile", "upper quartile", "least", "greatest", "repetitions"];
    const head = table.createTHead().insertRow();
    for (const name of names) head.append(Object.assign(document.createElement("th"), { textContent: name, scope: "col" }));
    const body = table.createTBody();
    for (const { name, points } of data.curves) {
      for (const point of points) {
        const row = body.insertRow();
        row.insertCell().textContent = name;
        for (const value of point) {
          Object.assign(row.insertCell(), { className: "number", textContent: significant(value, 6) });
        }
      }
    }
    const scroll = Object.assign(document.createElement("div"), { className: "scroll", tabIndex: 0 });
    scroll.append(table);
    return scroll;
  }
}

function button(text, title, act) {
  const element = Object.assign(document.createElement("button"), { type: "button", textContent: text, title });
  element.addEventListener("click", act);
  return element;
}

/** Lets one curve stand out, or none. */
Chart.prototype.emphasize = function (place) {
  this.svg.classList.toggle("emphasis", place !== null);
  this.groups.forEach(({ group }, other) => group.classList.toggle("emphasized", other === place));
  this.controls.keys.forEach((key, other) => key.classList.toggle("emphasized", other === place));
};
