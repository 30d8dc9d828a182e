// Paths for curves. drawing.rs and curves.rs draw the same without scripts.

const SVG = "http://www.w3.org/2000/svg";

/** An element of a drawing, with its attributes, inside another one. */
function draw(parent, name, attributes = {}, text = null) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  parent.append(element);
  return element;
}

/** A place with a tenth of a pixel: no eye sees more, and paths stay short. */
const tenth = (place) => Math.round(place * 10) / 10;

/** A line through places, broken where there is none. */
function linePath(places) {
  let [path, pen] = ["", "M"];
  for (const { x, y } of places) {
    if (Number.isNaN(x) || Number.isNaN(y)) {
      pen = "M";
      continue;
    }
    path += `${pen}${tenth(x)} ${tenth(y)}`;
    pen = "L";
  }
  return path;
}

/** The area between two places of each point, an outline for each unbroken run. */
function bandPath(bounds) {
  let [path, upper, lower] = ["", [], []];
  const close = () => {
    if (upper.length > 1) path += `M${upper.concat(lower.reverse()).join("L")}z`;
    [upper, lower] = [[], []];
  };
  for (const { x, low, high } of bounds) {
    if ([x, low, high].some(Number.isNaN)) {
      close();
      continue;
    }
    upper.push(`${tenth(x)} ${tenth(high)}`);
    lower.push(`${tenth(x)} ${tenth(low)}`);
  }
  close();
  return path;
}

const MARKS = {
  circle: (x, y, r) => `M${tenth(x - r)} ${tenth(y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
  square: (x, y, r) => `M${tenth(x - r)} ${tenth(y - r)}h${2 * r}v${2 * r}h${-2 * r}z`,
  triangle: (x, y, r) => `M${tenth(x)} ${tenth(y - 1.3 * r)}l${1.2 * r} ${2.1 * r}h${-2.4 * r}z`,
  diamond: (x, y, r) => `M${tenth(x)} ${tenth(y - 1.3 * r)}l${1.3 * r} ${1.3 * r}l${-1.3 * r} ${1.3 * r}l${-1.3 * r} ${-1.3 * r}z`,
};

/** Marks at places: smaller where they are many, so that they do not hide the line, and none if they are hollow. */
function marksPath({ mark, joined, other }, places, width) {
  const seen = places.filter(({ x, y }) => !Number.isNaN(x) && !Number.isNaN(y) && x >= -9 && x <= width + 9);
  const radius = Math.min(3, Math.max(joined ? 1.5 : 2, (0.3 * width) / Math.max(seen.length, 1)));
  if (radius < 2 && joined && other) return "";
  return seen.map(({ x, y }) => MARKS[mark](x, y, radius)).join("");
}
