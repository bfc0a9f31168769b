// Fills the page, once all scripts are there.
function start() {
  by_id("plan-name").textContent = data.plan.name;
  by_id("device").textContent = data.plan.device ?? "";
  by_id("about").replaceChildren(...Object.entries(data.plan.about).map(([what, is]) =>
    make("div", {}, make("dt", {}, what), make("dd", {}, is))));
  const programmatic = links.filter(link => link.type === "programmatic").length;
  const total = (value, name, note) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, value, note && small(note)));
  by_id("totals").replaceChildren(...[
    total(count_text(top_scope.nodes.length), "nodes", nodes.length > top_scope.nodes.length &&
          `and ${count_text(nodes.length - top_scope.nodes.length)} inside`),
    total(count_text(links.length), "edges", programmatic > 0 && `${count_text(programmatic)} programmatic`),
    total(count_text(data.plan.buffers.length), "buffers"),
    total(bytes_text(sum(top_scope.nodes, node => node.bytes_read)), "read"),
    total(bytes_text(sum(top_scope.nodes, node => node.bytes_written)), "written"),
    ...Object.entries(data.plan.facts).map(([what, is]) => total(is, what)),
    timings && total(time_text(timings.plain_step_us), "a step", `${time_text(timings.step_us)} timed`),
  ].filter(Boolean));
  document.body.classList.toggle("untimed", !timings);
  document.body.classList.toggle("compared", diff !== null);
  by_id("columns").replaceChildren(
    ...["Node", "Kernel", "Grid · block", ">Shared"].map(head => make("span", numeric(head), head.replace(/^>/, ""))),
    ...["Moved", timings && "Time"].filter(Boolean).map(head => make("span", { class: "measure" }, head)),
    ...(timings ? [["Of step", "of the timed step"], ["GB/s", "bytes moved over time"],
                   ["Floor", "its bytes at the measured peak of reading"]] : []).map(([head, title]) =>
      make("span", { class: "end", title }, head)));
  by_id("timeline-button").hidden = !timings;
  by_id("timeline-button").onclick = toggle_timeline;
  by_id("buffers-button").onclick = () => choose_buffers(null);
  rows = rows_of(top_scope);
  lanes = lanes_of(rows);
  choose_shade(shade);
  lay_out();
  show_panel(null);
  follow_link();
}
start();
