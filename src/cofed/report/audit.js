"use strict";
// The page of logs of what left. Everything shown is put in as text, never as HTML.

const data = JSON.parse(document.getElementById("data").textContent);

const verdict = ({ kind, sign, name }) => h("span", { class: `verdict ${kind}` }, h("span", { "aria-hidden": "true" }, sign), ` ${name}`);
const words = (sentences) => sentences.map((sentence) => h("p", { class: "words" }, sentence));
const tiles = (shown) => h("div", { class: "tiles" }, shown.map(([value, name, kind]) => h("div", { class: `tile ${kind}` }, h("b", {}, value), h("span", {}, name))));
const sheet = (kind, name, ...content) => h("section", { class: `sheet ${kind}` }, h("h2", {}, name), content.flat());

function bytes(count) {
  for (const [unit, scale] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (count >= scale) return `${Number((count / scale).toPrecision(3))} ${unit}`;
  }
  return `${count} B`;
}

// Bytes are read best with their unit, and sort as numbers.
const dress = (column, cell) => (column === "bytes" && cell !== null ? h("span", {}, bytes(cell)) : null);

function log({ site, facts, verdict: found, problems, words: said, notes, tiles: shown, left, lines, said: sentences, earlier }) {
  return [
    data.logs.length > 1 ? h("div", { class: "title log" }, h("h2", {}, site, " ", verdict(found)), h("p", { class: "facts" }, facts.join(" · "))) : null,
    problems.length ? h("div", { class: "notice" }, h("ul", {}, problems.map((problem) => h("li", {}, problem)))) : null,
    tiles(shown),
    sheet("summary", "By study, fit and question", words(said), left.rows.length ? table(left, `What left ${site}, by question`, dress) : null),
    sheet("checked", "What was checked", words(notes)),
    sentences.length ? sheet("said", "What the site noted", h("ul", { class: "told" }, sentences.map((sentence) => h("li", {}, sentence)))) : null,
    sheet("lines", "Every line", earlier ? h("p", { class: "hint" }, `The last ${lines.rows.length}; ${plural(earlier, "earlier line")} in the file.`) : null, table(lines, `Every line of the log of ${site}`, dress)),
  ];
}

theme();
document.title = data.title;
document.getElementById("main").append(
  h(
    "div",
    { class: "title" },
    h("p", { class: "over" }, data.logs.length === 1 ? "A log of what left, written by the site itself" : "Logs of what left, each written by the site itself"),
    h("h1", {}, data.title, " ", verdict(data.verdict)),
    data.logs.length === 1 ? h("p", { class: "facts" }, data.logs[0].facts.join(" · ")) : null,
  ),
  ...data.logs.flatMap(log).filter((part) => part !== null),
);
