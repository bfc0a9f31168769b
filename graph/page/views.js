// What the page shows beside the list: all buffers with their lifetimes, a timeline, what a comparison found; and links
// to a selection.

// Buffers

const kBuffers = { kind: "buffers" };
let buffers_shown = { kind: null, by: "size" };  // kind: null for all

function choose_buffers(kind) {
  buffers_shown.kind = kind;
  choose(kBuffers);
}

const node_name = id => top_scope.nodes[id]?.name ?? "";
const needed_text = ({ needed: [first, last] }) =>
  first === last ? node_name(first) : `${node_name(first)} to ${node_name(last)}`;

function buffers_panel() {
  const orders = { size: (a, b) => b.bytes - a.bytes,
                   need: (a, b) => (a.needed?.[0] ?? Infinity) - (b.needed?.[0] ?? Infinity),
                   name: (a, b) => a.name.localeCompare(b.name, "en", { numeric: true }) };
  const list = buffers.filter(one => buffers_shown.kind === null || one.of === buffers_shown.kind)
    .sort(orders[buffers_shown.by]);
  const button = (text, pressed, change) => make("button", { type: "button", "aria-pressed": pressed, onclick: () => {
    Object.assign(buffers_shown, change);
    show_panel(kBuffers);
  } }, text);
  const kinds = [null, ...new Set(buffers.map(one => one.of))];
  return [
    heading("Buffers", `${times(list.length, "buffer")}, ${bytes_text(sum(list, one => one.bytes))}`),
    make("div", { class: "segments", role: "group", "aria-label": "Kind of buffer" },
         kinds.map(kind => button(kind ?? "all", buffers_shown.kind === kind, { kind }))),
    make("div", { class: "segments", role: "group", "aria-label": "Order of buffers" },
         Object.keys(orders).map(by => button(`by ${by}`, buffers_shown.by === by, { by }))),
    top_scope.nodes.length > 0 && section("Needed at once", facts([
      ["Peak", ...exact_bytes(data.plan.peak.bytes)],
      ["At", go(top_scope.nodes[data.plan.peak.node], node_name(data.plan.peak.node))]]), memory_curve()),
    section("From first need to last", list_of(list, buffer => make("li", { class: "buffer" },
      go(buffer, buffer.name), " ", make("span", { class: "range end" }, bytes_text(buffer.bytes)), lifetime_strip(buffer)))),
  ];
}

function lifetime_strip({ needed }) {
  if (!needed) return make("div", { class: "none" }, "nobody needs it");
  const all = top_scope.nodes.length;
  return make("div", { class: "strip", title: needed_text({ needed }) }, make("i", {
    style: { left: `${100 * needed[0] / all}%`, width: `${100 * (needed[1] - needed[0] + 1) / all}%` } }));
}

// Bytes needed at each node, in the order of the plan; conditions are no memory.
function needed_bytes() {
  const held = top_scope.nodes.map(() => 0);
  for (const { needed, bytes, kind } of data.plan.buffers)
    for (let node = needed?.[0] ?? 0; needed && kind !== "condition" && node <= needed[1]; ++node) held[node] += bytes;
  return held;
}

function memory_curve() {
  const held = needed_bytes(), width = 380, height = 60;
  const peak = held.reduce((a, b) => Math.max(a, b), 1), least = held.reduce((a, b) => Math.min(a, b));
  const low = least > 0.9 * peak ? least - (peak - least || 1) * 0.1 : 0;  // so that small waves on much memory show
  const y = bytes => height - (height - 4) * (bytes - low) / (peak - low);
  const steps = held.map((bytes, i) => `V${y(bytes)}H${width * (i + 1) / held.length}`);
  return make("svg", { width, height, class: "curve", role: "img", "aria-label":
    `Bytes needed at each node, from ${bytes_text(least)} to ${bytes_text(peak)}` },
    make("path", { d: `M0 ${height}${steps.join("")}V${height}Z` }));
}

// Timeline

const kTrack = 22;  // pixels
let timeline_open = false, timeline_scale = 1;  // 1: all of the step in sight

function toggle_timeline() {
  if (!timings) return;
  timeline_open = !timeline_open;
  by_id("timeline").hidden = !timeline_open;
  by_id("timeline-button").setAttribute("aria-pressed", String(timeline_open));
  draw_timeline();
  draw();
}

function scale_timeline(by) {
  if (!timeline_open) return;
  timeline_scale = Math.max(1, Math.min(64, timeline_scale * by));
  draw_timeline();
}

// Nodes that overlap lie on tracks of their own: each on the first that is free when it starts.
function tracks_of(list) {
  const ends = [];
  return list.slice().sort((a, b) => a.timing.start_us - b.timing.start_us).map(node => {
    let track = ends.findIndex(end => end <= node.timing.start_us + 1e-9);
    if (track < 0) track = ends.length;
    ends[track] = node.timing.end_us;
    return { node, track };
  });
}

