"use strict";
// The pages of the report: an overview, and one page per run. Everything shown is put in as text, never as HTML.

const data = JSON.parse(document.getElementById("data").textContent);
const AXES = { round: ["Rounds", "communication round"], megabytes: ["Megabytes", "megabytes sent"], seconds: ["Seconds", "seconds"] };
const VERDICTS = {
  true: { name: "holds", sign: "✓", kind: "good" },
  false: { name: "does not hold", sign: "✗", kind: "bad" },
  undecided: { name: "undecided", sign: "?", kind: "undecided" },
  null: { name: "not judged", sign: "–", kind: "open" },
};
const FRACTIONS = new Set(["density", "accuracy", "test_accuracy", "f1", "precision", "recall"]);
const main = document.getElementById("main");

// The runs paper by paper; each has a name of its own, which is its address too: its id, with its size or a number
// where two have the same.
const runs = byPaper(data.runs).flatMap(([, members]) => members);
const addresses = new Map();
for (const run of runs) {
  const twice = runs.filter(({ id }) => id === run.id).length > 1;
  const name = twice && run.config.size ? `${run.id} (${run.config.size})` : run.id;
  run.name = name;
  for (let i = 2; addresses.has(run.name); i += 1) run.name = `${name} ${i}`;
  addresses.set(run.name, run);
}
const link = (run) => `#${encodeURIComponent(run.name)}`;
const verdict = (claim) => VERDICTS[claim.verdict === "undecided" ? "undecided" : claim.holds];
const count = (claims, kind) => claims.filter((claim) => verdict(claim).kind === kind).length;

function badge(claim) {
  const { name, sign, kind } = verdict(claim);
  return h("span", { class: `verdict ${kind}` }, h("span", { "aria-hidden": "true" }, sign), ` ${name}`);
}

// How many claims of each verdict, in signs; in words for those who listen.
function tally(claims) {
  if (!claims.length) return null;
  const parts = Object.values(VERDICTS).map(({ name, sign, kind }) => [count(claims, kind), name, sign, kind]);
  const some = parts.filter(([n]) => n);
  return h(
    "span",
    { class: "tally", role: "img", "aria-label": some.map(([n, name]) => `${n} ${name}`).join(", "), title: some.map(([n, name]) => `${n} ${name}`).join(", ") },
    some.map(([n, , sign, kind]) => h("span", { class: kind }, `${sign} ${n}`)),
  );
}

// The facts under a run's title.
function facts(run) {
  const { size, rounds, created, seconds, cofed } = run.config;
  const day = typeof created === "string" ? created.slice(0, 16).replace("T", " ") : null;
  return [
    size ? `${size} size` : null,
    run.sweep ? "sweep" : typeof rounds === "number" ? plural(rounds, "round") : null,
    plural(run.seeds, "seed"),
    duration(seconds),
    day,
    cofed ? `cofed ${cofed}` : null,
  ].filter(Boolean);
}

// ---- the frame: side, jump list, theme

function paper(run) {
  return run.config.paper ? String(run.config.paper) : "Runs";
}

function byPaper(list) {
  const groups = new Map();
  for (const run of list) groups.set(paper(run), [...(groups.get(paper(run)) ?? []), run]);
  return [...groups];
}

function frame() {
  const side = document.getElementById("side");
  const jump = document.getElementById("jump");
  side.append(h("a", { href: "#", class: "home" }, "Overview"));
  jump.append(h("option", { value: "#" }, "Overview"));
  for (const [name, members] of byPaper(runs)) {
    side.append(h("h2", {}, name));
    side.append(h("ul", {}, members.map((run) => h("li", {}, h("a", { href: link(run) }, h("span", { class: "name" }, run.name), tally(run.claims))))));
    jump.append(h("optgroup", { label: name }, members.map((run) => h("option", { value: link(run) }, run.name))));
  }
  jump.addEventListener("change", () => (location.hash = jump.value));
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
}

// ---- the overview

