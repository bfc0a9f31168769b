# Clients of tests/serve/chaos.py, good and bad: each sends one request, or part of one, in its own way and says what it
# may expect. Raw sockets, since most of them break HTTP. Standard library only.
import json
import socket
import struct
import time

PATIENCE_S = 600  # until an answer that does not come is a fault
TEXTS = ["Once upon a time", "The cat", "", "Zoë 🦉 went out.\n", "a " * 200, "One day, Tim and his mom", "{\"x\": "]


class Unexpected(Exception):
    """What the server did and no server may do."""


class Wire:
    """A connection that sends and reads on command."""

    def __init__(self, port, receive_bytes=0):
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(("127.0.0.1", port))
        self.unread = b""

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before all was sent: the answer says why

    def more(self, size=65536):
        try:
            data = self.socket.recv(size)
        except ConnectionResetError:
            data = b""
        self.unread += data
        return bool(data)

    def until(self, mark):
        while mark not in self.unread:
            if not self.more():
                raise EOFError(self.unread[-200:])
        at = self.unread.index(mark) + len(mark)
        taken, self.unread = self.unread[:at], self.unread[at:]
        return taken

    def exactly(self, size):
        while len(self.unread) < size:
            if not self.more():
                raise EOFError(self.unread[-200:])
        taken, self.unread = self.unread[:size], self.unread[size:]
        return taken

    def answer(self, pause_s=0.0):
        """Status and body of the next answer. `pause_s`: between the chunks of a stream."""
        head = self.until(b"\r\n\r\n").decode("latin-1")
        status = int(head.split()[1])
        headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        if headers.get("Transfer-Encoding") != "chunked":
            return status, self.exactly(int(headers.get("Content-Length", "0")))
        body = b""
        while True:
            size = int(self.until(b"\r\n"), 16)
            body += self.exactly(size)
            if self.until(b"\r\n") != b"\r\n":
                raise Unexpected("a chunk is longer than it says")
            if size == 0:
                return status, body
            time.sleep(pause_s)

    def close(self, reset=False):
        if reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def message(path, body, identity, more=b"", length=None):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = "POST %s HTTP/1.1\r\nHost: chaos\r\nContent-Type: application/json\r\nx-request-id: %s\r\nContent-Length: %d\r\n" % (
        path, identity, len(data) if length is None else length)
    return head.encode() + more + b"\r\n" + data


def random_call(rng, longest=5, stream=None):
    """A path, a body that the server must take, and how many outputs it asks for."""
    chat = rng.random() < 0.4
    body = {"max_tokens": rng.randint(1, longest), "n": rng.choice([1, 1, 1, 1, 2, 3])}
    outputs = body["n"]
    if chat:
        body["messages"] = [{"role": "user", "content": rng.choice(TEXTS)}]
    else:
        prompts = [rng.choice(TEXTS) or "x" for _ in range(rng.choice([1, 1, 1, 2]))]
        body["prompt"] = prompts[0] if len(prompts) == 1 else prompts
        outputs *= len(prompts)
    body["stream"] = rng.random() < 0.5 if stream is None else stream
    for name, value in (("temperature", rng.choice([0, 0.7, 1.5])), ("top_p", rng.uniform(0.1, 1)),
                        ("top_k", rng.randint(1, 50)), ("seed", rng.randint(-2**31, 2**31)), ("min_p", 0.05),
                        ("stop", rng.choice(["a", [" the", "."], "zzz"])), ("ignore_eos", True),
                        ("logit_bias", {"5": -100, "300": 3.5}), ("presence_penalty", 0.5), ("min_tokens", 1),
                        ("repetition_penalty", 1.2), ("frequency_penalty", -0.5), ("return_token_ids", True),
                        ("bad_words", [" cat"]), ("stop_token_ids", [7, 300])):
        if rng.random() < 0.2:
            body[name] = value
    if rng.random() < 0.2:
        body.update({"logprobs": True, "top_logprobs": 3} if chat else {"logprobs": 3})
    if body["stream"] and rng.random() < 0.3:
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": rng.random() < 0.5}
    if rng.random() < 0.15:
        body["structured_outputs"] = rng.choice([{"regex": "[a-c]{1,4}"}, {"choice": ["yes", "no"]},
                                                 {"json": {"type": "object", "properties": {"a": {"type": "integer"}},
                                                           "required": ["a"]}}])
        body.pop("bad_words", None)
        body.pop("min_tokens", None)
        body.pop("logit_bias", None)
    return ("/v1/chat/completions" if chat else "/v1/completions"), body, outputs


