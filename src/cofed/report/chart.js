"use strict";
// A chart of lines with bands, in SVG: zoom by dragging, wheel and keys, values under the pointer. It knows nothing of runs.

const SVG = "http://www.w3.org/2000/svg";

// An element of HTML; text always goes in as text.
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  set(element, attributes);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// An element of SVG.
function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  set(element, attributes);
  element.append(...children.flat());
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
}

// A line's colours on a light and on a dark ground; the style sheet chooses.
function paint(element, series) {
  element.classList.add("ink");
  element.style.setProperty("--light", series.light);
  element.style.setProperty("--dark", series.dark);
  return element;
}

// A number to read: few digits, powers of ten where they are shorter.
function figure(value, digits = 5) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) {
    if (Number.isInteger(value) && size < 1e9) return value.toLocaleString("en-GB");
    const [mantissa, power] = value.toExponential(Math.min(3, digits - 1)).split("e");
    const trimmed = String(Number(mantissa));
    return `${trimmed === "1" ? "" : trimmed === "-1" ? "−" : minus(trimmed) + "×"}10${superscript(Number(power))}`;
  }
  const rounded = Number(value.toPrecision(digits));
  return rounded.toLocaleString("en-GB", { maximumFractionDigits: 10, useGrouping: size >= 1e4 }).replace("-", "−");
}

const minus = (text) => text.replace("-", "−");
const superscript = (power) => [...String(power)].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("");

// From numbers to pixels and back, on a linear or logarithmic axis.
function scale([low, high], [start, end], log) {
  const warp = log ? Math.log10 : (v) => v;
  const unwarp = log ? (v) => 10 ** v : (v) => v;
  const [a, b] = [warp(low), warp(high)];
  return {
    to: (value) => start + ((warp(value) - a) / (b - a)) * (end - start),
    from: (pixel) => unwarp(a + ((pixel - start) / (end - start)) * (b - a)),
    domain: [low, high],
    log,
  };
}

// Where an axis has its labels: round numbers; on a logarithmic axis powers of ten, and 2 and 5 where those are few.
function ticks({ domain: [low, high], log }, count) {
  if (log) {
    const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
    const decades = Math.log10(high) - Math.log10(low);
    if (decades < 0.7) return ticks({ domain: [low, high], log: false }, count).filter((v) => v > 0);
    const found = [];
    const step = Math.max(1, Math.ceil((last - first + 1) / count));
    const parts = decades < 1.6 ? [1, 2, 3, 5] : decades < 3 ? [1, 2, 5] : [1];
    for (let power = first - 1; power <= last; power += 1) {
      if (parts.length === 1 && (power - first) % step !== 0) continue;
      for (const part of parts) {
        const value = Number(`${part}e${power}`);
        if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) found.push(value);
      }
    }
    return found;
  }
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((m) => m >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i += 1) found.push(Number((i * step).toPrecision(12)));
  return found;
}

// A tick's label, with as many digits as its neighbours need to differ.
function tickLabel(value, all, log) {
  if (log && Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-9 && (value < 1e-2 || value >= 1e4)) {
    return `10${superscript(Math.round(Math.log10(value)))}`;
  }
  const step = all.length > 1 ? Math.abs(all[1] - all[0]) : Math.abs(value) || 1;
  const digits = log ? 3 : Math.max(1, Math.ceil(Math.log10((Math.abs(value) || step) / step) + 1 + 1e-9) + 1);
  return figure(value, Math.min(digits, 12));
}

// The position in an ascending list that is nearest to a value.
function nearest(list, value) {
  let [low, high] = [0, list.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (list[middle] <= value) low = middle;
    else high = middle;
  }
  return Math.abs(list[high] - value) < Math.abs(list[low] - value) ? high : low;
}

