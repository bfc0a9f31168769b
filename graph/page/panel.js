// The panel beside the list, and the search: what is known of a node, a group of nodes, a buffer, or the whole plan.
const kMostListed = 300;  // entries of one list before a button asks for the rest

const section = (title, ...content) => [make("h3", {}, title), ...content];
const facts = pairs => make("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, ...value]) =>
  [make("dt", {}, name), make("dd", {}, ...value)]));
const small = text => make("small", {}, text);
const exact_bytes = bytes => [bytes_text(bytes), bytes >= 1000 && small(`${count_text(bytes)} B`)];
const go = (item, text, how) =>
  make("button", { type: "button", class: "go mono", onclick: () => choose(item, how) }, text);
const line_icon = type => make("svg", { width: 26, height: 8 }, make("path", { class: `link ${type}`, d: "M0 4H26" }));
const range_of = use => `[${use.offset},${use.offset + use.bytes})`;

function show_panel(item) {
  const content = item === null ? plan_panel() : item.kind === "node" ? node_panel(item)
    : item.kind === "gone" ? node_panel(item.node) : item.kind === "buffers" ? buffers_panel()
    : item.kind === "buffer" ? buffer_panel(item) : group_panel(item);
  panel.replaceChildren(...content.flat(Infinity).filter(Boolean));
  panel.scrollTop = 0;
}

const heading = (title, sub) => [
  make("button", { type: "button", class: "close", title: "Close (Esc)", "aria-label": "Close",
                   onclick: () => choose(null) }, "×"),
  make("h2", {}, title), make("p", { class: "sub" }, sub)];

// The first of a long list, and a button for the rest.
function list_of(entries, draw_entry) {
  const list = make("ul", { class: "list" }, entries.slice(0, kMostListed).map(draw_entry));
  const rest = entries.slice(kMostListed);
  if (rest.length === 0) return list;
  const more = make("button", { type: "button", class: "go", onclick: () => {
    list.append(...rest.map(draw_entry));
    more.remove();
  } }, `Show ${times(rest.length, "more")}`);
  return [list, more];
}

// A head that begins with > is of a column of numbers.
const numeric = head => ({ class: head.startsWith(">") && "end" });
const table_of = (heads, body) => make("table", {},
  make("tr", {}, heads.map(head => make("th", numeric(head), head.replace(/^>/, "")))),
  body.map(cells => make("tr", {}, cells.map((cell, i) => make("td", numeric(heads[i]), cell)))));

// A node

function node_panel(node) {
  const kernel = node.type === "kernel";
  return [
    heading(node.name, `${node.kernel ? `kernel ${node.kernel}` : node.type}, node ${node.id} of ` +
                       node.scope.nodes.length),
    ...changes_of(node),
    facts([
      kernel && ["Grid", ...size_texts(node.grid, "block")],
      kernel && ["Block", ...size_texts(node.block, "thread")],
      kernel && ["Shared memory", node.shared_bytes ? bytes_text(node.shared_bytes) : "none",
                 node.shared_bytes > 0 && small("dynamic, a block")],
      kernel && ["Waits for inputs", node.waits_for_inputs ? "on every path" : "no: full edges only"],
      ...Object.entries(node.attributes ?? {}).map(([name, value]) =>
        [name.replaceAll("_", " "), Array.isArray(value) ? shape_text(value) : String(value)]),
      node.copy && ["Copies", rows_text(node.copy), bytes_text(node.copy.bytes),
                    small(`${node.copy.from} to ${node.copy.to}`)],
      node.fill && ["Fills", rows_text(node.fill), count_text(node.fill.count), " × ",
                    bytes_text(node.fill.element_bytes), small(`with 0x${node.fill.value.toString(16)}`)],
      node.conditional && ["Conditional", node.conditional.type,
                           small(`its condition starts as ${node.conditional.default_value}` +
                                 (node.conditional.reset_each_launch ? " at each launch" : ""))],
      node.type === "child" && ["Inner nodes", node.patchable_inside ? "stay patchable" : "a copy, fixed"],
      node.library && ["Library", node.library],
      node.request && node.request !== node.kernel && ["Built as", make("code", {}, node.request)],
      ["Reads", ...exact_bytes(node.bytes_read)],
      ["Writes", ...exact_bytes(node.bytes_written)],
    ]),
    node.timing && section("Time", ...timing_facts(node)),
    section(kernel ? "Arguments" : "Memory", arguments_table(node)),
    section(`After ${times(node.before.length, "node")}`, edge_list(node.before, link => link.from)),
    section(`Before ${times(node.after.length, "node")}`, edge_list(node.after, link => link.to)),
    node.scopes.length > 0 && section("Inside", list_of(node.scopes, inner =>
      make("li", {}, go(inner.nodes[0] ?? node, scope_name(inner)), " ", small(times(inner.nodes.length, "node"))))),
  ];
}

