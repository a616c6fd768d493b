"use strict";
// A fit while it runs: the page is drawn anew from what the events have told. All texts go in as text, never as HTML.

const main = document.getElementById("main");
const known = { title: "", sites: new Map(), exchanges: [], gaps: [], target: null, troubles: [], happened: [], waiting: "", end: null, begun: null, lost: false };
const SENT = { label: "bytes", light: "#0072B2", dark: "#56B4E9", dash: "" };
const GAP = { label: "gap", light: "#D55E00", dark: "#E69F00", dash: "" };
const GOAL = { label: "to be reached", light: "#6B6B6B", dark: "#a0a8b1", dash: "2 4" };
const LASTING = new Set(["joined", "replaced", "trouble", "refused", "left out", "stopped"]); // kinds of events that are listed
const TROUBLED = ["in trouble", "refused", "left out"]; // states whose reason is shown
const STATES = { joined: "there", replaced: "there", asked: "working", heard: "answered", trouble: "in trouble", refused: "refused", "left out": "left out" };

// What an event changes.
const HEARD = {
  begin: (event) => {
    known.title = event.title;
    known.begun = event.time;
    const gone = [...known.sites].filter(([, { state }]) => state === "left out");
    known.sites = new Map([...event.sites.map(({ name, rows }) => [name, { rows, state: "there", at: null, words: "" }]), ...gone]);
  },
  waiting: (event) => (known.waiting = event.words),
  exchange: (event) => {
    known.exchanges.push(event);
    known.waiting = "";
    for (const site of known.sites.values()) if (site.state !== "left out") Object.assign(site, { state: "answered", at: event.time, words: "" });
  },
  gap: (event) => {
    known.gaps.push({ x: known.exchanges.length, gap: event.gap });
    known.target = event.target;
  },
  end: (event) => (known.end = event),
};

function hear(event) {
  HEARD[event.kind]?.(event);
  if (event.site !== undefined && STATES[event.kind]) {
    const site = known.sites.get(event.site) ?? { rows: null, at: null };
    known.sites.set(event.site, { ...site, state: STATES[event.kind], words: event.words ?? "", at: event.kind === "heard" ? event.time : site.at });
  }
  if (LASTING.has(event.kind) && event.words) known.happened.push(event);
  if (["trouble", "refused", "left out"].includes(event.kind)) known.troubles.push(event);
}

function ago(time) {
  if (time === null) return "–";
  const seconds = Math.max(0, Math.round((known.end?.time ?? Date.now() / 1000) - time));
  return seconds < 2 ? "just now" : seconds < 100 ? `${seconds} s ago` : `${Math.round(seconds / 60)} min ago`;
}

function megabytes(count) {
  return count < 1e3 ? `${count} B` : count < 1e6 ? `${figure(count / 1e3, 3)} kB` : `${figure(count / 1e6, 3)} MB`;
}

// ---- parts that stay, so that a chart keeps its zoom and a reader the place

const gapChart = new Chart([], { title: "the certificate", xName: "exchange", yName: "duality gap, as a part of the loss without features", xLog: false, yLog: true, bands: false });
const sentChart = new Chart([], { title: "in each exchange, all sites, both ways", xName: "exchange", yName: "bytes", xLog: false, yLog: false, bands: false });
const parts = {};
for (const name of ["title", "notices", "tiles", "sites"]) main.append((parts[name] = h("div", {})));
const curves = h("section", { class: "sheet", id: "charts" }, h("h2", {}, "How it goes"), h("div", { class: "grid-of-charts" }, gapChart.element, sentChart.element));
main.append(curves, (parts.happened = h("div", {})), (parts.exchanges = h("div", {})));

function verdict() {
  if (known.end) return known.end.ok ? ["good", "✓", known.end.outcome] : ["bad", "✗", known.end.outcome];
  return known.lost ? ["bad", "✗", "connection lost"] : ["open", "…", "running"];
}

