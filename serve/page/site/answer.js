// One answer as it comes: what is asked for, the pieces of the stream, and the speed.
import { post_json, stream_of } from "./api.js";
import { api_key, completion_tokens, request_fields, system_prompt } from "./settings.js";

const kEnds = { length: "reached its token limit", stop: "", tool_calls: "calls a tool" };

// What `turns` before the answer ask for. A message that got an error instead of an answer is not told again.
async function body_of(turns, role, model, signal) {
  const fields = { model: model ?? undefined, ...request_fields() };
  if (role === "completion") {
    const prompt = turns.at(-1).text;
    return { ...fields, max_tokens: fields.max_tokens ?? await tokens_for(prompt, fields.model, signal), prompt };
  }
  const is_failed = turn => turn?.role === "assistant" && turn.text === "";
  const messages = turns.filter((one, i) => !is_failed(one) && !is_failed(turns[i + 1]))
                        .filter(one => one.role === "user" || one.role === "assistant")
                        .map(one => ({ role: one.role, content: one.text }));
  if (system_prompt() !== "") messages.unshift({ role: "system", content: system_prompt() });
  return { ...fields, messages };
}

// The server's own default for completions is 16, as OpenAI's; the page's is what its field shows, less where the
// context has not so much room.
async function tokens_for(prompt, model, signal) {
  const { count, max_model_len: context } = await post_json("/tokenize", { model, prompt }, api_key(), signal);
  return Math.max(1, Math.min(completion_tokens(context), context - count));
}

const milliseconds = ms => (ms < 10 ? ms.toFixed(1) : ms.toFixed(0)) + " ms";

// "12 tokens · 340 tokens/s · first after 8.1 ms". `clock`: {sent, first, last} of performance.now(), `tokens` of the
// answer.
function speed_of({ sent, first, last }, tokens, usage) {
  if (first === 0) return "no tokens";
  const parts = [`${tokens} token${tokens === 1 ? "" : "s"}`];
  if (tokens > 1 && last > first) parts.push(`${((tokens - 1) / (last - first) * 1000).toFixed(1)} tokens/s`);
  parts.push(`first after ${milliseconds(first - sent)}`);
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens;
    parts.push(`prompt ${usage.prompt_tokens}` + (cached ? `, ${cached} of them cached` : ""));
  }
  return parts.join(" · ");
}

// Fills `turn`, the answer to `turns`, until its end or `signal`; `grown` is called after each piece. Never throws: what
// went wrong is the turn's error.
export async function fill(turn, turns, model, signal, grown) {
  const path = turn.role === "completion" ? "/v1/completions" : "/v1/chat/completions";
  const clock = { sent: performance.now(), first: 0, last: 0 };
  let tokens = 0, usage = null, end = "";
  try {
    const body = await body_of(turns, turn.role, model, signal);
    clock.sent = performance.now();
    for await (const chunk of stream_of(path, body, api_key(), signal)) {
      if (chunk.usage) usage = chunk.usage;
      const choice = chunk.choices?.[0];
      if (!choice) continue;
      const text = choice.delta ? choice.delta.content : choice.text, thought = choice.delta?.reasoning_content;
      if (choice.finish_reason) end = kEnds[choice.finish_reason] ?? choice.finish_reason;
      if (choice.delta?.tool_calls)
        turn.text += `\n\`\`\`json\n${JSON.stringify(choice.delta.tool_calls, null, 2)}\n\`\`\`\n`;
      const says = typeof text === "string" && !(choice.delta?.role && text === "");
      if (says || thought) {
        clock.last = performance.now();
        clock.first ||= clock.last;
        ++tokens;
      }
      if (thought) turn.thoughts = (turn.thoughts ?? "") + thought;
      if (says) turn.text += text;
      grown();
    }
  } catch (error) {
    if (error.name === "AbortError") end = "stopped";
    else turn.error = error.message;
  }
  const speed = speed_of(clock, usage ? usage.completion_tokens : tokens, usage);
  if (!turn.error || turn.text !== "") turn.note = [speed, end].filter(Boolean).join(" · ");
}
