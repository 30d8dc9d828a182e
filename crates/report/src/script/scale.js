// From values to places along an axis, and back.

class Scale {
  /** An axis between two values and two places. */
  constructor(logarithmic, [first, last], [from, to]) {
    Object.assign(this, { logarithmic, first, last, from, to });
  }

  /** The ends of an axis on which all these values have room, and beyond them a share of it. */
  static ends(values, logarithmic, room) {
    let [first, last] = [Infinity, -Infinity];
    for (const value of values) {
      if (!Scale.shows(value, logarithmic)) continue;
      first = Math.min(first, value);
      last = Math.max(last, value);
    }
    if (first > last) return logarithmic ? [1, 10] : [0, 1];
    if (logarithmic) {
      const times = first === last ? 2 : (last / first) ** room;
      return first / times > 0 && Number.isFinite(last * times) ? [first / times, last * times] : [first, last];
    }
    // An axis in equal steps begins at nothing, so that lengths can be compared.
    const ends = [Math.min(first, 0), Math.max(last, 0)];
    const beyond = room * (ends[1] - ends[0]);
    return beyond === 0 && ends[0] === ends[1] ? [0, 1] : [ends[0] && ends[0] - beyond, ends[1] && ends[1] + beyond];
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

  ticks(wanted, binary) {
    const ticks = this.logarithmic ? logarithmicTicks : linearTicks;
    return ticks(this.first, this.last, wanted, binary);
  }
}