def check_whole(body, outputs):
    choices = json.loads(body)["choices"]
    if len(choices) != outputs or any(choice["finish_reason"] not in ("stop", "length") for choice in choices):
        raise Unexpected("%d outputs were asked for: %r" % (outputs, body[:300]))


def events_of(body):
    parts = body.split(b"\n\n")
    if parts.pop() != b"" or not all(part.startswith(b"data: ") for part in parts):
        raise Unexpected("no events: %r" % body[:300])
    return [part[len(b"data: "):] for part in parts]


def check_stream(body, outputs):
    events = events_of(body)
    if events[-1] != b"[DONE]" or events.count(b"[DONE]") != 1:
        raise Unexpected("a stream without its end: %r" % body[-300:])
    ended = []
    for event in map(json.loads, events[:-1]):
        if "error" in event:
            raise Unexpected("an error in a stream: %r" % event)
        ended += [choice["index"] for choice in event["choices"] if choice["finish_reason"]]
    if sorted(ended) != list(range(outputs)):
        raise Unexpected("%d outputs, and these ended: %s" % (outputs, ended))


def check(status, body, call, outputs):
    if status != 200:
        raise Unexpected("%d of %s: %r" % (status, json.dumps(call), body[:300]))
    (check_stream if call["stream"] else check_whole)(body, outputs)


# --- Clients: (port, rng, identity) -> (outputs asked for, status that was read or None) -------------------------------

def whole_or_stream(port, rng, identity):
    path, call, outputs = random_call(rng)
    wire = Wire(port)
    wire.send(message(path, call, identity))
    status, body = wire.answer()
    check(status, body, call, outputs)
    wire.close(reset=rng.random() < 0.3)
    return outputs, status


def hangs_up_at_random(port, rng, identity):
    path, call, outputs = random_call(rng, longest=20)
    wire = Wire(port)
    data = message(path, call, identity)
    wire.send(data if rng.random() < 0.7 else data[:rng.randrange(len(data))])
    time.sleep(rng.choice([0, 0, rng.uniform(0, 0.1)]))
    wire.close(reset=rng.random() < 0.5)
    return outputs, None


def cancels_a_stream(port, rng, identity):
    path, call, outputs = random_call(rng, longest=200, stream=True)
    wire = Wire(port)
    wire.send(message(path, call, identity))
    try:
        for _ in range(rng.randint(1, 4)):
            if b"[DONE]" in wire.until(b"\n\n"):
                break
    except EOFError:
        raise Unexpected("a stream was closed early: %s" % json.dumps(call)) from None
    wire.close(reset=rng.random() < 0.5)
    return outputs, None


def sends_slowly(port, rng, identity):
    path, call, outputs = random_call(rng)
    data = message(path, call, identity)
    wire = Wire(port)
    cuts = sorted(rng.randrange(len(data)) for _ in range(rng.randint(1, 6)))
    for begin, end in zip([0, *cuts], [*cuts, len(data)]):
        wire.send(data[begin:end])
        time.sleep(rng.uniform(0, 0.03))
    status, body = wire.answer()
    check(status, body, call, outputs)
    wire.close()
    return outputs, status


def sends_chunks(port, rng, identity):
    path, call, outputs = random_call(rng)
    data = json.dumps(call).encode()
    wire = Wire(port)
    wire.send(b"POST %s HTTP/1.1\r\nHost: c\r\nContent-Type: application/json\r\nx-request-id: %s\r\nTransfer-Encoding: chunked\r\n\r\n" %
              (path.encode(), identity.encode()))
    while data:
        size = rng.randint(1, 200)
        piece, data = data[:size], data[size:]
        wire.send(b"%x\r\n%s\r\n" % (len(piece), piece))
    wire.send(b"0\r\n\r\n")
    status, body = wire.answer()
    check(status, body, call, outputs)
    wire.close()
    return outputs, status


def reads_slowly(port, rng, identity):
    path, call, outputs = random_call(rng, longest=10, stream=True)
    wire = Wire(port, receive_bytes=1024)
    wire.send(message(path, call, identity))
    status, body = wire.answer(pause_s=rng.uniform(0, 0.02))
    check(status, body, call, outputs)
    wire.close()
    return outputs, status


