// The live view: polls /live while the page is seen, and shows counters, rates between two polls and the time line.
import { get_json } from "./api.js";
import { bytes_text, ms_text, share_text, show_pairs, whole } from "./figures.js";
import { api_key } from "./settings.js";
import { add_sample, draw_timeline } from "./timeline.js";

const kEveryMs = 1000, kTimeoutMs = 3000;
const kEnded = { length: "at their token limit", stop: "finished", abort: "cancelled", error: "failed" };

const by_id = id => document.getElementById(id);
let before = null;  // the last answer
let timer = 0, asking = false;

// Tokens a second between two answers.
function rate_of(live, name) {
  if (!before || live.seconds <= before.seconds) return 0;
  return Math.max(0, live.tokens[name] - before.tokens[name]) / (live.seconds - before.seconds);
}

function show_now(live, rate) {
  const { requests, recent } = live, replicas = live.replicas || [], engines = Math.max(replicas.length, 1);
  show_pairs(by_id("strip"), [["running", requests.running], ["waiting", requests.waiting], ["tokens/s", rate.toFixed(0)]]);
  show_pairs(by_id("now"), [
    ["State", live.state], ["Running", `${requests.running}` + (live.model ? ` of ${live.model.rows * engines}` : "")],
    ["Waiting", requests.waiting], ["Tokens/s", rate.toFixed(1)], ["Prompt tokens/s", rate_of(live, "prompt").toFixed(1)],
    ["Between tokens, median", ms_text(recent.between_tokens.median_ms)],
    ["Between tokens, 99th", ms_text(recent.between_tokens.p99_ms)],
    ["First token, median", ms_text(recent.first_token.median_ms)],
    ["First token, 99th", ms_text(recent.first_token.p99_ms)],
    ["Generated", whole(live.tokens.generated)],
    ["Ended", Object.entries(requests.ended).filter(([, n]) => n > 0).map(([word, n]) => `${whole(n)} ${kEnded[word] ?? word}`).join(", ") || "0"],
    ...replicas.map((one) => [`Replica ${one.engine}`, `${one.state}, ${whole(one.open)} open, ${whole(one.tokens)} tokens before it`])]);
}

function show_cache(live) {
  const { pages, prefix_cache: prefix, memory } = live;
  const pairs = [
    ["Pages owned", `${whole(pages.owned)} of ${whole(pages.all)}`], ["Pages cached", whole(pages.cached)],
    ["Prefix-cache hits", `${whole(prefix.found)} of ${whole(prefix.asked)} tokens, ${share_text(prefix.found, prefix.asked)}`],
    ["Preemptions", whole(live.requests.preemptions)], ["Memory of weights", bytes_text(memory.weights)],
    ["Memory of pages", bytes_text(memory.pages)], ["Memory of state", bytes_text(memory.state)],
    ["Memory of graphs", bytes_text(memory.graphs)]];
  if (live.tokens.drafted > 0)
    pairs.push(["Drafts accepted", share_text(live.tokens.accepted_drafts, live.tokens.drafted)]);
  show_pairs(by_id("cache"), pairs);
}

// A bucket's row; without a form, of a graph that no step has used.
function launch_row(launch, steps, plan) {
  const row = document.createElement("tr");
  const cell = (text, kind = "td") => row.append(Object.assign(document.createElement(kind), { textContent: text }));
  const computed = launch.bucket * launch.steps;
  cell(launch.bucket === 0 ? "none" : String(launch.bucket), "th");
  row.firstChild.scope = "row";
  cell(launch.form);
  cell(whole(launch.steps));
  const share = document.createElement("td");
  const bar = Object.assign(document.createElement("span"), { className: "bar", ariaHidden: "true" });
  const part = bar.appendChild(document.createElement("i"));
  part.style.width = `${100 * launch.steps / Math.max(steps, 1)}%`;
  share.append(bar, share_text(launch.steps, steps));
  row.append(share);
  cell(whole(launch.rows));
  cell(share_text(Math.max(0, computed - launch.rows), computed));
  const link = document.createElement("td");
  if (plan) link.append(Object.assign(document.createElement("a"), { href: plan, target: "_blank", rel: "noopener",
                                                                     textContent: "Plan", ariaLabel: `Plan of ${launch.bucket} rows` }));
  row.append(link);
  return row;
}

let shown_launches = "";

function show_graphs(live, ticket) {
  const { launches, buckets } = live.graphs;
  const steps = launches.reduce((sum, launch) => sum + launch.steps, 0);
  const exact = launches.reduce((sum, launch) => sum + launch.exact, 0);
  const rows = launches.reduce((sum, launch) => sum + launch.rows, 0);
  show_pairs(by_id("graphs"), [["Launches", whole(steps)], ["Without padding", share_text(exact, steps)],
                               ["Padded rows", `${whole(live.graphs.padded_rows)}, ${share_text(live.graphs.padded_rows, rows + live.graphs.padded_rows)}`],
                               ["Graphs", whole(live.graphs.count)], ["Built in", ms_text(live.graphs.build_ms)]]);
  const text = JSON.stringify([launches, buckets, ticket, live.graphs.fallbacks]);
  if (text === shown_launches) return;  // a link that has the focus keeps it
  const focused = document.activeElement?.closest?.("#launches a")?.href;
  shown_launches = text;
  const unused = buckets.filter(bucket => !launches.some(launch => launch.bucket === bucket))
                        .map(bucket => ({ bucket, form: "", steps: 0, rows: 0, exact: 0 }));
  const all = [...launches, ...unused].sort((one, other) => one.bucket - other.bucket);
  const plan = bucket => buckets.includes(bucket) &&
    `/plan?bucket=${bucket}` + (ticket ? `&ticket=${encodeURIComponent(ticket)}` : "");
  by_id("launches").replaceChildren(...all.map(launch => launch_row(launch, steps, plan(launch.bucket))));
  if (focused) [...by_id("launches").querySelectorAll("a")].find(link => link.href === focused)?.focus();
  by_id("fallbacks").replaceChildren(...live.graphs.fallbacks.map(({ reason, steps }) =>
    Object.assign(document.createElement("li"), { textContent: `${whole(steps)} steps without a graph: ${reason}` })));
}

function show(live, ticket) {
  const rate = rate_of(live, "generated");
  add_sample({ rate, running: live.requests.running, waiting: live.requests.waiting });
  show_now(live, rate);
  if (by_id("live-view").hidden) return;
  show_cache(live);
  show_graphs(live, ticket);
  draw_timeline(by_id("timeline"));
}

// Without an answer nothing is known of now.
export function show_silence(words) {
  by_id("strip").replaceChildren();
  show_pairs(by_id("now"), [["State", words]]);
  before = null;
}

let last_ticket = null;

// Draws what was told last: the view has been opened, or its size has changed.
export function show_again() {
  draw_timeline(by_id("timeline"));
  if (!before) return;
  show_cache(before);
  show_graphs(before, last_ticket);
}

// Asks now, then once a second. `told` gets each answer, `failed` each ApiFailure.
export async function poll({ told, failed }) {
  clearTimeout(timer);
  if (asking) return;
  asking = true;
  try {
    const { body, headers } = await get_json("/live", api_key(), AbortSignal.timeout(kTimeoutMs));
    last_ticket = headers.get("x-plan-ticket");
    show(body, last_ticket);
    before = body;
    told(body);
  } catch (error) {
    failed(error);
  }
  asking = false;
  if (!document.hidden) timer = setTimeout(() => poll({ told, failed }), kEveryMs);
}