function overview() {
  const claims = runs.flatMap((run) => run.claims.map((claim) => ({ run, claim })));
  const all = claims.map(({ claim }) => claim);
  const tiles = [
    [runs.length, runs.length === 1 ? "run" : "runs", ""],
    ...(all.length ? [["good", "hold"], ["bad", "do not hold"], ["undecided", "undecided"], ["open", "not judged"]].map(([kind, words]) => [count(all, kind), `claims ${words}`, kind]).filter(([n, , kind]) => n || kind !== "undecided") : []),
  ];
  const cards = h("div");
  const claimRows = h("div");
  const filter = { text: "", kind: "" };
  const fill = () => {
    const wanted = (run) =>
      (!filter.kind || run.claims.some((claim) => verdict(claim).kind === filter.kind)) &&
      [run.name, run.title, paper(run), ...run.series.map((line) => line.label)].join(" ").toLowerCase().includes(filter.text.toLowerCase());
    const kept = runs.filter(wanted);
    cards.replaceChildren(
      ...byPaper(kept).map(([name, members]) => h("section", { class: "group" }, h("h2", {}, name), h("div", { class: "cards" }, members.map(card)))),
      ...(kept.length ? [] : [h("p", { class: "hint" }, "No run fits the filter.")]),
    );
    const rows = claims
      .filter(({ run, claim }) => wanted(run) && (!filter.kind || verdict(claim).kind === filter.kind))
      .map(({ run, claim }) => [h("a", { href: link(run) }, run.name), claim.claim, badge(claim), claim.measured]);
    claimRows.replaceChildren(...(rows.length ? [h("section", { class: "sheet" }, h("h2", {}, "All claims"), table({ columns: ["run", "claim", "verdict", "measured"], rows }, "All claims"))] : []));
  };
  fill();
  return [
    h("div", { class: "title" }, h("h1", {}, "Overview"), h("p", { class: "facts" }, `Written ${data.created.slice(0, 16).replace("T", " ")}`)),
    h("div", { class: "tiles" }, tiles.map(([n, name, kind]) => h("div", { class: `tile ${kind}` }, h("b", {}, String(n)), h("span", {}, name)))),
    unreadable(),
    h(
      "div",
      { class: "filters", role: "search" },
      h("input", { type: "search", placeholder: "Filter by name, paper or algorithm", "aria-label": "Filter the runs", oninput: (event) => ((filter.text = event.target.value), fill()) }),
      all.length
        ? h(
            "select",
            { "aria-label": "Filter by verdict", onchange: (event) => ((filter.kind = event.target.value), fill()) },
            h("option", { value: "" }, "Any verdict"),
            Object.values(VERDICTS).map(({ name, kind }) => h("option", { value: kind }, name)),
          )
        : null,
    ),
    cards,
    claimRows,
  ];
}

function unreadable() {
  if (!data.unreadable.length) return null;
  return h(
    "section",
    { class: "notice", role: "note" },
    h("h2", {}, `${plural(data.unreadable.length, "run")} could not be read`),
    h("ul", {}, data.unreadable.map(({ folder, why }) => h("li", {}, h("code", {}, folder), ` ${why}.`))),
  );
}

function card(run) {
  const panel = run.panels[0];
  const column = run.shown[0];
  const picture = column ? sparkline(lines(run, panel, column, run.axes[0]), panel.log.includes(column)) : null;
  return h(
    "a",
    { class: "card", href: link(run) },
    h("span", { class: "id" }, run.name),
    h("strong", {}, run.title),
    picture,
    column ? h("span", { class: "hint" }, `${run.columns.find(({ key }) => key === column).words} over ${run.sweep ? panel.x_name : "rounds"}`) : null,
    h("span", { class: "foot" }, h("span", {}, facts(run).slice(0, 3).join(" · ")), tally(run.claims)),
  );
}

// ---- a run

function lines(run, panel, column, axis) {
  return [...panel.curves]
    .sort((a, b) => a.series - b.series)
    .map((curve) => ({ series: run.series[curve.series], x: curve.x[axis], ...curve.y[column] }));
}

// What the reader has chosen on a run's page; kept while the report is open.
const choices = new Map();
function chosen(run) {
  if (!choices.has(run)) choices.set(run, { columns: new Set(run.shown), axis: run.axes[0], x: run.x_log ? "log" : "linear", y: "auto", bands: true, hidden: new Set() });
  return choices.get(run);
}

// One of several, as radio buttons: the keyboard works as it should.
function segments(name, options, value, choose) {
  const id = name.toLowerCase().replaceAll(" ", "-");
  return h(
    "fieldset",
    { class: "segments" },
    h("legend", {}, name),
    options.map(([key, words]) => h("label", {}, h("input", { type: "radio", name: id, value: key, checked: key === value, onchange: () => choose(key) }), h("span", {}, words))),
  );
}