// "8 blocks"; of two dimensions "4×2", and 8 blocks.
function size_texts(size, what) {
  const all = times(size.reduce((a, b) => a * b), what);
  return shape_text(size).includes("×") ? [shape_text(size), small(all)] : [all];
}

const rows_text = ({ rows, slices = 1 }) =>
  (slices > 1 ? `${times(slices, "slice")} of ` : "") + (rows > 1 ? `${times(rows, "row")} of ` : "");

function timing_facts(node) {
  const { time_us, span_us, overlap_us, start_us, end_us } = node.timing, of = root_of(node).timings;
  const bytes_per_s = node.bytes / time_us * 1e6, peak = of.peak_bytes_per_s;
  const whole = node.scope.nodes.reduce((last, one) => Math.max(last, one.timing?.end_us ?? 0), 0) || 1;
  const part = (from, to, name) =>
    make("i", { class: name, style: { left: `${100 * from / whole}%`, width: `${100 * (to - from) / whole}%` } });
  return [
    facts([
      ["Adds", time_text(time_us), small(`${percent_text(time_us / (of.step_us || whole))} of the step`)],
      ["Runs for", time_text(span_us),
       overlap_us > 0 && small(`${time_text(overlap_us)} of it before its inputs are ready`)],
      time_us > 0 && node.bytes > 0 && ["Moves", `${bytes_text(Math.round(bytes_per_s))}/s`,
                                        peak > 0 && small(`${percent_text(bytes_per_s / peak)} of the peak`)],
      peak > 0 && node.bytes > 0 && ["Floor", time_text(node.bytes / peak * 1e6), small("its bytes at the peak")],
      ["Critical path", node.critical ? "on it" : "beside it"],
    ]),
    make("div", { class: "strip", title: `from ${time_text(start_us)} to ${time_text(end_us)} of ${time_text(whole)}` },
         part(start_us, end_us - time_us, "overlap"), part(end_us - time_us, end_us, "")),
  ];
}

const kSigns = { frozen: "frozen", in: "in", out: "out", inout: "in out" };
const kPeerSigns = { out: "sends", in: "takes" };  // packets between devices
const role_element = (access, peer) =>
  make("span", { class: `role ${writes(access) ? "writes" : access in kSigns ? "reads" : ""}` },
       kPeerSigns[peer] ?? kSigns[access] ?? access);
const buffer_link = (node, name, range) =>
  [go(node.scope.buffers.get(name), name), " ", make("span", { class: "range mono" }, range)];

function root_of(node) {
  let scope = node.scope;
  while (scope.owner) scope = scope.owner.scope;
  return scope;
}

// What a comparison says of a node or a buffer.
function changes_of(item) {
  if (!item.change) return [];
  if (item.change.how === "added") return [make("p", { class: "told added" }, "Only the later plan has it.")];
  return section("Differs", table_of(["", "Before", "After"], item.change.changes.map(({ what, before, after }) =>
    [what, make("code", { class: "was" }, before), make("code", {}, after)])));
}

