"use strict";
// Tables are sorted and filtered, and the page can be light or dark. Without this script all is there, as it is.

const root = document.documentElement;
const kept = {
  get: () => { try { return localStorage.getItem("theme"); } catch { return null; } },
  set: (theme) => { try { localStorage.setItem("theme", theme); } catch { /* not allowed here: then it is not kept */ } },
};

function themed() {
  const button = document.getElementById("theme");
  const wanted = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (wanted.matches ? "dark" : "light")) === "dark";
  const say = () => {
    button.setAttribute("aria-pressed", String(isDark()));
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Show the page ${isDark() ? "light" : "dark"}`);
  };
  const before = kept.get();
  if (before === "light" || before === "dark") root.dataset.theme = before;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    kept.set(root.dataset.theme);
    say();
  });
  wanted.addEventListener("change", say);
  button.hidden = false;
  say();
}

// A number's own value, or the text; what is missing comes last, whichever way.
function keyOf(row, column) {
  const cell = row.cells[column];
  if (!("value" in cell.dataset)) return cell.textContent;
  return cell.dataset.value === "" ? null : Number(cell.dataset.value);
}

function compare(first, second, sign) {
  if (first === null || second === null) return (first === null) - (second === null);
  if (typeof first === "number") return sign * (first - second);
  return sign * first.localeCompare(second, "en", { numeric: true });
}

function sortable(table) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const rises = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", rises ? "ascending" : "descending");
      const keyed = [...body.rows].map((row) => [keyOf(row, column), row]);
      keyed.sort(([first], [second]) => compare(first, second, rises ? 1 : -1));
      body.append(...keyed.map(([, row]) => row));
    });
  });
}

function filterable(box, table) {
  const rows = [...table.tBodies[0].rows];
  const tools = document.createElement("div");
  const input = document.createElement("input");
  const shown = document.createElement("output");
  tools.className = "tools";
  shown.className = "quiet";
  input.type = "search";
  input.placeholder = "Filter rows";
  input.setAttribute("aria-label", `Filter the rows of: ${box.getAttribute("aria-label")}`);
  const say = (count) => { shown.textContent = `${count} of ${rows.length} rows`; };
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows.forEach((row) => {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    });
    say(rows.filter((row) => !row.hidden).length);
  });
  say(rows.length);
  tools.append(input, shown);
  box.before(tools);
}

themed();
document.querySelectorAll(".scroll").forEach((box) => {
  const table = box.querySelector("table");
  if (table.tBodies[0].rows.length > 1) sortable(table);
  if (table.tBodies[0].rows.length > 12) filterable(box, table);
});
