// A click on a link keeps the drawing or the table that it belongs to as a file.
const SVG = "data:image/svg+xml;charset=utf-8,", CSV = "data:text/csv;charset=utf-8,";
const quoted = (cell) => `"${cell.textContent.replaceAll('"', '""')}"`;
const keep = (links, start, text) => {
  for (const link of document.querySelectorAll(links)) {
    link.addEventListener("click", () => { link.href = start + encodeURIComponent(text(link)); });
  }
};
keep("a.svg", SVG, (link) => new XMLSerializer().serializeToString(link.closest("figure").querySelector("svg")));
keep("a.csv", CSV, (link) => {
  const rows = [...link.closest("section").querySelector("table").rows];
  return rows.map((row) => [...row.cells].map(quoted).join(",")).join("\r\n") + "\r\n";
});
// What is folded is on paper too.
const folded = "details:not([open])";
addEventListener("beforeprint", () => {
  for (const one of document.querySelectorAll(folded)) { one.open = true; one.dataset.folded = ""; }
});
addEventListener("afterprint", () => {
  for (const one of document.querySelectorAll("details[data-folded]")) { one.open = false; delete one.dataset.folded; }
});
