// The plan as the page sees it: nodes and buffers in one list each, also those of plans inside nodes; the rows that are
// open; and the lanes in which links run beside the rows. Draws nothing.
"use strict";

const data = JSON.parse(document.getElementById("plan-data").textContent);
const kSmall = 12;   // nodes of a plan that shows the plans inside it at once
const nodes = [];    // of all plans, in the order in which they run: the JSON's members, and those that scope_of adds
const links = [];    // edges between them: {from, to, type, reasons}
const buffers = [];  // {name, bytes, of, live_in, live_out, uses: [{node, use}]}
const timings = data.plan.timings;
const top_scope = read_plan(data.plan, { nodes, links, buffers });
// A comparison: the earlier plan, whose nodes are counted but not listed, and the differences.
const before_scope = data.before && read_plan(data.before, { nodes: [], links: [], buffers: [] });
const diff = data.diff;
if (diff) mark_changes();

function read_plan(dump, into) {
  const scope = scope_of(dump, dump.folds, 0, null, into);
  scope.timings = dump.timings;
  if (dump.timings) set_timings(scope, dump.timings.nodes);
  return scope;
}

// Also of the plans inside a node, where the times say what a round of them takes.
function set_timings(scope, list) {
  for (const timing of list) {
    const node = scope.nodes[timing.node];
    node.timing = timing;
    (timing.bodies ?? []).forEach((body, i) => set_timings(node.scopes[i], body.nodes));
  }
  mark_critical_path(scope);
}

// From the node that ends last back over each node's latest predecessor.
function mark_critical_path(scope) {
  const latest = list => list.filter(node => node.timing)
    .reduce((last, node) => !last || node.timing.end_us > last.timing.end_us ? node : last, null);
  for (let node = latest(scope.nodes); node; node = latest(node.before.map(link => link.from))) node.critical = true;
}

// A plan or a body of one of its nodes: {plan, items}. An item is a node, a block (the nodes of one layer, behind one
// header) or a run (blocks that are the same: the first one shown, the others behind one row). `into`: the lists of all
// nodes, links and buffers.
function scope_of(plan, folds, depth, owner, into) {
  const scope = { kind: "scope", plan, owner, depth, items: [], open: true, buffers: new Map() };
  for (const buffer of plan.buffers)
    scope.buffers.set(buffer.name, buffer_of(buffer, owner?.scope.buffers.get(buffer.name), into));
  scope.nodes = plan.nodes.map(json => {
    const node = { ...json, kind: "node", type: json.kind, scope, depth, before: [], after: [], gone: [],
                   open: depth === 0 && plan.nodes.length <= kSmall };
    node.bytes = json.bytes_read + json.bytes_written;
    into.nodes.push(node);
    for (const use of json.uses) scope.buffers.get(use.buffer).uses.push({ node, use });
    node.scopes = (json.bodies ?? []).map((body, i) => scope_of(body, folds.bodies[json.id][i], depth + 1, node, into));
    return node;
  });
  for (const edge of plan.edges) {
    const link = { from: scope.nodes[edge.from], to: scope.nodes[edge.to], type: edge.type, reasons: edge.reasons };
    into.links.push(link);
    link.from.after.push(link);
    link.to.before.push(link);
  }
  const runs = new Map(folds.runs.map(run => [run.first, run]));
  for (let at = 0; at < scope.nodes.length;) {
    const run = runs.get(at), end = run ? at + run.count : end_of_layer(scope.nodes, at);
    const block = block_of(scope.nodes.slice(at, end));
    if (run) {
      const blocks = Array.from({ length: run.times - 1 }, (_, i) =>
        block_of(scope.nodes.slice(at + (i + 1) * run.count, at + (i + 2) * run.count)));
      scope.items.push(block, { kind: "run", blocks, nodes: blocks.flatMap(one => one.nodes), depth, open: false });
      at += run.times * run.count;
    } else {
      scope.items.push(...(block.layer && block.nodes.length > 1 ? [block] : block.nodes));
      at = end;
    }
  }
  return scope;
}

// A body shares the buffers of the plan around it; a child may give a name of its own plan's to other memory.
function buffer_of(buffer, outer, into) {
  if (outer && outer.bytes === buffer.bytes && outer.of === buffer.kind) return outer;
  const added = { ...buffer, kind: "buffer", of: buffer.kind, uses: [] };
  into.buffers.push(added);
  return added;
}

// "": the outermost plan. As PlanDiff names those inside it.
function path_of(scope) {
  return scope.owner ? scope.plan.name.slice(scope.plan.name.indexOf("/") + 1) : "";
}

