"use strict";
// Without this file everything is shown: all methods, tables as they were written.
document.documentElement.classList.add("js");

function key(row, column) {
  const cell = row.cells[column];
  return "value" in cell.dataset ? Number(cell.dataset.value) : null;
}

function compared(a, b, column) {
  const [x, y] = [key(a, column), key(b, column)];
  if (x !== null && y !== null) return x - y;
  return a.cells[column].textContent.localeCompare(b.cells[column].textContent, "en", { numeric: true });
}

// What has no number in a column of numbers stays last, whichever way it is sorted.
function unknown(row, column, numeric) {
  return numeric && key(row, column) === null;
}

function sort(table, column, direction) {
  const rows = [...table.tBodies[0].rows];
  const numeric = rows.some((row) => key(row, column) !== null);
  rows.sort((a, b) => {
    const [left, right] = [unknown(a, column, numeric), unknown(b, column, numeric)];
    return left !== right ? left - right : direction * compared(a, b, column);
  });
  table.tBodies[0].append(...rows);
}

function clicked(table, header, column) {
  const before = header.getAttribute("aria-sort");
  const numeric = [...table.tBodies[0].rows].some((row) => key(row, column) !== null);
  const first = numeric && column > 0 ? "descending" : "ascending"; // the largest number is looked for first
  const other = first === "ascending" ? "descending" : "ascending";
  const now = before === first ? other : first;
  for (const one of table.tHead.rows[0].cells) one.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", now);
  sort(table, column, now === "ascending" ? 1 : -1);
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => clicked(table, header, column));
  });
}

for (const chooser of document.querySelectorAll(".chooser")) {
  const select = chooser.querySelector("select");
  const panels = [...chooser.querySelectorAll(".panel")];
  const show = () => panels.forEach((panel) => panel.classList.toggle("away", panel.id !== select.value));
  chooser.querySelector(".choice").hidden = panels.length < 2;
  select.addEventListener("change", show);
  show();
}

for (const box of document.querySelectorAll(".legend input")) {
  const figure = box.closest("figure");
  box.addEventListener("change", () => {
    const series = figure.querySelector(`g[data-series="${box.dataset.series}"]`);
    if (series) series.classList.toggle("away", !box.checked);
  });
}

// More is there beyond an edge: in pixels, as a scrolled place need not be whole.
function edges(box) {
  box.classList.toggle("more-left", box.scrollLeft > 1);
  box.classList.toggle("more-right", box.scrollWidth - box.clientWidth - box.scrollLeft > 1);
  box.classList.toggle("more-above", box.scrollTop > 1);
  box.classList.toggle("more-below", box.scrollHeight - box.clientHeight - box.scrollTop > 1);
}

// Only what can be scrolled has to be reached by the keyboard, and then it needs a name.
function reachable(box) {
  const label = box.dataset.label || box.querySelector("caption").textContent;
  const scrolls = box.scrollWidth - box.clientWidth > 1 || box.scrollHeight - box.clientHeight > 1;
  for (const [name, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", label]]) {
    if (scrolls) box.setAttribute(name, value);
    else box.removeAttribute(name);
  }
}

// It is told of the first size too, and of boxes that come into sight.
const sizes = new ResizeObserver((changed) => {
  for (const { target } of changed) {
    reachable(target);
    edges(target);
  }
});
for (const box of document.querySelectorAll(".box")) {
  sizes.observe(box);
  box.addEventListener("scroll", () => edges(box), { passive: true });
}
