// What runs: the head's line and the card of the live view, from /v1/models and /live.
import { bytes_text, show_pairs, whole } from "./figures.js";

const by_id = id => document.getElementById(id);

// `entries`: data of /v1/models, or null before they are known; `live`: the answer of /live.
export function show_card(entries, live) {
  const model = live.model;
  if (!model) return;
  document.title = `${model.name} · Nodewright`;
  by_id("model-name").textContent = model.name;
  by_id("model-facts").textContent = `${model.device} · ${whole(model.context)} tokens of context`;
  const pairs = [["Name", model.name], ["Device", model.device], ["Context", `${whole(model.context)} tokens`],
                 ["Rows", `${whole(model.rows)} outputs at once`], ["Weights", `${model.weights}, ${bytes_text(live.memory.weights)}`],
                 ["Numerics", model.numerics], ["Graphs", `${whole(live.graphs.count)}, ${model.mode}`],
                 ["Tuning", model.tuning], ["Chat template", model.chat ? "yes" : "no: completions alone"],
                 ["Tokenizer", model.tokenizer ? "yes" : "no"]];
  if (entries?.length > 0) pairs.splice(1, 0, ["Folder", entries[0].root]);
  if (entries?.length > 1) pairs.splice(1, 0, ["Also called", entries.slice(1).map(entry => entry.id).join(", ")]);
  show_pairs(by_id("card"), pairs);
}