function mark_changes() {
  const by_path = new Map();
  const note = scope => {
    by_path.set(path_of(scope), scope);
    scope.nodes.forEach(node => node.scopes.forEach(note));
  };
  note(top_scope);
  for (const change of diff.nodes) {
    const scope = by_path.get(change.plan);
    if (change.how !== "removed" && scope)
      scope.nodes.find(node => node.name === change.name).change = change;
  }
  for (const change of diff.buffers) {
    const buffer = by_path.get(change.plan)?.buffers.get(change.name);
    if (buffer) buffer.change = change;
  }
  const earlier = new Map(before_scope.nodes.map(node => [node.name, node]));
  for (const node of top_scope.nodes) node.was = earlier.get(node.name);
  place_gone_nodes();
}

// A node that only the earlier plan has stands behind the one that it followed there.
function place_gone_nodes() {
  const later = new Map(top_scope.nodes.map(node => [node.name, node]));
  let at = null;
  top_scope.gone = [];
  for (const node of before_scope.nodes) {
    if (later.has(node.name)) at = later.get(node.name);
    else (at ?? top_scope).gone.push({ kind: "gone", name: node.name, node, depth: 0 });
  }
}

function end_of_layer(list, at) {
  let end = at + 1;
  while (list[at].layer && end < list.length && list[end].layer === list[at].layer) ++end;
  return end;
}

function block_of(list) {
  const block = { kind: "block", layer: list[0].layer, nodes: list, depth: list[0].depth, open: true };
  for (const node of list) node.group = block;
  return block;
}

// Everything that must be open for `node` to have a row.
function containers_of(node) {
  const run = node.scope.items.find(item => item.kind === "run" && item.blocks.includes(node.group));
  const own = [node.group, run].filter(Boolean);
  return node.scope.owner ? [...own, node.scope, node.scope.owner, ...containers_of(node.scope.owner)] : own;
}

const can_open = item => item.kind !== "gone" && (item.kind !== "node" || item.scopes.length > 0);

// The open items in order, one a row; item.row and node.row say where. A node that is not shown has the row of what
// hides it.
function rows_of(scope, rows = []) {
  const hide = (list, row) => list.forEach(node => {
    node.row = row;
    node.scopes.forEach(inner => hide(inner.nodes, row));
  });
  const show = item => {
    item.row = rows.push(item) - 1;
    if (item.kind === "node") {
      item.scopes.forEach(inner => item.open ? show(inner) : hide(inner.nodes, item.row));
      item.gone.forEach(show);
    } else if (item.kind === "gone") {
      return;
    } else if (!item.open) {
      hide(item.nodes, item.row);
    } else {
      (item.kind === "run" ? item.blocks : item.kind === "scope" ? item.items : item.nodes).forEach(show);
    }
  };
  (scope.gone ?? []).forEach(show);
  scope.items.forEach(show);
  return rows;
}

// Links between different rows: {from, to, type, lane}, one of every pair and type. Rows with nodes get a lane for a
// dot. As in a log of branches: the link to the nearest row below keeps the dot's lane, others take the first free one,
// and a dot sits in the leftmost lane that arrives.
function lanes_of(rows) {
  const by_from = rows.map(() => new Map()), arriving = rows.map(() => []);
  for (const { from, to, type } of links)
    if (from.row !== to.row) by_from[from.row].set(to.row + type, { from: from.row, to: to.row, type });
  const busy = [];  // by lane: the row up to which a link runs in it
  const free_lane = row => {
    let lane = 0;
    while (busy[lane] > row) ++lane;
    return lane;
  };
  const drawn = [], dots = [];
  rows.forEach((item, row) => {
    if (item.kind === "gone" || (can_open(item) && item.kind !== "node" && item.open)) return;
    const lane = arriving[row].length > 0 ? Math.min(...arriving[row].map(link => link.lane)) : free_lane(row);
    dots[row] = lane;
    const leaving = [...by_from[row].values()].sort((a, b) => a.to - b.to);
    leaving.forEach((link, i) => {
      link.lane = i === 0 ? lane : free_lane(row);
      busy[link.lane] = link.to;
      arriving[link.to].push(link);
      drawn.push(link);
    });
  });
  return { drawn, dots, count: busy.length || 1 };
}

const sum = (list, value) => list.reduce((total, one) => total + value(one), 0);
const time_of = list => sum(list, node => node.timing?.time_us ?? 0);
const bytes_of = list => sum(list, node => node.bytes);
// With a peak of the memory's bandwidth: what these bytes take at least, in microseconds.
const floor_of = list => timings?.peak_bytes_per_s > 0 ? bytes_of(list) / timings.peak_bytes_per_s * 1e6 : 0;
const rate_of = list => time_of(list) > 0 ? bytes_of(list) / time_of(list) * 1e6 : 0;  // bytes a second
const share_of = list => timings?.step_us > 0 ? time_of(list) / timings.step_us : 0;
// A reason is text: its buffer and range, where it names any.
const reason_parts = text => /^(\S+) ([^]*)(\[\d+,\d+\))$/.exec(text)?.slice(1) ?? [text, null, ""];
