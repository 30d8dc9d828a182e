// Numbers in words. units.rs does the same for the drawing without scripts.

const UNITS = {
  bytes: { binary: true, steps: [[1, "B"], [1024, "KiB"], [1048576, "MiB"], [1073741824, "GiB"]] },
  time: { binary: false, steps: [[1e-3, "ns"], [1, "µs"], [1e3, "ms"], [1e6, "s"]] },
  plain: { binary: false, steps: null },
};

function unitNamed(name) {
  if (name === "bytes" || name === "B") return UNITS.bytes;
  if (name === "µs" || name === "us" || name === "microseconds") return UNITS.time;
  return UNITS.plain;
}

/** A round value, as it stands beside an axis. */
function tickLabel(unit, value) {
  if (!unit.steps || value === 0) return significant(value, 4);
  const fits = unit.steps.filter(([size]) => Math.abs(value) >= size * (1 - 1e-9));
  const [size, name] = fits.at(-1) ?? unit.steps[0];
  return `${significant(value / size, 4)}\u00a0${name}`;
}

/** A value with all digits that say something, in the axis's own unit. */
function exactly(axis, value) {
  const unit = unitNamed(axis.unit);
  const text = significant(value, 6);
  if (!axis.unit) return text;
  if (unit === UNITS.bytes) return Math.abs(value) < 1024 ? `${text} B` : `${text} B (${tickLabel(unit, value)})`;
  return unit === UNITS.time ? tickExactly(value) : `${text} ${axis.unit}`;
}

function tickExactly(microseconds) {
  if (microseconds === 0) return "0 µs";
  const fits = UNITS.time.steps.filter(([size]) => Math.abs(microseconds) >= size);
  const [size, name] = fits.at(-1) ?? UNITS.time.steps[0];
  return `${significant(microseconds / size, 5)} ${name}`;
}

/** As many letters of a text as there is room for. */
function shortened(text, room) {
  return text.length <= room ? text : `${text.slice(0, room - 1)}…`;
}

/** So many digits that count, no zeros behind them; digits before the point are never taken away. */
function significant(value, digits) {
  if (value === null || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const magnitude = Math.floor(Math.log10(Math.abs(value)));
  if (magnitude < -6 || magnitude >= 15) return value.toExponential(digits - 1);
  const decimals = Math.min(20, Math.max(0, digits - 1 - magnitude));
  let text = Math.abs(value).toFixed(decimals);
  if (text.includes(".")) text = text.replace(/\.?0+$/, "");
  const [whole, fraction] = text.split(".");
  const grouped = whole.length > 4 ? whole.replace(/\B(?=(\d{3})+$)/g, "\u202f") : whole;
  return (value < 0 ? "−" : "") + (fraction ? `${grouped}.${fraction}` : grouped);
}
