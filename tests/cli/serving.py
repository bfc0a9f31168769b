# A server of the program under test on a port of its own, and what a client may ask of it over HTTP.
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

from command import DEMO, PROGRAM, on_device

START_S = END_S = 600  # until a start or an end that hangs fails its test; none that passes waits for it
EVENTS = re.compile(rb"(?:data: [^\n\r]+\n\n)+")


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]

    @property
    def data(self):
        """The data of each event of a stream, which must be framed by these bytes and no others: no comment, no ping."""
        assert self.status == 200, (self.status, self.body)
        assert self.headers["Content-Type"].split(";")[0] == "text/event-stream", self.headers
        assert EVENTS.fullmatch(self.body), self.body
        return [event[len(b"data: "):].decode() for event in self.body.split(b"\n\n")[:-1]]

    @property
    def chunks(self):
        """The events as JSON; the last must be [DONE]."""
        data = self.data
        assert data[-1] == "[DONE]" and data.count("[DONE]") == 1, data
        return [json.loads(one) for one in data[:-1]]


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=END_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Server:
    """The process, which listens. With `wait`, it is ready, too. Use with `with`: it is killed at the end."""

    def __init__(self, *words, model=DEMO, wait=True, **environment):
        self.folder = tempfile.TemporaryDirectory()
        place = () if "--uds" in words else ("--port", "0")
        self.process = subprocess.Popen([PROGRAM, *on_device("serve", model, *place, *words)], cwd=self.folder.name,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env={**os.environ, **environment})
        self.lines, self.news = [], threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        try:
            address = self.line(r"nodewright: (\S+) listens, and loads ")[1]
            self.path = None if address.startswith("http://") else address
            if self.path is None:
                self.host, port = address[len("http://"):].rsplit(":", 1)
                self.port = int(port)
            if wait:
                self.line(r"nodewright: ready: ")
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        self.folder.cleanup()

    def _read(self):
        for line in self.process.stderr:
            with self.news:
                self.lines.append(line.decode(errors="replace").rstrip("\n"))
                self.news.notify_all()
        with self.news:
            self.lines.append(None)
            self.news.notify_all()

    def line(self, pattern, timeout_s=START_S):
        """The match of the first line of stderr that begins so, as soon as it is there."""
        def found():
            return next((m for m in (re.match(pattern, line) for line in self.lines if line is not None) if m), None)
        with self.news:
            self.news.wait_for(lambda: found() or None in self.lines, timeout_s)
            assert found(), "no line %r: %r" % (pattern, self.lines)
            return found()

    def connection(self):
        if self.path is not None:
            return UnixConnection(self.path)
        return http.client.HTTPConnection(self.host, self.port, timeout=END_S)

    def call(self, method, path, body=None, headers=None, connection=None):
        """`body`: bytes as they are, anything else as JSON."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        own = connection is None
        connection = connection or self.connection()
        try:
            connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
            return Answer(connection.getresponse())
        finally:
            if own:
                connection.close()

    def get(self, path, **headers):
        return self.call("GET", path, headers=headers)

    def completions(self, **fields):
        return self.call("POST", "/v1/completions", fields)

    def chat(self, **fields):
        return self.call("POST", "/v1/chat/completions", fields)

    def begin(self, path, **fields):
        """A call whose answer has begun: its connection and response."""
        connection = self.connection()
        connection.request("POST", path, json.dumps(fields), {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def gauge(self, name):
        """Of /metrics, whatever its labels; the sum, where there are several."""
        values = re.findall(r"(?m)^%s(?:\{[^}]*\})? (\S+)$" % re.escape(name), self.get("/metrics").body.decode())
        assert values, name
        return sum(map(float, values))

    def until(self, is_so, timeout_s=END_S):
        limit = time.monotonic() + timeout_s
        while not is_so():
            assert time.monotonic() < limit, "it never came to be"
            time.sleep(0.02)

    def stop(self):
        """SIGTERM: the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=END_S)
