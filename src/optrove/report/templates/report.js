"use strict";
// What the page can do without: sort and search tables, copy commands, open all details.
document.documentElement.classList.add("scripted");

function keyOf(cell) {
  const key = cell.dataset.key;
  if (key === undefined) return cell.textContent.trim();
  const number = Number(key);
  return Number.isNaN(number) ? key : number;
}

function compare(a, b) {
  // What is not known comes last, whichever way the table is sorted.
  if (a === "" || b === "") return null;
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
}

function sort(table, column, heading) {
  const falling = heading.getAttribute("aria-sort") !== "descending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
  const body = table.tBodies[0];
  const rows = Array.from(body.rows, (row) => [keyOf(row.cells[column]), row]);
  rows.sort(([a], [b]) => {
    const order = compare(a, b);
    if (order === null) return (a === "") - (b === "");
    return falling ? -order : order;
  });
  body.append(...rows.map(([, row]) => row));
}

for (const table of document.querySelectorAll("table.grid")) {
  Array.from(table.tHead.rows[0].cells).forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = heading.textContent;
    button.addEventListener("click", () => sort(table, column, heading));
    heading.replaceChildren(button);
  });
}

for (const input of document.querySelectorAll("input[type=search]")) {
  const rows = Array.from(document.getElementById(input.dataset.table).tBodies[0].rows);
  const count = input.closest(".find").querySelector("output");
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = words.length ? `${shown} of ${rows.length}` : "";
  });
}

function copied(button) {
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

function select(code) {
  const range = document.createRange();
  range.selectNodeContents(code);
  const selection = getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
}

for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", () => {
    const code = button.previousElementSibling;
    select(code);
    // A page that was opened as a file may not write to the clipboard: then it is selected.
    const written = navigator.clipboard ? navigator.clipboard.writeText(code.textContent) : Promise.reject();
    written.then(() => copied(button), () => { button.textContent = "Selected"; });
  });
}

for (const button of document.querySelectorAll("button[data-open]")) {
  button.addEventListener("click", () => {
    const open = button.textContent === "Open all";
    for (const each of document.getElementById(button.dataset.open).querySelectorAll("details.failure")) each.open = open;
    button.textContent = open ? "Close all" : "Open all";
  });
}

addEventListener("keydown", (event) => {
  const input = document.querySelector("input[type=search]");
  if (event.key === "/" && input && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) {
    event.preventDefault();
    input.focus();
  }
});

addEventListener("beforeprint", () => {
  for (const each of document.querySelectorAll("details.failure")) each.open = true;
});
