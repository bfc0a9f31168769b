// Draws the plan and answers the mouse and the keys. Only the rows in sight are in the document, so that a plan of
// thousands of nodes costs as much as a small one. Names are set as text, never as markup.
const kRow = 30, kLane = 14, kMostLanes = 14;  // pixels; lanes beyond the last are drawn in it
const dark = matchMedia("(prefers-color-scheme: dark)");
// Magma of matplotlib (bids.github.io/colormap), nine samples less those that the ground swallows: even for every eye,
// also one that sees fewer colours. More is further from the ground.
const kMagma = ["#1d1147", "#51127c", "#822681", "#b63679", "#e65164", "#fb8861", "#fec287"];

const by_id = id => document.getElementById(id);
const graph = by_id("graph"), panel = by_id("panel"), search = by_id("search"), found = by_id("found");
let rows = [], lanes = {}, chosen = null, marks = new Map(), shade = timings ? "time" : "bytes";
let scale = null;  // of the shade: {low, high}

function make(tag, attributes, ...children) {
  const svg = ["svg", "path", "circle"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
  return element;
}

// Numbers

const count_text = value => Number(value).toLocaleString("en").replaceAll(",", "\u2009");
const digits = value => value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
function bytes_text(bytes) {
  const power = bytes < 1000 ? 0 : Math.min(4, Math.floor(Math.log10(bytes) / 3));
  return power === 0 ? `${bytes} B` : `${digits(bytes / 1000 ** power)} ${["", "k", "M", "G", "T"][power]}B`;
}
const time_text = us => us >= 1000 ? `${digits(us / 1000)} ms`
  : us === 0 || us >= 0.1 ? `${digits(us)} µs` : `${digits(us * 1000)} ns`;
const shape_text = size => size.join("×").replace(/(×1)+$/, "");
const times = (count, one, many = one + "s") => `${count_text(count)} ${count === 1 ? one : many}`;

// Colour

const measure = { time: list => time_of(list), bytes: list => bytes_of(list), none: () => 0 };
const measure_text = { time: time_text, bytes: bytes_text };

function shade_at(part) {  // 0 to 1
  const stops = dark.matches ? kMagma.slice(1) : kMagma.slice().reverse();
  const at = Math.max(0, Math.min(1, part)) * (stops.length - 1), low = Math.min(stops.length - 2, Math.floor(at));
  return `color-mix(in oklab, ${stops[low + 1]} ${((at - low) * 100).toFixed(1)}%, ${stops[low]})`;
}

// Logarithmic: kernels of one plan differ by orders of magnitude.
function shade_of(list) {
  const value = measure[shade](list) / list.length;  // of several: the mean
  if (!(value > 0)) return "var(--idle)";
  return shade_at(scale.high > scale.low ? Math.log(value / scale.low) / Math.log(scale.high / scale.low) : 1);
}

function choose_shade(name) {
  shade = name;
  const values = nodes.map(node => measure[shade]([node])).filter(value => value > 0);
  scale = values.length === 0 ? null
    : { low: values.reduce((a, b) => Math.min(a, b)), high: values.reduce((a, b) => Math.max(a, b)) };
  const names = timings ? ["time", "bytes", "none"] : ["bytes", "none"];
  by_id("colours").replaceChildren(...names.map(one => make("button", {
    type: "button", "aria-pressed": one === shade, "data-shade": one, onclick: () => choose_shade(one) },
    { time: "Time", bytes: "Bytes", none: "No colour" }[one])));
  const ramp = [0, 0.25, 0.5, 0.75, 1].map(shade_at).join(", ");
  by_id("legend").replaceChildren(...(scale === null ? [] : [measure_text[shade](scale.low),
    make("i", { style: { background: `linear-gradient(90deg, ${ramp})` } }), measure_text[shade](scale.high),
    make("span", { class: "none" }, "log scale")]));
  draw();
}

// The list

function lay_out() {
  rows = rows_of(top_scope);
  lanes = lanes_of(rows);
  if (chosen && ["block", "run", "scope"].includes(chosen.kind) && rows[chosen.row] !== chosen) choose(null);
  by_id("canvas").style.height = `${rows.length * kRow + 24}px`;
  const all = nodes.concat(top_scope.items).filter(can_open).concat(...nodes.map(node => node.scopes));
  const closed = all.some(item => !item.open);
  by_id("fold-all").hidden = all.length === 0;
  by_id("fold-all").textContent = closed ? "Unfold all" : "Fold layers";
  by_id("fold-all").onclick = () => {
    all.forEach(item => { item.open = closed || item.kind === "scope" || item.kind === "block"; });
    lay_out();
  };
  draw();
}

const lane_x = lane => Math.min(lane, kMostLanes - 1) * kLane + 6;
const gutter = () => 24 + (Math.min(lanes.count, kMostLanes) * kLane) + 10;

function draw() {
  const first = Math.max(0, Math.floor(graph.scrollTop / kRow) - 12);
  const last = Math.min(rows.length, Math.ceil((graph.scrollTop + graph.clientHeight) / kRow) + 12);
  by_id("rows").replaceChildren(...rows.slice(first, last).map((item, i) => row_element(item, first + i)));
  by_id("columns").firstChild.style.paddingLeft = `${gutter()}px`;
  const shown = lanes.drawn.filter(link => link.from < last && link.to >= first);
  const on = link => chosen && [link.from, link.to].includes(chosen.row);
  by_id("links").replaceChildren(...shown.sort((a, b) => on(a) - on(b)).map(link => make("path", {
    class: `link ${link.type}${on(link) ? " on" : ""}`, d: link_path(link) })), ...dots_between(first, last));
}

function link_path({ from, to, lane }) {
  const [x1, x, x2] = [lanes.dots[from], lane, lanes.dots[to]].map(lane_x);
  const y1 = from * kRow + kRow / 2, y2 = to * kRow + kRow / 2, half = kRow / 2;
  const bend = (xa, ya, xb, yb) => xa === xb ? `V${yb}` : `C${xa} ${ya + half} ${xb} ${yb - half} ${xb} ${yb}`;
  if (to === from + 1) return `M${x1} ${y1}${bend(x1, y1, x2, y2)}`;
  return `M${x1} ${y1}${bend(x1, y1, x, y1 + kRow)}V${y2 - kRow}${bend(x, y2 - kRow, x2, y2)}`;
}

function dots_between(first, last) {
  const out = [];
  for (let row = first; row < last; ++row) {
    if (lanes.dots[row] === undefined) continue;
    const item = rows[row], at = { cx: lane_x(lanes.dots[row]), cy: row * kRow + kRow / 2 };
    const list = item.kind === "node" ? [item] : item.nodes;
    if (item.critical) out.push(make("circle", { ...at, r: 9, class: "critical" }));
    if (item.kind !== "node") out.push(make("circle", { ...at, cy: at.cy + 3, r: 5.5, class: "dot back" }));
    out.push(make("circle", { ...at, r: 6, class: `dot ${mark_of(item)} ${item === chosen ? "on" : ""}`,
                              style: { fill: shade_of(list) } }));
  }
  return out;
}

function row_element(item, row) {
  if (item.kind === "gone") return gone_row(item, row);
  const list = item.kind === "node" ? [item] : item.nodes;
  const group = item.kind !== "node";
  const chevron = can_open(item) &&
    make("span", { class: `chevron${item.open ? " open" : ""}`, "aria-hidden": true });
  return make("div", {
    class: `row ${group ? `group ${item.kind}` : "node"} ${item === chosen ? "on" : mark_of(item)} ${change_of(item)}`,
    role: "treeitem",
    "aria-level": item.depth + (group ? 1 : 2), "aria-selected": item === chosen,
    "aria-expanded": can_open(item) ? item.open : null, "data-row": row, title: group ? null : item.name,
    style: { transform: `translateY(${row * kRow}px)` } },
    make("span", { class: "name", style: { paddingLeft: `${gutter() + item.depth * 20}px` } }, chevron, name_of(item)),
    make("span", { class: "kernel" }, group ? "" : item.kernel || item.type),
    make("span", { class: "shape" }, group || item.type !== "kernel" ? ""
      : `${shape_text(item.grid)} · ${shape_text(item.block)}`),
    make("span", { class: "shared end" }, !group && item.shared_bytes ? bytes_text(item.shared_bytes) : ""),
    group && item.open && item.kind !== "scope" ? ""
      : [measure_element("bytes", item), timings && [measure_element("time", item), ...rate_elements(list)]]);
}

// What a comparison says of a row: "added", "changed" or "". A closed row speaks for what it hides.
function change_of(item) {
  if (!diff) return "";
  const own = item.kind === "node" ? [item] : item.open ? [] : item.nodes;
  const found = own.map(node => node.change?.how).filter(Boolean);
  if (own.some(node => node.gone.length > 0 && item.kind !== "node")) found.push("changed");
  return found.length === 0 ? "" : found.every(how => how === "added") ? "added" : "changed";
}

function gone_row(item, row) {
  return make("div", { class: `row node gone ${item === chosen ? "on" : ""}`, role: "treeitem", "aria-level": 2,
                       "aria-selected": item === chosen, "data-row": row, title: `${item.name}, removed`,
                       style: { transform: `translateY(${row * kRow}px)` } },
    make("span", { class: "name", style: { paddingLeft: `${gutter()}px` } }, item.name),
    make("span", { class: "kernel" }, item.node.kernel || item.node.type));
}

const percent_text = part => `${digits(100 * part)} %`;

function rate_elements(list) {
  const cell = (name, value, text) => make("span", { class: `end ${name}` }, value > 0 ? text(value) : "");
  const inside = list.some(node => node.depth > 0);  // where times are of one round
  return [cell("share", inside ? 0 : share_of(list), percent_text),
          cell("rate", rate_of(list), value => digits(value / 1e9)),
          cell("floor", time_of(list) > 0 ? floor_of(list) : 0, time_text)];
}

function name_of(item) {
  if (item.kind === "run")
    return [`${item.blocks.length} × same block`, make("small", { class: "mono" }, layers_text(item))];
  if (item.kind === "scope") return [scope_name(item), make("small", {}, times(item.nodes.length, "node"))];
  if (item.kind === "block") return [item.layer, make("small", {}, times(item.nodes.length, "node"))];
  const inside = item.layer && item.name.startsWith(item.layer + ".") ? item.layer.length + 1 : 0;
  return [make("i", {}, item.name.slice(0, inside)), item.name.slice(inside)];
}

// A body's plan is named after the plan around it.
function scope_name(scope) {
  const outer = scope.owner.scope.plan.name + "/";
  return scope.plan.name.startsWith(outer) ? scope.plan.name.slice(outer.length) : scope.plan.name;
}

function layers_text(run) {
  const first = run.blocks[0].layer, last = run.blocks.at(-1).layer;
  return first === last ? first : `${first} \u2026 ${last}`;
}

// Of layers that are the same the text has their number and the mean, and the bar is the mean's.
function measure_element(what, item) {
  const list = item.kind === "node" ? [item] : item.nodes, blocks = item.blocks?.length ?? 1;
  const value = measure[what](list) / blocks, was = item.was && measure[what]([item.was]);
  const text = value ? `${blocks > 1 ? `${blocks} × ` : ""}${measure_text[what](Math.round(value * 1e3) / 1e3)}` : "";
  return make("span", { class: `measure ${what}` },
    make("b", {}, was > 0 && was !== value && make("s", {}, measure_text[what](was)), text),
    value > 0 && make("i", { style: { width: `${100 * Math.min(1, value / most[what])}%`,
                                      background: what === shade ? shade_of(list) : "" } }));
}
const groups = top_scope.items.flatMap(item => item.kind === "run" ? item.blocks : item.kind === "block" ? [item] : []);
const most = {};
for (const what of ["time", "bytes"])
  most[what] = [...nodes.map(node => [node]), ...groups.map(block => block.nodes)]
    .reduce((largest, list) => Math.max(largest, measure[what](list)), 0);

// What the chosen buffer's users do: "writes", "reads" or "".
function mark_of(item) {
  const own = item.kind === "node" ? [item] : item.open ? [] : item.nodes;
  const done = own.map(node => marks.get(node)).filter(Boolean);
  return done.includes("writes") ? "writes" : done[0] ?? "";
}

// Choosing

const writes = access => access === "out" || access === "inout";

function choose(item, { reveal = true, keep_marks = false } = {}) {
  chosen = item;
  if (!keep_marks) marks = new Map();
  if (item?.kind === "buffer") {
    for (const { node, use } of item.uses)
      if (marks.get(node) !== "writes") marks.set(node, writes(use.access) ? "writes" : "reads");
  } else if (item && reveal && item.row !== undefined) {
    const closed = item.kind === "node" ? containers_of(item).filter(one => !one.open) : [];
    closed.forEach(one => { one.open = true; });
    if (closed.length > 0) lay_out();
    const top = item.row * kRow, height = graph.clientHeight - 30;
    if (top < graph.scrollTop || top + kRow > graph.scrollTop + height) graph.scrollTop = top - height / 2;
  }
  show_panel(item);
  show_link(item);
  draw();
  draw_timeline();
}

function toggle(item, open = !item.open) {
  if (!can_open(item) || item.open === open) return;
  item.open = open;
  lay_out();
}

graph.addEventListener("click", event => {
  const element = event.target.closest(".row");
  if (!element) return;
  const item = rows[Number(element.dataset.row)];
  if (item.kind !== "node" || event.target.closest(".chevron")) toggle(item);
  choose(item, { reveal: false });
});
graph.addEventListener("scroll", draw, { passive: true });
addEventListener("resize", () => { draw(); draw_timeline(); });
dark.addEventListener("change", () => choose_shade(shade));

const key_does = {
  "/": () => search.select(),
  Escape: () => choose(null),
  b: () => choose(kBuffers),
  t: () => toggle_timeline(),
  ArrowDown: () => step(1),
  ArrowUp: () => step(-1),
  ArrowRight: () => chosen && toggle(chosen, true),
  ArrowLeft: () => chosen && (can_open(chosen) && chosen.open ? toggle(chosen, false) : choose_outer(chosen)),
  Enter: () => chosen && toggle(chosen),
  "+": () => scale_timeline(2),
  "-": () => scale_timeline(0.5),
};
function step(by) {
  const at = chosen?.row === undefined ? (by > 0 ? -1 : rows.length) : chosen.row;
  const next = rows[at + by];
  if (next) choose(next);
}
function choose_outer(item) {
  const outer = item.kind === "node" && containers_of(item).find(one => rows[one.row] === one);
  if (outer) choose(outer);
}
addEventListener("keydown", event => {
  if (event.target === search || event.ctrlKey || event.metaKey || event.altKey || !key_does[event.key]) return;
  if (event.key === "Enter" && event.target.closest("button")) return;
  event.preventDefault();
  key_does[event.key]();
});
