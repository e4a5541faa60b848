// Tables sort by a click on a heading and are filtered by a text; without scripts they stand as they are.
const UNITS = { "µs": 1e-6, ms: 1e-3, s: 1, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, k: 1e3, M: 1e6, G: 1e9 };

// "12.3 ms" and "2⁻¹⁴" as numbers; null where there is none.
function number(text) {
  const raised = text.match(/^2([⁻⁰¹²³⁴-⁹]+)$/);
  if (raised) return 2 ** [...raised[1]].map((c) => (c === "⁻" ? "-" : "⁰¹²³⁴⁵⁶⁷⁸⁹".indexOf(c))).join("");
  const found = text.replaceAll(",", "").match(/^([−-]?[\d.]+(?:e[+-]?\d+)?)\s*([^\s\d]*)/);
  return found && found[1] !== "." ? parseFloat(found[1].replace("−", "-")) * (UNITS[found[2]] ?? 1) : null;
}

// Names and sizes by the numbers in them: "batch size 4" before "batch size 16", "16×64" before "16×128".
function compare(a, b, isNumber) {
  const [x, y] = isNumber ? [number(a), number(b)] : [null, null];
  const empty = isNumber ? (x === null) - (y === null) : 0;
  const apart = x === null || y === null ? empty : x - y;
  return apart || a.localeCompare(b, undefined, { numeric: true });
}

for (const table of document.querySelectorAll(".table table")) {
  const body = table.tBodies[0];
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.textContent = heading.textContent;
    button.title = "sort";
    heading.replaceChildren(button);
    button.onclick = () => {
      const falling = heading.getAttribute("aria-sort") === "ascending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const text = (row) => row.cells[column].textContent;
      const isNumber = [...body.rows].some((row) => row.cells[column].classList.contains("number"));
      const rows = [...body.rows].sort((a, b) => compare(text(a), text(b), isNumber) * (falling ? -1 : 1));
      body.append(...rows);
    };
  });
  if (body.rows.length < 6) continue;
  const filter = document.createElement("input");
  filter.type = "search";
  filter.placeholder = "filter rows";
  filter.setAttribute("aria-label", "filter rows");
  filter.oninput = () => {
    const words = filter.value.toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(words);
  };
  table.parentElement.before(filter);
}