function curves(run) {
  const state = chosen(run);
  const grid = h("div", { class: "grid-of-charts" });
  const made = new Map(); // charts by column and panel, so that a switch changes what is there
  const logarithmic = (panel, column) => (state.y === "auto" ? panel.log.includes(column) : state.y === "log");
  const levels = (panel, column) =>
    run.references.flatMap((series) => {
      const value = panel.references[column]?.[series.label] ?? null;
      return value === null ? [] : [{ series, value }];
    });
  const xName = (panel) => (run.sweep ? panel.x_name : AXES[state.axis][1]);
  const refresh = () => {
    const wanted = [];
    for (const { key, words } of run.columns.filter(({ key }) => state.columns.has(key))) {
      run.panels.forEach((panel, i) => {
        const name = `${i} ${key}`;
        const options = { axis: state.axis, xName: xName(panel), xLog: state.x === "log", yLog: logarithmic(panel, key), bands: state.bands };
        if (!made.has(name)) made.set(name, new Chart([], { ...options, title: panel.name, yName: words, fraction: FRACTIONS.has(key), dots: run.dots, levels: levels(panel, key) }));
        const chart = made.get(name);
        chart.lines = lines(run, panel, key, state.axis);
        chart.hidden = state.hidden;
        chart.update(options);
        wanted.push(chart.element);
      });
    }
    grid.replaceChildren(...wanted, ...(wanted.length ? [] : [h("p", { class: "hint" }, "Choose a metric above.")]));
    grid.classList.toggle("single", wanted.length === 1);
  };
  const change = (key) => (value) => {
    state[key] = value;
    refresh();
  };
  const toggle = (set, key) => (set.has(key) ? set.delete(key) : set.add(key));
  const press = (button, on) => button.setAttribute("aria-pressed", String(on));
  const metric = ({ key, words }) => {
    const button = h("button", {
      type: "button",
      class: "chip",
      "data-column": key,
      "aria-pressed": String(state.columns.has(key)),
      onclick: () => {
        toggle(state.columns, key);
        press(button, state.columns.has(key));
        refresh();
      },
    }, words);
    return button;
  };
  const legend = run.series.map((series) => {
    const button = h("button", {
      type: "button",
      class: "series",
      "data-label": series.label,
      title: "Click to hide or show; double-click to see it alone",
      "aria-pressed": String(!state.hidden.has(series.label)),
      onclick: () => {
        toggle(state.hidden, series.label);
        renew();
      },
      ondblclick: () => {
        const others = run.series.map(({ label }) => label).filter((label) => label !== series.label);
        const alone = others.every((label) => state.hidden.has(label));
        state.hidden = new Set(alone ? [] : others);
        renew();
      },
    }, swatch(series), h("span", {}, series.label));
    return [series.label, button];
  });
  const renew = () => {
    for (const [label, button] of legend) press(button, !state.hidden.has(label));
    refresh();
  };
  const several = run.seeds > 1;
  const spread = h("button", {
    type: "button",
    class: "chip",
    id: "spread",
    "aria-pressed": String(state.bands),
    onclick: () => {
      state.bands = !state.bands;
      press(spread, state.bands);
      refresh();
    },
  }, "Range over seeds");
  const longest = Math.max(...run.panels.flatMap((panel) => panel.curves.map((curve) => curve.of)));
  const drawn = Math.max(...run.panels.flatMap((panel) => panel.curves.map((curve) => curve.x[run.axes[0]].length)));
  refresh();
  return h(
    "section",
    { class: "sheet", id: "curves" },
    h("h2", {}, run.sweep ? "Sweep" : "Curves"),
    h(
      "div",
      { class: "tools" },
      h("div", { class: "chips", role: "group", "aria-label": "Metrics" }, run.columns.map(metric)),
      h(
        "div",
        { class: "switches" },
        run.axes.length > 1 ? segments("Horizontal axis", run.axes.map((axis) => [axis, AXES[axis][0]]), state.axis, change("axis")) : null,
        segments("Scale of x", [["linear", "Linear"], ["log", "Log"]], state.x, change("x")),
        segments("Scale of y", [["auto", "Auto"], ["linear", "Linear"], ["log", "Log"]], state.y, change("y")),
        several ? spread : null,
        h("button", { type: "button", class: "quiet", id: "reset", onclick: () => made.forEach((chart) => chart.reset()) }, "Reset zoom"),
      ),
    ),
    h("div", { class: "legend", role: "group", "aria-label": "Series" }, legend.map(([, button]) => button), run.references.map((series) => h("span", { class: "level" }, swatch(series), series.label))),
    grid,
    h(
      "p",
      { class: "hint" },
      "Drag to zoom, Shift and drag to move, double-click to reset. Click a chart to zoom with the wheel; arrow keys read values. ≈ stands before the nearest point of a line that was not measured just there.",
      several ? ` Lines are the mean over seeds, shades reach from the lowest to the highest of ${run.seeds}.` : "",
      drawn < longest ? ` ${plural(longest, "measured point")} per curve, ${drawn} drawn.` : "",
    ),
  );
}