function draw() {
  const [kind, sign, name] = verdict();
  const sent = known.exchanges.reduce((sum, { down, up }) => sum + down + up, 0);
  const until = known.end?.time ?? Date.now() / 1000;
  const gap = known.gaps.at(-1)?.gap;
  parts.title.replaceChildren(
    h("div", { class: "title" }, h("h1", {}, known.title || "Waiting for the fit", " ", h("span", { class: `verdict ${kind}`, id: "verdict" }, h("span", { "aria-hidden": "true" }, sign), ` ${name}`)), h("p", { class: "facts", role: "status" }, known.end?.words ?? known.waiting)),
  );
  const open = known.troubles.filter(({ site }) => site === undefined || TROUBLED.includes(known.sites.get(site)?.state));
  parts.notices.replaceChildren(...open.slice(-5).map(({ words }) => h("p", { class: "notice", role: "alert" }, words)));
  const tile = (value, text) => h("div", { class: "tile" }, h("b", {}, value), h("span", {}, text));
  parts.tiles.className = "tiles";
  parts.tiles.replaceChildren(
    tile(String(known.sites.size), "sites"),
    tile(String(known.exchanges.length), "exchanges"),
    tile(megabytes(sent), "sent and received"),
    tile(known.begun === null ? "–" : duration(Math.max(0, until - known.begun)), "since the beginning"),
    tile(gap === undefined ? "–" : figure(gap, 2), "gap"),
  );
  const rows = [...known.sites].map(([site, { rows, state, at, words }]) => [site, rows, words && TROUBLED.includes(state) ? `${state}: ${words}` : state, ago(at)]);
  const sheet = () => h("section", { class: "sheet", id: "sites" }, h("h2", {}, "Sites"), table({ columns: ["site", "rows", "state", "last answered"], rows }, "Sites"));
  parts.sites.replaceChildren(...(rows.length ? [sheet()] : []));
}

// Charts and the log change with an exchange only.
function redraw() {
  const { gaps, exchanges } = known;
  curves.hidden = exchanges.length < 2; // a single point tells nothing
  gapChart.element.hidden = !gaps.length;
  gapChart.lines = [{ series: GAP, x: gaps.map(({ x }) => x), mean: gaps.map(({ gap }) => gap) }];
  gapChart.update({ ...gapChart.options, levels: known.target === null ? [] : [{ series: GOAL, value: known.target }] });
  sentChart.lines = [{ series: SENT, x: exchanges.map((_, i) => i + 1), mean: exchanges.map(({ down, up }) => down + up) }];
  sentChart.update({ ...sentChart.options });
  const told = known.happened.slice(-50).reverse().map(({ time, words }) => h("li", {}, h("span", { class: "hint" }, `${new Date(time * 1000).toLocaleTimeString("en-GB")} `), words));
  parts.happened.replaceChildren(...(told.length ? [h("section", { class: "sheet", id: "happened" }, h("h2", {}, "What happened"), h("ul", { class: "told" }, told))] : []));
  const rows = exchanges.map(({ what, down, up, seconds }, i) => [i + 1, what, down, up, Number(seconds.toPrecision(3))]).reverse();
  const log = table({ columns: ["exchange", "what", "bytes down", "bytes up", "seconds"], rows }, "Exchanges");
  parts.exchanges.replaceChildren(...(rows.length ? [h("section", { class: "sheet", id: "exchanges" }, h("h2", {}, "Exchanges"), log)] : []));
}

theme();
draw();
redraw();
const events = new EventSource("events");
let waiting = false;
events.onmessage = ({ data }) => {
  const event = JSON.parse(data);
  hear(event);
  known.lost = false;
  if (event.kind === "end") events.close();
  // Many events of the past come at once: they are drawn together.
  if (!waiting) setTimeout(() => ((waiting = false), draw(), redraw()), 50);
  waiting = true;
};
events.onerror = () => {
  known.lost = !known.end;
  draw();
};
setInterval(() => known.end || draw(), 1000);
