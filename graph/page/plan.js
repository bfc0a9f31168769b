// The plan as the page sees it: nodes and buffers in one list each, also those of plans inside nodes; the rows that are
// open; and the lanes in which links run beside the rows. Draws nothing.
"use strict";

const data = JSON.parse(document.getElementById("plan-data").textContent);
const nodes = [];    // of all plans, in the order in which they run: the JSON's members, and those that scope_of adds
const links = [];    // edges between them: {from, to, type, reasons}
const buffers = [];  // {name, bytes, of, live_in, live_out, uses: [{node, use}]}
const timings = data.timings;
const top_scope = scope_of(data.plan, data.folds, 0, null);
for (const timing of timings ? timings.nodes : []) top_scope.nodes[timing.node].timing = timing;

// A plan or a body of one of its nodes: {plan, items}. An item is a node, a block (the nodes of one layer, behind one
// header) or a run (blocks that are the same: the first one shown, the others behind one row).
function scope_of(plan, folds, depth, owner) {
  const scope = { kind: "scope", plan, owner, depth, items: [], open: true, buffers: new Map() };
  for (const buffer of plan.buffers)
    scope.buffers.set(buffer.name, buffer_of(buffer, owner?.scope.buffers.get(buffer.name)));
  scope.nodes = plan.nodes.map(json => {
    const node = { ...json, kind: "node", type: json.kind, scope, depth, before: [], after: [], open: false };
    node.bytes = json.bytes_read + json.bytes_written;
    nodes.push(node);
    for (const use of json.uses) scope.buffers.get(use.buffer).uses.push({ node, use });
    node.scopes = (json.bodies ?? []).map((body, i) => scope_of(body, folds.bodies[json.id][i], depth + 1, node));
    return node;
  });
  for (const edge of plan.edges) {
    const link = { from: scope.nodes[edge.from], to: scope.nodes[edge.to], type: edge.type, reasons: edge.reasons };
    links.push(link);
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
function buffer_of(buffer, outer) {
  if (outer && outer.bytes === buffer.bytes && outer.of === buffer.kind) return outer;
  const added = { ...buffer, kind: "buffer", of: buffer.kind, uses: [] };
  buffers.push(added);
  return added;
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

const can_open = item => item.kind !== "node" || item.scopes.length > 0;

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
    } else if (!item.open) {
      hide(item.nodes, item.row);
    } else {
      (item.kind === "run" ? item.blocks : item.kind === "scope" ? item.items : item.nodes).forEach(show);
    }
  };
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
    if (can_open(item) && item.kind !== "node" && item.open) return;
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
// A reason is text: its buffer and range, where it names any.
const reason_parts = text => /^(\S+) ([^]*)(\[\d+,\d+\))$/.exec(text)?.slice(1) ?? [text, null, ""];