function draw_timeline() {
  if (!timeline_open) return;
  const timed = top_scope.nodes.filter(node => node.timing), view = by_id("timeline");
  const last = timed.reduce((end, node) => Math.max(end, node.timing.end_us), 0) || 1;
  const width = (view.clientWidth - 48) * timeline_scale, x = us => 24 + width * Math.max(0, us) / last;
  const placed = tracks_of(timed), tracks = placed.reduce((most, one) => Math.max(most, one.track + 1), 1);
  const step = 10 ** Math.floor(Math.log10(last / timeline_scale / 4)), ticks = [];
  for (let us = 0; us <= last; us += step * (last / timeline_scale / step > 20 ? 5 : 2)) ticks.push(us);
  const bar = ({ node, track }) => {
    const { start_us, end_us } = node.timing, wide = Math.max(1, x(end_us) - x(start_us));
    const element = make("button", { type: "button", tabindex: -1, "data-node": node.name,
      class: `bar ${node === chosen ? "on" : ""} ${node.critical ? "critical" : ""}`,
      title: `${node.name}: ${time_text(start_us)} to ${time_text(end_us)}, adds ${time_text(node.timing.time_us)}` +
             (node.critical ? ", on the critical path" : ""),
      style: { left: `${x(start_us)}px`, width: `${wide}px`, top: `${20 + track * kTrack}px`,
               background: shade_of([node]) }, onclick: () => choose(node) });
    return element;
  };
  view.replaceChildren(make("div", { class: "span", style: { width: `${width + 48}px`, height: `${24 + tracks * kTrack}px` } },
    ticks.map(us => make("span", { class: "tick", style: { left: `${x(us)}px` } }, time_text(us))), placed.map(bar)));
  const bar_of_chosen = view.querySelector(".bar.on");
  if (bar_of_chosen) bar_of_chosen.scrollIntoView({ block: "nearest", inline: "nearest" });
}

// A comparison

function diff_sections() {
  if (!diff) return [];
  const rows_of_changes = list => table_of(["", "Before", "After"], list.map(({ what, before, after }) =>
    [what, make("code", { class: "was" }, before), make("code", {}, after)]));
  const items = (title, list, find_item) => list.length > 0 && section(`${title} (${times(list.length, "difference")})`,
    list_of(list, change => {
      const item = find_item(change), name = `${change.plan ? change.plan + ": " : ""}${change.name}`;
      return make("li", { class: `told ${change.how}`, "data-how": change.how },
        make("span", { class: "sign" }, { added: "+", removed: "−", changed: "~" }[change.how]), " ",
        item ? go(item, name) : make("code", {}, name), " ", make("span", { class: "range" },
          change.how === "changed" ? change.changes.map(one => one.what).join(", ") : change.words));
    }));
  const gone = new Map(before_scope.nodes.map(node => [node.name, node]));
  const scopes = new Map([["", top_scope], ...nodes.flatMap(node => node.scopes.map(scope => [path_of(scope), scope]))]);
  const node_of = change => change.how === "removed" ? (change.plan ? null : gone.get(change.name))
    : scopes.get(change.plan)?.nodes.find(node => node.name === change.name);
  const buffer_in = change => change.how === "removed" ? null : scopes.get(change.plan)?.buffers.get(change.name);
  const time_row = ({ name, before_us, after_us }) => [make("code", {}, name), time_text(before_us), time_text(after_us),
    before_us > 0 ? `${after_us >= before_us ? "+" : "−"}${digits(Math.abs(100 * (after_us / before_us - 1)))} %` : ""];
  return [
    section("Compared", facts([["Before", make("code", {}, diff.before)], ["After", make("code", {}, diff.after)],
                               ["Same plan", diff.equal ? "yes" : "no"]])),
    diff.about.length > 0 && section("About", rows_of_changes(diff.about)),
    diff.plan.length + diff.totals.length > 0 && section("In all", rows_of_changes([...diff.plan, ...diff.totals])),
    diff.step && section("Times", table_of(["", ">Before", ">After", ">"],
      [diff.step, ...diff.times.slice(0, 20)].map(time_row))),
    items("Nodes", diff.nodes, node_of), items("Edges", diff.edges, () => null),
    items("Buffers", diff.buffers, buffer_in),
  ].filter(Boolean);
}

// Links: #node=l0.attend, #node=loop.body:norm, #buffer=residual, #layer=l3, #buffers. A copied address opens the page
// at the same place.

function link_of(item) {
  const name = one => (path_of(one.scope) ? path_of(one.scope) + ":" : "") + one.name;
  if (item?.kind === "node" && root_of(item) === top_scope) return `node=${encodeURIComponent(name(item))}`;
  if (item?.kind === "buffer") return `buffer=${encodeURIComponent(item.name)}`;
  if (item?.kind === "block" && item.depth === 0) return `layer=${encodeURIComponent(item.layer)}`;
  if (item?.kind === "run" && item.depth === 0) return `layers=${encodeURIComponent(item.blocks[0].layer)}`;
  return item?.kind === "buffers" ? "buffers" : "";
}

function show_link(item) {
  const link = link_of(item);
  if (location.hash.slice(1) !== link) history.replaceState(null, "", link ? `#${link}` : location.pathname + location.search);
}

function item_of_link(link) {
  const [what, ...rest] = link.split("="), name = decodeURIComponent(rest.join("="));
  const link_name = node => (path_of(node.scope) ? path_of(node.scope) + ":" : "") + node.name;
  const blocks = top_scope.items.flatMap(item => item.kind === "run" ? item.blocks : [item]);
  return { node: () => nodes.find(node => link_name(node) === name),
           buffer: () => buffers.find(buffer => buffer.name === name),
           layer: () => blocks.find(item => item.kind === "block" && item.layer === name),
           layers: () => top_scope.items.find(item => item.kind === "run" && item.blocks[0].layer === name),
           buffers: () => kBuffers }[what]?.() ?? null;
}

function follow_link() {
  let item = null;
  try {
    item = item_of_link(location.hash.slice(1));
  } catch { /* an address that is no text leads nowhere */ }
  if (item?.kind === "block")  // which may lie behind a row of several
    for (const run of top_scope.items) if (run.kind === "run" && run.blocks.includes(item)) toggle(run, true);
  if (item || chosen) choose(item);
}
addEventListener("hashchange", follow_link);
