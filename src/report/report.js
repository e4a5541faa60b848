// Tables sort by a click on a heading and are filtered by a text; without scripts they stand as they are.
const UNITS = { "µs": 1e-6, ms: 1e-3, s: 1, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, k: 1e3, M: 1e6, G: 1e9 };

// "12.3 ms" as a number; null where there is none.
function number(text) {
  const found = text.replaceAll(",", "").match(/^([−-]?[\d.]+(?:e[+-]?\d+)?)\s*([^\s\d]*)/);
  return found && found[1] !== "." ? parseFloat(found[1].replace("−", "-")) * (UNITS[found[2]] ?? 1) : null;
}

function compare(a, b) {
  const [x, y] = [number(a), number(b)];
  if (x === null || y === null) return (x === null) - (y === null) || a.localeCompare(b);
  return x - y;
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
      const rows = [...body.rows].sort((a, b) => compare(text(a), text(b)) * (falling ? -1 : 1));
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