function claimsOf(run) {
  if (!run.claims.length) return null;
  return h(
    "section",
    { class: "sheet", id: "claims" },
    h("h2", {}, "Claims ", tally(run.claims)),
    h(
      "ul",
      { class: "claims" },
      run.claims.map((claim) => {
        const figures = Object.entries(claim.figures);
        return h(
          "li",
          { class: verdict(claim).kind },
          h("div", { class: "claim" }, badge(claim), h("p", {}, claim.claim)),
          claim.measured ? h("p", { class: "measured" }, h("b", {}, "Measured: "), claim.measured) : null,
          claim.why ? h("p", { class: "why" }, h("b", {}, verdict(claim).kind === "open" ? "Why not judged: " : "Why: "), claim.why) : null,
          figures.length ? h("details", {}, h("summary", {}, plural(figures.length, "figure")), h("dl", { class: "figures" }, figures.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value !== null && typeof value === "object" ? JSON.stringify(value) : figure(value)))))) : null,
        );
      }),
    ),
  );
}

// A configuration to read: objects as nested lists, short lists in a line.
function readable(value) {
  if (Array.isArray(value)) {
    if (value.every((item) => item === null || typeof item !== "object")) return h("span", {}, value.map((item) => (item === null ? "none" : figure(item))).join(", ") || "none");
    return h("ol", {}, value.map((item) => h("li", {}, readable(item))));
  }
  if (value !== null && typeof value === "object") {
    const entries = Object.entries(value);
    if (!entries.length) return h("span", {}, "none");
    return h("dl", { class: "config" }, entries.map(([key, item]) => h("div", { class: item !== null && typeof item === "object" && !Array.isArray(item) ? "nested" : null }, h("dt", {}, key), h("dd", {}, readable(item)))));
  }
  if (typeof value === "boolean") return h("span", {}, value ? "yes" : "no");
  return h("span", {}, value === null || value === "" ? "none" : figure(value));
}

function configuration(run) {
  const source = JSON.stringify(run.config, null, 2);
  return h(
    "section",
    { class: "sheet", id: "configuration" },
    h("h2", {}, "Configuration"),
    h("details", {}, h("summary", {}, "Settings"), readable(run.config)),
    h("details", {}, h("summary", {}, "config.json as it is"), h("pre", { tabindex: "0" }, source)),
    h("p", { class: "hint" }, "Folder: ", h("code", {}, run.folder)),
  );
}

function page(run) {
  const place = runs.indexOf(run);
  const [before, after] = [runs[place - 1], runs[place + 1]];
  const dress = (column, cell) => {
    const series = column === "algorithm" && run.series.find(({ label }) => label === cell);
    return series ? h("span", { class: "named" }, swatch(series), h("span", {}, series.label)) : null;
  };
  const section = (id, name, content) => h("section", { class: "sheet", id }, h("h2", {}, name), content);
  return [
    h("div", { class: "title" }, h("p", { class: "over" }, run.config.paper ? `${paper(run)} · ${run.name}` : run.name), h("h1", {}, run.title), h("p", { class: "facts" }, facts(run).join(" · "))),
    run.notes.map((note) => h("p", { class: "notice", role: "note" }, note)),
    claimsOf(run),
    run.columns.length ? curves(run) : h("p", { class: "notice" }, "The run has no numbers to draw."),
    run.final.rows.length ? section("final", run.sweep ? "Values" : "Final values", table(run.final, "Final values", dress)) : null,
    run.hyperparameters.rows.length ? section("hyperparameters", "Hyperparameters", table(run.hyperparameters, "Hyperparameters", dress)) : null,
    run.tuning ? section("tuning", "Tuning", h("details", {}, h("summary", {}, plural(run.tuning.rows.length + run.tuning.left_out, "configuration")), table(run.tuning, "Tuning", dress))) : null,
    configuration(run),
    h("nav", { class: "turn", "aria-label": "Neighbouring runs" }, before ? h("a", { href: link(before) }, `← ${before.name}`) : h("span"), after ? h("a", { href: link(after) }, `${after.name} →`) : h("span")),
  ];
}

// ---- which page is shown

function route() {
  let address = "";
  try {
    address = decodeURIComponent(location.hash.slice(1));
  } catch {
    // an address that nobody gave: the overview
  }
  const run = addresses.get(address) ?? (runs.length === 1 && !data.unreadable.length ? runs[0] : null);
  main.replaceChildren(...(run ? page(run) : overview()).flat().filter(Boolean));
  document.title = run ? `${run.name}: ${run.title}` : "cofed report";
  const here = run ? link(run) : "#";
  document.getElementById("jump").value = here;
  for (const anchor of document.querySelectorAll("#side a")) {
    if (anchor.getAttribute("href") === here) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  scrollTo(0, 0);
}

// On paper everything is open.
let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const details of closed) details.open = true;
});
addEventListener("afterprint", () => closed.forEach((details) => (details.open = false)));
addEventListener("hashchange", () => {
  route();
  main.focus({ preventScroll: true });
});

theme();
frame();
if (runs.length === 1) document.body.classList.add("alone");
route();