function arguments_table(node) {
  const uses = [...node.uses, ...(node.possible ?? []).map(use => ({ ...use, access: "possible" }))];
  const use_of = new Map(uses.map(use => [use.field, use]));
  const named = new Set((node.arguments ?? []).map(one => one.field));
  const fields = [...(node.arguments ?? []), ...uses.filter(use => !named.has(use.field))
    .map(use => ({ field: use.field, role: use.access, type: "" }))];
  if (fields.length === 0) return make("p", { class: "none" }, "none");
  const is_value = role => role === "scalar" || role === "exchange";
  const is_empty = ({ field, role }) => !use_of.has(field) && !is_value(role) && role !== "condition";
  const left_out = fields.filter(is_empty);
  return [table_of(["", "Field", "Type", "Value"], fields.filter(one => !is_empty(one)).map(one => {
    const { field, role, type, value } = one, use = use_of.get(field);
    const shown = one.hex ?? (is_value(role) ? (value === null ? "not printed" : String(value)) : "nobody's");
    return [role_element(use?.access ?? role, use?.peer), make("code", {}, field), make("code", {}, type),
            use ? buffer_link(node, use.buffer, range_of(use)) : make("code", {}, shown)];
  })), left_out.length > 0 && make("p", { class: "none" }, `left empty: ${left_out.map(one => one.field).join(", ")}`)];
}

function edge_list(edges, other) {
  return list_of(edges, link => make("li", {}, line_icon(link.type), go(other(link), other(link).name),
    " ", make("span", { class: "range" }, link.type === "full" ? "" : link.type),
    link.reasons.map(text => {
      const [why, buffer, range] = reason_parts(text);
      return make("div", { class: "reason" }, why, " ", buffer === null ? "" : buffer_link(link.to, buffer, range));
    })));
}

// A layer, layers that are the same, or a plan inside a node

function group_panel(group) {
  const blocks = group.blocks ?? [group];
  const title = group.kind === "scope" ? scope_name(group) : group.kind === "run" ? layers_text(group) : group.layer;
  const sub = group.kind === "run" ? `${times(blocks.length, "layer")}, the same block as the layer before`
    : times(group.nodes.length, "node");
  const spread = what => blocks.map(block => measure[what](block.nodes)).sort((a, b) => a - b);
  const per_layer = spread("time"), last = per_layer.length - 1;
  return [
    heading(title, sub),
    facts([
      ["Nodes", count_text(group.nodes.length)],
      ["Moves", bytes_text(bytes_of(group.nodes)), group.kind === "scope" && small("a round"),
       blocks.length > 1 && small(`${bytes_text(Math.round(bytes_of(group.nodes) / blocks.length))} a layer`)],
      time_of(group.nodes) > 0 && ["Time", time_text(time_of(group.nodes)), group.kind === "scope" && small("a round"),
                  last > 0 && small(`${time_text(per_layer[0])} to ${time_text(per_layer[last])} a layer`)],
    ]),
    section("Nodes", list_of(blocks[0].nodes, node => make("li", {}, go(node, node.name), " ",
      make("span", { class: "range" }, node.kernel || node.type)))),
  ];
}

// A buffer

function buffer_panel(buffer) {
  const live = [buffer.live_in && "holds a value before", buffer.live_out && "is read afterwards"].filter(Boolean);
  const writers = buffer.uses.filter(({ use }) => writes(use.access)).length;
  return [
    heading(buffer.name, `${buffer.of} buffer`),
    ...changes_of(buffer),
    facts([
      ["Size", ...exact_bytes(buffer.bytes)],
      buffer.needed && ["Needed", needed_text(buffer), small(`${times(buffer.needed[1] - buffer.needed[0] + 1, "node")}`)],
      ["Outside the plan", live.join(", ") || "not used"],
      ["Written", times(writers, "time")],
      ["Read", times(buffer.uses.filter(({ use }) => use.access !== "out").length, "time")],
    ]),
    section("Writers and readers, in order", buffer.uses.length === 0 ? make("p", { class: "none" }, "none")
      : list_of(buffer.uses, ({ node, use }) => make("li", { "data-access": use.access },
        role_element(use.access, use.peer), " ",
        go(node, node.name, { keep_marks: true }),
        " ", make("span", { class: "range mono" }, `${use.field} ${range_of(use)}`),
        use.bytes < buffer.bytes && make("div", { class: "strip" }, make("i", {
          class: writes(use.access) ? "writes" : "reads",
          style: { left: `${100 * use.offset / buffer.bytes}%`, width: `${100 * use.bytes / buffer.bytes}%` } }))))),
  ];
}

// The plan

function groups_by(list, key) {
  const groups = new Map();
  for (const one of list) groups.set(key(one), [...(groups.get(key(one)) ?? []), one]);
  return [...groups];
}

