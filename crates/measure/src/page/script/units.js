// Numbers in words. units.rs does the same for the drawing without scripts.

const BYTES = [[1, "B"], [1024, "KiB"], [1048576, "MiB"], [1073741824, "GiB"]];
const TIMES = [[1e-9, "ns"], [1e-6, "µs"], [1e-3, "ms"], [1, "s"]];
const SECONDS = { ns: 1e-9, "µs": 1e-6, us: 1e-6, microseconds: 1e-6, ms: 1e-3, s: 1 };

/** The sizes in which a unit is written, if it has any. */
function stepsOf(unit) {
  if (unit === "bytes" || unit === "B") return BYTES;
  return Object.hasOwn(SECONDS, unit) ? TIMES.map(([size, name]) => [size / SECONDS[unit], name]) : null;
}

/** The value in the largest size of which it has at least one. */
function stepped(steps, value, digits) {
  const fits = steps.filter(([size]) => Math.abs(value) >= size * (1 - 1e-9));
  const [size, name] = fits.at(-1) ?? steps[0];
  return `${significant(value / size, digits)}\u00a0${name}`;
}

/** A round value, as it stands beside an axis. */
function tickLabel(steps, value) {
  return steps && value !== 0 ? stepped(steps, value, 4) : significant(value, 4);
}

/** A value with all digits that say something. */
function exactly({ unit }, value) {
  const steps = stepsOf(unit);
  if (steps === BYTES && Math.abs(value) >= 1024) return `${significant(value, 6)} B (${stepped(steps, value, 4)})`;
  if (steps) return stepped(steps, value, 5);
  return unit ? `${significant(value, 6)} ${unit}` : significant(value, 6);
}

/** Two such values, the unit once. */
function range(axis, low, high) {
  const steps = stepsOf(axis.unit);
  if (!steps || steps === BYTES) return `${exactly(axis, low)} – ${exactly(axis, high)}`;
  const fits = steps.filter(([size]) => high >= size);
  const [size, name] = fits.at(-1) ?? steps[0];
  return `${significant(low / size, 5)} – ${significant(high / size, 5)}\u00a0${name}`;
}

/** At most so many letters of a text. */
function shortened(text, letters) {
  return text.length <= letters ? text : `${text.slice(0, letters - 1)}…`;
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
