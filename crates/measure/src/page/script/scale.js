// From values to places along an axis, and back.

/** Margin beyond the values, as a share of the axis. */
const VALUE_MARGIN = 0.04;

class Scale {
  /** An axis between two values and two places. */
  constructor(logarithmic, [first, last], [from, to]) {
    Object.assign(this, { logarithmic, first, last, from, to });
  }

  /**
   * The ends of an axis on which all these values have a place. Upwards, an axis in equal steps begins at nothing, so that
   * lengths can be compared, and any axis has a margin beyond the values.
   */
  static ends(values, logarithmic, upwards) {
    let [first, last] = [Infinity, -Infinity];
    for (const value of values) {
      if (!Scale.shows(value, logarithmic)) continue;
      first = Math.min(first, value);
      last = Math.max(last, value);
    }
    if (first > last) return logarithmic ? [1, 10] : [0, 1];
    return logarithmic ? Scale.ratios(first, last, upwards) : Scale.steps(first, last, upwards);
  }

  static steps(first, last, upwards) {
    if (upwards) [first, last] = [Math.min(first, 0), Math.max(last, 0)];
    if (first === last) return first === 0 ? [0, 1] : [first - Math.abs(first) / 2, last + Math.abs(last) / 2];
    const margin = upwards ? VALUE_MARGIN * (last - first) : 0;
    return [first < 0 ? first - margin : first, last > 0 ? last + margin : last];
  }

  static ratios(first, last, upwards) {
    const times = first === last ? 2 : (last / first) ** (upwards ? VALUE_MARGIN : 0);
    return first / times > 0 && Number.isFinite(last * times) ? [first / times, last * times] : [first, last];
  }

  /** Whether an axis has a place for this value. */
  static shows(value, logarithmic) {
    return value !== null && Number.isFinite(value) && (!logarithmic || value > 0);
  }

  /** Where a value lies; not a number for what cannot be shown. */
  place(value) {
    if (!Scale.shows(value, this.logarithmic)) return NaN;
    const share = this.logarithmic
      ? Math.log(value / this.first) / Math.log(this.last / this.first)
      : (value - this.first) / (this.last - this.first);
    return this.from + share * (this.to - this.from);
  }

  /** Which value lies at a place. */
  at(place) {
    const share = (place - this.from) / (this.to - this.from);
    return this.logarithmic
      ? this.first * (this.last / this.first) ** share
      : this.first + share * (this.last - this.first);
  }

  ticks(wanted, rounding) {
    const ticks = this.logarithmic ? logarithmicTicks : linearTicks;
    return ticks(this.first, this.last, wanted, rounding);
  }
}
