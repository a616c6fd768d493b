"use strict";
// What the pages share beside the charts: words for numbers, the light and the dark theme, tables that sort.

const plural = (n, word) => `${n.toLocaleString("en-GB")} ${word}${n === 1 ? "" : "s"}`;

function duration(seconds) {
  if (typeof seconds !== "number") return null;
  if (seconds < 100) return `${figure(seconds, 2)} s`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min`;
  return `${figure(seconds / 3600, 2)} h`;
}

function theme() {
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => {
    try {
      return localStorage.getItem("cofed-theme");
    } catch {
      return null; // a browser that stores nothing for pages from disk
    }
  };
  let choice = stored() ?? "system";
  const apply = () => {
    const dark = choice === "dark" || (choice === "system" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    button.textContent = { system: "◐ System", light: "☀ Light", dark: "☾ Dark" }[choice];
    button.setAttribute("aria-label", `Theme: ${choice}. Change it.`);
  };
  button.addEventListener("click", () => {
    const order = system.matches ? ["system", "light", "dark"] : ["system", "dark", "light"];
    choice = order[(order.indexOf(choice) + 1) % 3];
    try {
      localStorage.setItem("cofed-theme", choice);
    } catch {
      // it lasts as long as the page
    }
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}

// A table that sorts by a click on a column's name. Cells are text, a number, [mean, low, high], null or an element;
// dress gives another element to show for a cell, or nothing; rank gives what a cell sorts by, where that is not itself.
function table({ columns, rows, left_out: leftOut }, caption, dress = () => null, rank = (_, cell) => cell) {
  const plain = (cell) => (Array.isArray(cell) ? cell[0] : cell instanceof Node ? cell.textContent : cell);
  const sortable = (cell, i) => plain(rank(columns[i], cell));
  const numeric = columns.map((name, i) => rows.some((row) => typeof plain(row[i]) === "number" && !dress(name, row[i])));
  const body = h("tbody");
  const heads = columns.map((name, i) => h("th", { scope: "col", class: numeric[i] ? "number" : null }, h("button", { type: "button", onclick: () => sort(i) }, name, h("span", { class: "arrow", "aria-hidden": "true" }))));
  let [by, down] = [null, false];
  const show = (cell) => {
    if (cell instanceof Node) return cell;
    if (Array.isArray(cell)) return [figure(cell[0]), h("small", {}, cell[1] === cell[2] ? "" : `${figure(cell[1], 4)} to ${figure(cell[2], 4)}`)];
    return typeof cell === "number" ? figure(cell) : (cell ?? "–");
  };
  const fill = (list) =>
    body.replaceChildren(
      ...list.map((row) =>
        h(
          "tr",
          {},
          row.map((cell, i) => h(i === 0 ? "th" : "td", { scope: i === 0 ? "row" : null, class: numeric[i] ? "number" : String(cell ?? "").length < 28 ? "brief" : null }, dress(columns[i], cell) ?? show(cell))),
        ),
      ),
    );
  const sort = (i) => {
    down = by === i && !down;
    by = i;
    heads.forEach((head, j) => (j === i ? head.setAttribute("aria-sort", down ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
    const empty = (v) => v === null || v === undefined || v === "";
    fill(
      [...rows].sort((a, b) => {
        const [x, y] = [sortable(a[i], i), sortable(b[i], i)];
        if (empty(x) || empty(y)) return empty(x) - empty(y); // what is missing comes last either way
        const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
        return down ? -order : order;
      }),
    );
  };
  fill(rows);
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: "data" }, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, heads)), body),
    leftOut ? h("p", { class: "hint" }, `${plural(leftOut, "more row")} in the run's folder.`) : null,
  );
}