// The smallest and the largest that lines reach along x or y; within a window of x where there is one.
function extent(lines, which, { xLog = false, yLog = false, bands = false, window = null }) {
  let [low, high] = [Infinity, -Infinity];
  for (const line of lines) {
    for (let i = 0; i < line.x.length; i += 1) {
      const x = line.x[i];
      if (x === null || line.mean[i] === null || (xLog && x <= 0) || (window && (x < window[0] || x > window[1]))) continue;
      const values = which === "x" ? [x] : bands && line.low ? [line.mean[i], line.low[i], line.high[i]] : [line.mean[i]];
      for (const value of values) {
        if (value === null || (which === "y" && yLog && value <= 0)) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
  }
  return low <= high ? [low, high] : null;
}

// Some room around an extent.
function padded(found, log, share) {
  if (!found) return log ? [1, 10] : [0, 1];
  const [low, high] = found;
  if (low === high) return log ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) * 0.1, high + (Math.abs(high) || 1) * 0.1];
  if (!log) return [low - share * (high - low), high + share * (high - low)];
  const room = 10 ** (share * (Math.log10(high) - Math.log10(low)));
  return [Math.max(low / room, Number.MIN_VALUE), high * room];
}

// Where a point is on the screen; nothing where it cannot be drawn.
function place({ x: across, y: up }, x, y) {
  if (x === null || y === null || (across.log && x <= 0) || (up.log && y <= 0)) return null;
  const rounded = (v) => Math.round(Math.max(-1e5, Math.min(1e5, v)) * 100) / 100;
  return [rounded(across.to(x)), rounded(up.to(y))];
}

// A line's path, with gaps where values are missing, and dots where it has few points or a lonely one.
function trace(scales, line, all = false) {
  const points = line.x.map((x, i) => place(scales, x, line.mean[i]));
  const dots = [];
  let path = "";
  points.forEach((point, i) => {
    if (!point) return;
    path += `${points[i - 1] ? "L" : "M"}${point[0]} ${point[1]}`;
    if (all || points.length <= 30 || (!points[i - 1] && !points[i + 1])) dots.push(point);
  });
  return { path, dots };
}

let charts = 0;

