// Tables that are sorted by their columns, and maps that answer.

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const name = head.textContent;
    head.replaceChildren(button(name, "sort", () => sort(table, heads, column)));
  });
}

/** Upwards, at the second time downwards; what has no value comes last. */
function sort(table, heads, column) {
  const head = heads[column];
  const downwards = head.getAttribute("aria-sort") === "ascending";
  heads.forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", downwards ? "descending" : "ascending");
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, key: row.cells[column].dataset.sort }));
  rows.sort((one, another) => compareKeys(one.key, another.key, downwards ? -1 : 1));
  body.append(...rows.map(({ row }) => row));
}

function compareKeys(one, another, direction) {
  if (one === undefined || another === undefined) return (one === undefined) - (another === undefined);
  const [first, second] = [Number(one), Number(another)];
  if (one !== "" && another !== "" && !Number.isNaN(first) && !Number.isNaN(second)) return direction * (first - second);
  return direction * one.localeCompare(another, undefined, { numeric: true });
}

/** Tells what a cell of a map is, and shows where else its text stands. */
function answering(map) {
  const note = Object.assign(document.createElement("p"), { className: "cell-note", textContent: "\u00a0" });
  note.setAttribute("role", "status");
  map.querySelector(".scroll").after(note);
  const cells = [...map.querySelectorAll("td[data-place]")];
  const tell = ({ dataset: { place, text, value, detail } }) => {
    const parts = [place, value && !text.includes(value) ? `${text} (${value})` : text, detail];
    note.textContent = parts.filter(Boolean).join(" · ");
  };
  for (const cell of cells) {
    cell.addEventListener("pointerenter", () => tell(cell));
    cell.addEventListener("focus", () => tell(cell));
    cell.addEventListener("keydown", (event) => stepInMap(cell, event));
  }
  if (cells[0]) cells[0].tabIndex = 0;
  for (const key of map.querySelectorAll(".key")) {
    key.addEventListener("click", () => {
      const chosen = key.getAttribute("aria-pressed") !== "true";
      for (const other of map.querySelectorAll(".key")) other.setAttribute("aria-pressed", other === key && chosen);
      map.classList.toggle("chosen", chosen);
      for (const cell of cells) cell.classList.toggle("is-chosen", chosen && cell.dataset.text === key.dataset.text);
    });
  }
}

/** From cell to cell by the arrow keys. */
function stepInMap(cell, event) {
  const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
  const step = steps[event.key];
  if (!step) return;
  event.preventDefault();
  const row = cell.parentElement.parentElement.rows[cell.parentElement.sectionRowIndex + step[0]];
  const next = row?.cells[cell.cellIndex + step[1]];
  if (!next?.dataset.place) return;
  cell.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}