function plan_panel() {
  const what = timings ? "time" : "bytes";
  const kernels = groups_by(nodes, node => node.kernel || node.type)
    .sort(([, a], [, b]) => measure[what](b) - measure[what](a));
  const kinds = groups_by(buffers, buffer => buffer.of)
    .sort(([, a], [, b]) => sum(b, one => one.bytes) - sum(a, one => one.bytes));
  const key = (name, does) => [make("kbd", {}, name), does];
  return [
    make("h2", {}, "The plan"), make("p", { class: "sub" }, "Choose a node, or find a buffer."),
    ...diff_sections(),
    section("Kernels", table_of(["", ">Nodes", ">Moved", ...(timings ? [">Time"] : [])], kernels.map(([name, list]) =>
      [make("button", { type: "button", class: "go mono", onclick: () => find(name) }, name), count_text(list.length),
       bytes_text(bytes_of(list)), ...(timings ? [time_text(time_of(list))] : [])]))),
    section("Buffers", table_of(["", ">Buffers", ">Size"], [...kinds.map(([kind, list]) =>
      [make("button", { type: "button", class: "go", onclick: () => choose_buffers(kind) }, kind),
       count_text(list.length), bytes_text(sum(list, one => one.bytes))]),
      [["Peak ", small("needed at once")], "", bytes_text(data.plan.peak.bytes)]])),
    section("Keys", table_of(["", ""], [
      key("/", "find a node, kernel or buffer"), key("b", "all buffers"),
      ...(timings ? [key("t", "the timeline"), key("+ −", "its scale")] : []), key("↑ ↓", "the node above or below"),
      key("→ ←", "unfold, fold"), key("Esc", "close, and back to the plan")])),
  ];
}

// The search

let results = [], current = 0;

function find(text) {
  search.value = text;
  const wanted = text.trim().toLowerCase();
  const rank = name => name.toLowerCase() === wanted ? 0 : name.toLowerCase().startsWith(wanted) ? 1 : 2;
  const matches = (list, words) => wanted === "" ? [] : list.filter(one => words(one).toLowerCase().includes(wanted))
    .sort((a, b) => rank(a.name) - rank(b.name)).slice(0, 40);
  const found_nodes = matches(nodes, node => `${node.name} ${node.kernel}`);
  const found_buffers = matches(buffers, buffer => buffer.name);
  results = [...found_nodes, ...found_buffers];
  current = 0;
  const entry = (item, note) => make("button", { type: "button", role: "option", onclick: () => pick(item) },
    make("code", {}, item.name), make("span", {}, note));
  found.replaceChildren(...[
    found_nodes.length > 0 && section("Nodes", found_nodes.map(node => entry(node, node.kernel || node.type))),
    found_buffers.length > 0 && section("Buffers", found_buffers.map(one => entry(one, bytes_text(one.bytes)))),
    results.length === 0 && make("p", {}, "No node, kernel or buffer has this in its name."),
  ].flat(Infinity).filter(Boolean));
  found.hidden = wanted === "";
  search.setAttribute("aria-expanded", String(!found.hidden));
  search.focus();
  point(0);
}

function point(index) {
  const entries = [...found.querySelectorAll("button")];
  current = Math.max(0, Math.min(entries.length - 1, index));
  entries.forEach((entry, i) => {
    entry.classList.toggle("on", i === current);
    entry.setAttribute("aria-selected", i === current);
  });
  entries[current]?.scrollIntoView({ block: "nearest" });
}

function pick(item) {
  found.hidden = true;
  search.setAttribute("aria-expanded", "false");
  search.blur();
  if (item) choose(item);
}

search.addEventListener("input", () => find(search.value));
search.addEventListener("focus", () => { if (search.value) find(search.value); });
search.addEventListener("keydown", event => {
  const does = { ArrowDown: () => point(current + 1), ArrowUp: () => point(current - 1),
                 Enter: () => pick(results[current]), Escape: () => pick(null) }[event.key];
  if (!does) return;
  event.preventDefault();
  does();
});
document.addEventListener("pointerdown", event => {
  if (!event.target.closest(".search, #panel")) found.hidden = true;
});