class Chart {
  // lines: [{series: {label, light, dark, dash}, x, mean, low, high}]; options: {title, xName, yName, xLog, yLog, bands,
  // dots (no lines), fraction (drawn from 0 to 1), levels ([{series, value}], drawn across), marks ([{label, value}], drawn
  // upright), falling (x grows to the left), axis (another one ends the zoom)}.
  constructor(lines, options) {
    this.lines = lines;
    this.options = options;
    this.hidden = new Set();
    this.zoom = { x: null, y: null };
    this.at = null; // the x that is pointed at
    this.id = `chart-${(charts += 1)}`;
    this.svg = s("svg", { "aria-hidden": "true", focusable: "false" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.live = h("div", { class: "unseen", "aria-live": "polite" });
    this.plot = h(
      "div",
      {
        class: "plot",
        tabindex: "0",
        role: "application",
        "aria-roledescription": "chart",
      },
      this.svg,
      this.tip,
      this.live,
    );
    this.element = h("figure", { class: "chart" }, h("figcaption", {}, h("strong", {}, options.yName), options.title ? h("span", {}, options.title) : null), this.plot);
    this.listen();
    new ResizeObserver(() => this.later()).observe(this.plot);
  }

  update(options) {
    if (options.axis !== undefined && options.axis !== this.options.axis) this.zoom = { x: null, y: null };
    if (options.xLog !== this.options.xLog) this.zoom.x = null;
    if (options.yLog !== this.options.yLog) this.zoom.y = null;
    Object.assign(this.options, options);
    this.leave();
    this.later();
  }

  reset() {
    this.zoom = { x: null, y: null };
    this.leave();
    this.later();
  }

  // Draw once, however many changes come before the next frame.
  later() {
    this.waiting ??= requestAnimationFrame(() => {
      this.waiting = null;
      this.draw();
    });
  }

  // The levels to compare with that the vertical axis can show.
  get levels() {
    return (this.options.levels ?? []).filter(({ value }) => value > 0 || !this.options.yLog);
  }

  get visible() {
    return this.lines.filter((line) => !this.hidden.has(line.series.label));
  }

  domain(which) {
    if (this.zoom[which]) return this.zoom[which];
    const { xLog, yLog, bands, fraction } = this.options;
    const window = which === "y" ? this.zoom.x : null;
    const found = extent(this.visible, which, { xLog, yLog, bands, window });
    if (which === "y" && found && !window) {
      for (const { value } of this.levels) [found[0], found[1]] = [Math.min(found[0], value), Math.max(found[1], value)];
    }
    if (which === "y" && fraction && !yLog && !window && found?.[0] >= 0 && found?.[1] <= 1) return [-0.02, 1.03];
    return which === "x" ? padded(found, xLog, 0.015) : padded(found, yLog, 0.05);
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!width) return;
    const height = Math.round(Math.max(220, Math.min(340, width * 0.62)));
    const { xLog, yLog } = this.options;
    const yScale = scale(this.domain("y"), [height - 44, 10], yLog);
    const yTicks = ticks(yScale, Math.max(3, Math.round(height / 55)));
    const yLabels = yTicks.map((value) => tickLabel(value, yTicks, yLog));
    const left = 16 + 7 * Math.max(3, ...yLabels.map((label) => label.length));
    const xScale = scale(this.domain("x"), this.options.falling ? [width - 12, left] : [left, width - 12], xLog);
    const xTicks = ticks(xScale, Math.max(2, Math.round((width - left) / 90)));
    this.area = { left, right: width - 12, top: 10, bottom: height - 44 };
    this.scales = { x: xScale, y: yScale };

    const grid = s("g", { class: "grid" });
    const labels = s("g", { class: "labels" });
    yTicks.forEach((value, i) => {
      const y = yScale.to(value);
      grid.append(s("line", { x1: left, x2: this.area.right, y1: y, y2: y }));
      labels.append(s("text", { x: left - 8, y: y + 4, "text-anchor": "end" }, yLabels[i]));
    });
    for (const value of xTicks) {
      const x = xScale.to(value);
      grid.append(s("line", { x1: x, x2: x, y1: this.area.top, y2: this.area.bottom }));
      labels.append(s("text", { x, y: this.area.bottom + 18, "text-anchor": "middle" }, tickLabel(value, xTicks, xLog)));
    }
    labels.append(s("text", { class: "name", x: (left + this.area.right) / 2, y: height - 6, "text-anchor": "middle" }, this.options.xName));
    if (!extent(this.visible, "y", { xLog, yLog })) {
      const why = this.visible.length ? (yLog || xLog ? "no positive values for a logarithmic axis" : "no values here") : "all series are hidden";
      labels.append(s("text", { class: "none", x: (left + this.area.right) / 2, y: height / 2, "text-anchor": "middle" }, why));
    }

    const clip = s("clipPath", { id: this.id }, s("rect", { x: left, y: 4, width: Math.max(0, this.area.right - left + 6), height: this.area.bottom - 4 }));
    const curves = s("g", { "clip-path": `url(#${this.id})` });
    if (this.options.bands) for (const line of this.visible) if (line.low) curves.append(paint(s("path", { class: "band", d: this.band(line) }), line.series));
    for (const line of this.visible) {
      const { path, dots } = trace(this.scales, line, this.options.dots);
      if (!this.options.dots) curves.append(paint(s("path", { class: "line", d: path, "data-label": line.series.label, "stroke-dasharray": line.series.dash || null }), line.series));
      for (const [x, y] of dots) curves.append(paint(s("circle", { class: "dot", cx: x, cy: y, r: 3.2 }), line.series));
    }
    for (const { series, value } of this.levels) {
      const y = yScale.to(value);
      curves.append(paint(s("line", { class: "line level", x1: left, x2: this.area.right, y1: y, y2: y, "stroke-dasharray": series.dash, "data-label": series.label }), series));
    }
    (this.options.marks ?? []).forEach(({ label, value }, i) => {
      const x = xScale.to(value);
      curves.append(s("line", { class: "mark", x1: x, x2: x, y1: this.area.top, y2: this.area.bottom }));
      curves.append(s("text", { class: "mark", x: x - 4, y: this.area.top + 12 + 15 * i, "text-anchor": "end" }, label));
    });
    this.guide = s("g", { class: "guide" });
    this.box = s("rect", { class: "box", visibility: "hidden" });
    const { title, xName, yName } = this.options;
    set(this.plot, { "aria-label": `${yName} over ${xName}${title ? ", " + title : ""}. Left and right read values, plus and minus zoom, 0 resets.` });
    set(this.svg, { width, height, viewBox: `0 0 ${width} ${height}` });
    this.svg.replaceChildren(s("defs", {}, clip), grid, labels, curves, this.guide, this.box);
    this.plot.dataset.zoomed = Boolean(this.zoom.x || this.zoom.y);
    if (this.at !== null) this.point(this.at);
  }

  // The area from the lowest to the highest seed; on a logarithmic axis what is not positive ends at the bottom.
  band(line) {
    const floor = this.options.yLog ? this.scales.y.domain[0] / 10 : null;
    const edge = (values) => values.map((v, i) => place(this.scales, line.x[i], v !== null && floor !== null && v <= 0 ? floor : v));
    const [low, high] = [edge(line.low), edge(line.high)];
    let path = "";
    let start = 0;
    for (let i = 0; i <= line.x.length; i += 1) {
      if (i < line.x.length && low[i] && high[i]) continue;
      if (i - start > 1) {
        path += `M${high.slice(start, i).map((p) => p.join(" ")).join("L")}L${low.slice(start, i).reverse().map((p) => p.join(" ")).join("L")}Z`;
      }
      start = i + 1;
    }
    return path;
  }

  // All x of the visible lines within the zoom, in order.
  get stops() {
    const [low, high] = this.scales.x.domain;
    const all = new Set();
    for (const line of this.visible) for (const x of line.x) if (x !== null && x >= low && x <= high && !(this.options.xLog && x <= 0)) all.add(x);
    return [...all].sort((a, b) => a - b);
  }

  // The measured point of every visible line that is nearest to x, the highest first; none of a line that does not
  // reach so far.
  values(x) {
    const height = ({ line, i }) => (i === null ? null : line.mean[i]) ?? -Infinity;
    return this.visible
      .map((line) => {
        const known = line.x.flatMap((value, i) => (value !== null ? [i] : []));
        if (!known.length) return { line, i: null };
        const i = known[nearest(known.map((k) => line.x[k]), x)];
        const [first, last] = [line.x[known[0]], line.x[known.at(-1)]];
        const slack = ((last - first) / Math.max(1, known.length - 1)) * 1.01;
        return { line, i: x < first - slack || x > last + slack ? null : i };
      })
      .sort((a, b) => height(b) - height(a) || 0);
  }

  // Show the values at the measured x that is nearest.
  point(x) {
    const stops = this.stops;
    if (!stops.length) {
      this.leave();
      return;
    }
    this.at = stops[nearest(stops, x)];
    const across = this.scales.x.to(this.at);
    this.guide.replaceChildren(s("line", { x1: across, x2: across, y1: this.area.top, y2: this.area.bottom }));
    const rows = [];
    const heights = [];
    const row = (series, value, range) =>
      h("tr", { "data-label": series.label }, h("td", {}, swatch(series)), h("th", { scope: "row" }, series.label), h("td", { class: "value" }, value), h("td", { class: "range" }, range));
    for (const { line, i } of this.values(this.at)) {
      const spot = i === null ? null : place(this.scales, line.x[i], line.mean[i]);
      if (spot && spot[1] >= this.area.top - 4 && spot[1] <= this.area.bottom + 4) {
        this.guide.append(paint(s("circle", { cx: spot[0], cy: spot[1], r: 4 }), line.series));
        heights.push(spot[1]);
      }
      const range = i !== null && line.low && line.low[i] !== null ? `${figure(line.low[i], 4)} to ${figure(line.high[i], 4)}` : "";
      const exact = i === null || Math.abs(line.x[i] - this.at) <= 1e-5 * Math.abs(this.at);
      rows.push(row(line.series, i === null ? "–" : `${exact ? "" : "≈ "}${figure(line.mean[i])}`, range));
    }
    for (const { series, value } of this.levels) rows.push(row(series, figure(value), ""));
    this.tip.replaceChildren(h("div", { class: "where" }, `${this.options.xName} ${figure(this.at)}`), h("table", {}, h("tbody", {}, rows)));
    this.tip.hidden = false;
    // Beside the guide, away from the points; below the axis where the window has no room.
    const { top, bottom } = this.area;
    const [room, edge] = [this.tip.offsetWidth, this.plot.getBoundingClientRect().left];
    const high = heights.reduce((sum, y) => sum + y, 0) < (heights.length * (top + bottom)) / 2;
    const right = edge + across + 14 + room <= document.documentElement.clientWidth - 8;
    const left = edge + across - 14 - room >= 8;
    const middle = Math.max(0, Math.min(this.plot.clientWidth - room, across - room / 2));
    this.tip.style.left = `${right ? across + 14 : left ? across - 14 - room : middle}px`;
    const beside = high ? Math.max(top, bottom - 6 - this.tip.offsetHeight) : top + 4;
    this.tip.style.top = `${right || left ? beside : bottom + 26}px`;
  }

  leave() {
    this.at = null;
    this.tip.hidden = true;
    this.guide?.replaceChildren();
  }

  // Enlarge (factor < 1) or reduce one axis around a pixel, never beyond all there is.
  magnify(which, pixel, factor) {
    const axis = this.scales[which];
    const warp = axis.log ? Math.log10 : (v) => v;
    const unwarp = axis.log ? (v) => 10 ** v : (v) => v;
    const centre = warp(axis.from(pixel));
    const [low, high] = axis.domain.map(warp).map((edge) => centre + (edge - centre) * factor);
    this.narrow(which, [unwarp(low), unwarp(high)]);
  }

  narrow(which, [low, high]) {
    const before = this.zoom[which];
    this.zoom[which] = null;
    const [least, most] = this.domain(which);
    this.zoom[which] = before;
    const [a, b] = [Math.max(low, least), Math.min(high, most)];
    if (!(b > a) || (b - a) < 1e-9 * Math.max(Math.abs(a), Math.abs(b))) return;
    this.zoom[which] = a <= least && b >= most ? null : [a, b];
    this.later();
  }

  pan(which, pixels) {
    if (!this.zoom[which]) return;
    const axis = this.scales[which];
    const [low, high] = axis.domain.map((edge) => axis.from(axis.to(edge) + pixels));
    this.zoom[which] = [low, high];
    this.later();
  }

  spot(event) {
    const box = this.svg.getBoundingClientRect();
    const inside = (v, a, b) => Math.max(a, Math.min(b, v));
    return [inside(event.clientX - box.left, this.area.left, this.area.right), inside(event.clientY - box.top, this.area.top, this.area.bottom)];
  }

  listen() {
    const plot = this.plot;
    let from = null; // where a drag began
    plot.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !this.scales) return;
      from = { at: this.spot(event), last: event, moved: false, pan: event.shiftKey };
      plot.setPointerCapture(event.pointerId);
    });
    plot.addEventListener("pointermove", (event) => {
      if (!this.scales) return;
      const [x, y] = this.spot(event);
      if (!from) return this.point(this.scales.x.from(x));
      from.moved ||= Math.hypot(x - from.at[0], y - from.at[1]) > 5;
      if (!from.moved) return;
      this.leave();
      if (from.pan) {
        this.pan("x", from.last.clientX - event.clientX);
        this.pan("y", from.last.clientY - event.clientY);
        from.last = event;
        return;
      }
      const [rangeX, rangeY] = this.selection(from.at, [x, y]);
      set(this.box, { visibility: "visible", x: rangeX[0], width: rangeX[1] - rangeX[0], y: rangeY[0], height: rangeY[1] - rangeY[0] });
    });
    plot.addEventListener("pointerup", (event) => {
      const drag = from;
      from = null;
      if (!drag) return;
      set(this.box, { visibility: "hidden" });
      if (!drag.moved) return this.point(this.scales.x.from(this.spot(event)[0]));
      if (drag.pan) return;
      const [rangeX, rangeY, byX, byY] = this.selection(drag.at, this.spot(event));
      const { x, y } = this.scales;
      if (byY) this.narrow("y", [y.from(rangeY[1]), y.from(rangeY[0])]);
      if (byX) this.narrow("x", rangeX.map(x.from).sort((a, b) => a - b));
    });
    plot.addEventListener("pointercancel", () => {
      from = null;
      if (this.box) set(this.box, { visibility: "hidden" });
    });
    // A finger leaves when it is lifted; what it tapped stays until the next tap.
    plot.addEventListener("pointerleave", (event) => from || event.pointerType === "touch" || this.leave());
    plot.addEventListener("blur", () => this.leave());
    plot.addEventListener("dblclick", () => this.reset());
    // The wheel scrolls the page until the chart is chosen by a click or the keyboard, or Ctrl is held.
    plot.addEventListener(
      "wheel",
      (event) => {
        if (!this.scales || !(event.ctrlKey || document.activeElement === plot)) return;
        event.preventDefault();
        const [x, y] = this.spot(event);
        const turn = (event.deltaY || event.deltaX) * (event.deltaMode === 1 ? 30 : 1);
        const factor = Math.exp(Math.max(-200, Math.min(200, turn)) * 0.002);
        if (event.shiftKey) this.magnify("y", y, factor);
        else this.magnify("x", x, factor);
      },
      { passive: false },
    );
    plot.addEventListener("keydown", (event) => this.key(event));
  }

  // A flat drag chooses along x, an upright one along y, any other a box.
  selection(from, to) {
    const byX = Math.abs(to[0] - from[0]) > 12;
    const byY = Math.abs(to[1] - from[1]) > 24;
    const order = (a, b) => (a < b ? [a, b] : [b, a]);
    const { left, right, top, bottom } = this.area;
    return [byX || !byY ? order(from[0], to[0]) : [left, right], byY ? order(from[1], to[1]) : [top, bottom], byX, byY];
  }

  key(event) {
    if (!this.scales || event.ctrlKey || event.metaKey || event.altKey) return;
    const stops = this.options.falling ? this.stops.reverse() : this.stops; // from left to right
    const centre = this.at === null ? (this.area.left + this.area.right) / 2 : this.scales.x.to(this.at);
    const here = stops.indexOf(this.at);
    const go = (i) => {
      this.point(stops[Math.max(0, Math.min(stops.length - 1, i))]);
      this.live.textContent = [...this.tip.querySelectorAll(".where, th, .value")].map((cell) => cell.textContent).join(" ");
    };
    const actions = {
      ArrowRight: () => (event.shiftKey ? this.pan("x", 40) : go(here + 1)),
      ArrowLeft: () => (event.shiftKey ? this.pan("x", -40) : go(here < 0 ? stops.length - 1 : here - 1)),
      Home: () => go(0),
      End: () => go(stops.length - 1),
      "+": () => this.magnify("x", centre, 0.7),
      "=": () => this.magnify("x", centre, 0.7),
      "-": () => this.magnify("x", centre, 1 / 0.7),
      0: () => this.reset(),
      Escape: () => (this.at === null ? this.reset() : this.leave()),
    };
    if (!actions[event.key] || (!stops.length && event.key !== "0" && event.key !== "Escape")) return;
    event.preventDefault();
    actions[event.key]();
  }
}

// A short piece of a line, as the legend and the values show it.
function swatch(series) {
  const line = paint(s("line", { class: "line", x1: 1, x2: 25, y1: 5, y2: 5, "stroke-dasharray": series.dash || null }), series);
  return s("svg", { class: "swatch", width: 26, height: 10, viewBox: "0 0 26 10", "aria-hidden": "true" }, line);
}

// A chart without axes, of the size of a card.
function sparkline(lines, yLog) {
  const [width, height] = [240, 64];
  const scales = {
    x: scale(padded(extent(lines, "x", { yLog }), false, 0), [2, width - 2], false),
    y: scale(padded(extent(lines, "y", { yLog }), yLog, 0), [height - 3, 3], yLog),
  };
  const paths = lines.map((line) => paint(s("path", { class: "line", d: trace(scales, line).path, "stroke-dasharray": line.series.dash || null }), line.series));
  return s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" }, paths);
}