def expect_status(port, data, statuses):
    wire = Wire(port)
    wire.send(data)
    try:
        status, body = wire.answer()
    except EOFError:
        raise Unexpected("closed without an answer, expected %s: %r" % (statuses, data[:200])) from None
    wire.close()
    if status not in statuses:
        raise Unexpected("%d, expected %s: %r of %r" % (status, statuses, body[:300], data[:300]))
    if status >= 400 and not json.loads(body)["error"]["message"]:
        raise Unexpected("an error without a message: %r" % body)
    return status


def malformed_body(port, rng, identity):
    path, call, _ = random_call(rng)
    text = json.dumps(call)
    at = rng.randrange(len(text))
    body = rng.choice([text[:at] or "{", "[" * 100, "null", "[]", '{"prompt":"a","prompt":"b"}', '"', "\x00",
                       '{"prompt":"a","temperature":1e999}']).encode()
    return 0, expect_status(port, message(path, rng.choice([body, b"\xff\xfe" + body]), identity), {400})


def bad_field(port, rng, identity):
    path, call, _ = random_call(rng)
    name, value = rng.choice([("temperature", -1), ("top_p", 2), ("n", 0), ("n", 10**6), ("max_tokens", -1),
                              ("max_tokens", 10**9), ("max_tokens", "many"), ("stream", 7), ("stop", {"a": 1}),
                              ("logit_bias", {"x": 1}), ("structured_outputs", {"regex": "("}), ("seed", 2**70),
                              ("stop_token_ids", [10**7]), ("min_tokens", -1)])
    return 0, expect_status(port, message(path, {**call, name: value}, identity), {400})


def not_there(port, rng, identity):
    path, call, _ = random_call(rng)
    data, status = rng.choice([(message(path, {**call, "model": "nobody"}, identity), 404),
                               (message("/v1/nothing", call, identity), 404),
                               (message("/health", call, identity), 405)])
    return 0, expect_status(port, data, {status})


def too_large(port, rng, identity):
    size = (1 << 20) + rng.randint(1, 1 << 20)
    return 0, rng.choice([
        lambda: expect_status(port, message("/v1/completions", b"", identity, length=size), {413}),
        lambda: expect_status(port, message("/v1/completions", b" " * size, identity), {413}),
        lambda: expect_status(port, message("/v1/completions", b"{}", identity, b"X: " + b"y" * 20000 + b"\r\n"), {431}),
        lambda: expect_status(port, message("/" + "z" * 20000, b"{}", identity), {431})])()


def no_http(port, rng, identity):
    data = rng.choice([b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n", rng.randbytes(50) +
                       b"\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET x HTTP/1.1\r\nHost: a\r\n\r\n",
                       b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
                       b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"])
    wire = Wire(port)
    wire.send(data)
    wire.socket.shutdown(socket.SHUT_WR)
    while wire.more():  # an answer (405 where the head alone tells) or the end: both will do, but it must come
        pass
    if wire.unread and not wire.unread.startswith((b"HTTP/1.1 400", b"HTTP/1.1 405", b"HTTP/1.1 501")):
        raise Unexpected("%r of %r" % (wire.unread[:200], data))
    wire.close()
    return 0, None


def one_after_another(port, rng, identity):
    """Several requests on a connection, at once where the first does not stream."""
    calls = [random_call(rng, longest=4) for _ in range(2)]
    wire = Wire(port)
    wire.send(b"".join(message(path, call, "%s.%d" % (identity, i)) for i, (path, call, _) in enumerate(calls)) +
              b"GET /health HTTP/1.1\r\nHost: c\r\n\r\n")
    for _, call, outputs in calls:
        status, body = wire.answer()
        check(status, body, call, outputs)
    if wire.answer()[0] != 200:
        raise Unexpected("/health is not 200")
    wire.close()
    return [outputs for _, _, outputs in calls], 200


CLIENTS = [(whole_or_stream, 6), (hangs_up_at_random, 6), (cancels_a_stream, 4), (sends_slowly, 2), (sends_chunks, 2),
           (reads_slowly, 2), (malformed_body, 3), (bad_field, 3), (not_there, 1), (too_large, 2), (no_http, 2),
           (one_after_another, 2)]


LEAVERS = [(hangs_up_at_random, 1), (cancels_a_stream, 1)]


def random_client(rng, leaves=False):
    clients = LEAVERS if leaves else CLIENTS
    return rng.choices([client for client, _ in clients], [weight for _, weight in clients])[0]
