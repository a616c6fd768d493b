"use strict";
// The page of one fit. Everything shown is put in as text, never as HTML.

const data = JSON.parse(document.getElementById("data").textContent);

const section = (id, name, ...content) => h("section", { class: "sheet", id }, h("h2", {}, name), content.flat());
const words = (sentences) => sentences.map((sentence) => h("p", { class: "words" }, sentence));

function heading() {
  const { kind, sign, name } = data.verdict;
  return h(
    "div",
    { class: "title" },
    h("p", { class: "over" }, data.over),
    h("h1", {}, data.title, " ", h("span", { class: `verdict ${kind}` }, h("span", { "aria-hidden": "true" }, sign), ` ${name}`)),
    h("p", { class: "facts" }, data.facts.join(" · ")),
  );
}

const tiles = () => h("div", { class: "tiles" }, data.tiles.map(([value, name]) => h("div", { class: "tile" }, h("b", {}, value), h("span", {}, name))));

// ---- coefficients: the interval of each as a line on one scale

function forest({ coef, middle, low, high }, to) {
  const parts = [s("line", { class: "zero", x1: to(0), x2: to(0), y1: 0, y2: 22 })];
  if (low !== null) parts.push(s("line", { class: "forest-interval", x1: to(low), x2: to(high), y1: 11, y2: 11 }));
  if (middle !== null) parts.push(s("rect", { class: "forest-middle", x: to(middle) - 3.5, y: 7.5, width: 7, height: 7 }));
  if (coef !== null) parts.push(s("circle", { class: "forest-coef", cx: to(coef), cy: 11, r: 4 }));
  return s("svg", { class: "forest", viewBox: "0 0 240 22", "aria-hidden": "true" }, parts);
}

function coefficients() {
  const { columns, rows, drawn, names, units } = data.coefficients;
  const reached = drawn.flatMap(({ coef, middle, low, high }) => [coef, middle, low, high]).filter((value) => value !== null);
  const to = scale(padded([Math.min(0, ...reached), Math.max(0, ...reached)], false, 0.04), [4, 236], false).to;
  // The picture stands in the second column, and sorts by what it shows.
  const dress = (column, cell) => (column === units ? (cell === null ? h("span", {}) : forest(drawn[cell], to)) : null);
  const order = new Map(drawn.map((one, i) => [i, one.coef]));
  const all = h("div");
  const show = (whole) => {
    const kept = rows.filter(({ shown }) => whole || shown);
    all.replaceChildren(table({ columns, rows: kept.map(({ cells }) => cells) }, "Coefficients", dress, (column, cell) => (column === units ? order.get(cell) : cell)));
  };
  const rest = rows.filter(({ shown }) => !shown).length;
  const button = h("button", { type: "button", class: "quiet", id: "others", "aria-pressed": "false", onclick: () => {
    const pressed = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(pressed));
    button.textContent = pressed ? "Fewer" : `Also the ${plural(rest, "other")}`;
    show(pressed);
  } }, `Also the ${plural(rest, "other")}`);
  show(false);
  const key = (mark, text) => h("span", { class: "key" }, s("svg", { width: 26, height: 12, viewBox: "0 0 26 12", "aria-hidden": "true" }, mark), text);
  return section(
    "coefficients",
    "Coefficients",
    all,
    rest ? button : null,
    h("p", { class: "hint" }, names.map((name) => key(KEYS[name[0]](), name[1]))),
    h("p", { class: "hint" }, data.coefficients.words),
  );
}

const KEYS = {
  coef: () => s("circle", { class: "forest-coef", cx: 13, cy: 6, r: 4 }),
  middle: () => s("rect", { class: "forest-middle", x: 9.5, y: 2.5, width: 7, height: 7 }),
  interval: () => s("line", { class: "forest-interval", x1: 1, x2: 25, y1: 6, y2: 6 }),
};

// ---- charts

function strengths({ lines, yName, marks, bands, note, title }) {
  const chart = new Chart(lines, { title, xName: "alpha, the strength of the penalty", yName, xLog: true, yLog: false, bands, marks, falling: true });
  const legend = lines.length > 1 ? h("div", { class: "legend", role: "group", "aria-label": "Features" }, lines.map(({ series }) => toggle(chart, series))) : null;
  return h("div", {}, chart.element, legend, note ? h("p", { class: "hint" }, note) : null);
}

function curves() {
  if (!data.curves.length) return null;
  const drawn = data.curves.map(({ lines, title, xName, yName, bands, note }) => {
    const chart = new Chart(lines, { title, xName, yName, xLog: false, yLog: false, bands, fraction: true });
    return h("div", {}, chart.element, h("p", { class: "hint" }, note));
  });
  return section("curves", "Held-out rows", h("div", { class: "grid-of-charts" }, drawn), h("p", { class: "hint" }, "Each row by the model that has not learnt from its fold, all folds together."));
}

function toggle(chart, series) {
  const button = h("button", { type: "button", class: "series", "data-label": series.label, "aria-pressed": "true", onclick: () => {
    const hidden = chart.hidden.has(series.label);
    if (hidden) chart.hidden.delete(series.label);
    else chart.hidden.add(series.label);
    button.setAttribute("aria-pressed", String(hidden));
    chart.update({ ...chart.options });
  } }, swatch(series), h("span", {}, series.label));
  return button;
}

function choice() {
  if (!data.charts.length) return null;
  return section(
    "path",
    "How the strength was chosen",
    h("div", { class: "grid-of-charts" }, data.charts.map(strengths)),
    h("p", { class: "hint" }, "Strong penalties left, weak ones right. Drag to zoom, double-click to reset; arrow keys read values."),
  );
}

function reproduce() {
  const { command, python, versions } = data.reproduce;
  return section(
    "reproduce",
    "The same again",
    command ? [h("p", { class: "words" }, "By the command"), h("pre", { tabindex: "0" }, command)] : null,
    h("p", { class: "words" }, "The model in Python"),
    h("pre", { tabindex: "0" }, python),
    h("p", { class: "hint" }, Object.entries(versions).map(([name, version]) => `${name} ${version}`).join(" · ")),
  );
}

function draw() {
  const parts = [
    heading(),
    data.notes.map((note) => h("p", { class: "notice", role: "note" }, note)),
    tiles(),
    section("certificate", "How exact it is", words(data.certificate)),
    coefficients(),
    choice(),
    curves(),
    section("sites", "Sites", table(data.sites, "Sites")),
    section("exchanges", "What was exchanged", words(data.exchanges.words), table(data.exchanges.table, "Exchanges")),
    reproduce(),
  ];
  document.title = `${data.title} · cofed fit`;
  document.getElementById("main").append(...parts.flat().filter(Boolean));
}

theme();
draw();
