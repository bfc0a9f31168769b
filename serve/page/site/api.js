// Calls of this server: JSON, and answers that arrive as events. Every error is an ApiFailure whose message is the
// server's own.

export class ApiFailure extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;  // 0: there was no answer
  }
}

// "BadRequestError (400), temperature: ..." from an error body; other bodies as they are.
function failure_of(status, text) {
  let error = null;
  try {
    error = JSON.parse(text).error;
  } catch {
    // not JSON: a proxy's page, or plain text
  }
  if (!error || typeof error.message !== "string") return new ApiFailure(text.trim() || `HTTP status ${status}`, status);
  return new ApiFailure(`${error.type} (${error.code}): ${error.message}`, status);
}

function headers_with(key, more = {}) {
  return key ? { ...more, Authorization: `Bearer ${key}` } : more;
}

async function answer_of(path, options) {
  let response;
  try {
    response = await fetch(path, { cache: "no-store", credentials: "omit", redirect: "error", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiFailure("The server does not answer.");
  }
  if (!response.ok) throw failure_of(response.status, await response.text());
  return response;
}

// {body, headers} of a GET.
export async function get_json(path, key, signal) {
  const response = await answer_of(path, { headers: headers_with(key), signal });
  return { body: await response.json(), headers: response.headers };
}

// The body of a POST's answer.
export async function post_json(path, body, key, signal) {
  const headers = headers_with(key, { "Content-Type": "application/json" });
  return (await answer_of(path, { method: "POST", headers, body: JSON.stringify(body), signal })).json();
}

// The text of each event's data lines, as they come.
async function* events_of(stream) {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    text += done ? decoder.decode() : decoder.decode(value, { stream: true });
    const events = text.split(/\r?\n\r?\n/);
    text = events.pop();
    for (const event of events) {
      const lines = event.split(/\r?\n/).filter(line => line.startsWith("data:"));
      if (lines.length > 0) yield lines.map(line => line.slice(5).replace(/^ /, "")).join("\n");
    }
    if (done) return;
  }
}

// POSTs `body` with "stream" and yields each chunk. Ends with [DONE]; throws ApiFailure when the stream says an error or
// breaks off, and an AbortError after `signal`.
export async function* stream_of(path, body, key, signal) {
  const asked = { ...body, stream: true, stream_options: { include_usage: true } };
  const headers = headers_with(key, { "Content-Type": "application/json" });
  const response = await answer_of(path, { method: "POST", headers, body: JSON.stringify(asked), signal });
  try {
    for await (const data of events_of(response.body)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw failure_of(chunk.error.code || response.status, data);
      yield chunk;
    }
  } catch (error) {
    if (error.name === "AbortError" || error instanceof ApiFailure) throw error;
    throw new ApiFailure(`The answer broke off (${error.message}).`);
  }
  throw new ApiFailure("The answer ended without [DONE].");
}
