// Round numbers along an axis. ticks.rs finds the same ones.

const MOST_TICKS = 64;
const ENOUGH_TICKS = 16;

/** Rounding is decimal, whole (the same without fractions) or binary (powers of two). */
function linearTicks(first, last, wanted, rounding) {
  const span = last - first;
  if (!Number.isFinite(span) || span <= 0) return Number.isFinite(first) ? [first] : [];
  const step = roundStep(span / Math.max(wanted, 1), rounding);
  const from = Math.ceil(first / step - 1e-9);
  const to = Math.min(Math.floor(last / step + 1e-9), from + MOST_TICKS);
  // One number says little of an axis.
  if (to - from < 1 && wanted < ENOUGH_TICKS) return linearTicks(first, last, 2 * Math.max(wanted, 1), rounding);
  const ticks = [];
  for (let place = from; place <= to; place++) ticks.push(place * step);
  return ticks;
}

function roundStep(rough, rounding) {
  if (rounding === "binary") return 2 ** Math.max(0, Math.ceil(Math.log2(rough)));
  if (rounding === "whole" && rough < 1) return 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  return ([1, 2, 5].find((times) => times * power >= rough * (1 - 1e-9)) ?? 10) * power;
}

function logarithmicTicks(first, last, wanted, rounding) {
  const binary = rounding === "binary";
  const base = binary ? 2 : 10;
  const from = Math.ceil(Math.log(first) / Math.log(base) - 1e-9);
  const to = Math.floor(Math.log(last) / Math.log(base) + 1e-9);
  const count = to - from + 1;
  const steps = 3 * Math.log10(last / first);
  if (!Number.isFinite(count) || count < 2 || (!binary && steps <= wanted)) return ticksBetween(first, last, wanted, rounding);
  const stride = [1, 2, 5, 10, 20, 50].find((candidate) => count / candidate <= wanted) ?? 100;
  const powers = [];
  for (let power = from; power <= Math.min(to, from + MOST_TICKS); power++) powers.push(power);
  const thinned = powers.filter((power) => power % stride === 0);
  return (thinned.length < 2 ? powers : thinned).map((power) => base ** power);
}

/** Where the axis is too short for powers. */
function ticksBetween(first, last, wanted, rounding) {
  const power = 10 ** Math.floor(Math.log10(first));
  const within = [1, 2, 5, 10, 20, 50, 100, 200, 500].map((times) => times * power)
    .filter((tick) => tick >= first && tick <= last);
  return within.length < 2 || rounding !== "decimal" ? linearTicks(first, last, wanted, rounding) : within;
}
