# `nodewright serve` as a black box: how it starts, whom it lets in, how it ends, and options that cannot be.
import glob
import json
import os
import signal
import socket
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from command import DEMO, RUN_TIME, USAGE, CommandTest, on_device, run
from serving import END_S, Answer, Server

LONG = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 300, "ignore_eos": True, "stream": True}


class Start(unittest.TestCase):
    def test_while_it_loads_it_is_healthy_and_not_ready_and_sigterm_ends_it_at_once(self):
        with tempfile.TemporaryDirectory() as empty, Server("--api-key", "k", "--uds", empty + "/socket", wait=False,
                                                            NODEWRIGHT_CACHE=empty, TMPDIR=empty) as server:
            # Kernels that nobody has compiled take seconds.
            self.assertEqual((200, 503), (server.get("/health").status, server.get("/ready").status))
            self.assertIn("vllm:num_requests_running", server.get("/metrics").body.decode())
            for answer in (server.call("POST", "/v1/completions", LONG, {"X-Api-Key": "k"}),
                           server.get("/v1/models", Authorization="Bearer k")):
                self.assertEqual((503, "ServiceUnavailableError"), (answer.status, answer.error["type"]))
                self.assertTrue(answer.headers["Retry-After"])
            server.until(lambda: glob.glob(empty + "/nodewright-kernel-*/kernels_src"))
            self.assertEqual(0, server.stop())
            self.assertNotIn("ready", "\n".join(filter(None, server.lines)))
            self.assertFalse(os.path.exists(server.path), "the socket's file is left")
            self.assertEqual([], glob.glob(empty + "/nodewright-kernel-*") + glob.glob(empty + "/cc*"))


class Key(unittest.TestCase):
    def test_a_key_a_socket_and_a_log(self):
        """One server: its parts are distinguished by their messages."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "nodewright.sock")
            with Server("--uds", path, "--access-log", "on", NODEWRIGHT_API_KEY="secret") as server:
                self.assertEqual(path, server.path)
                self.check_key(server)
                self.check_log(server)
                self.assertEqual(0, server.stop())
            self.assertFalse(os.path.exists(path), "the socket's file is left")

    def check_key(self, server):
        for headers, status in (({}, 401), ({"Authorization": "Bearer secre"}, 401), ({"Authorization": "secret"}, 401),
                                ({"X-Api-Key": "secretsecret"}, 401), ({"X-Api-Key": ""}, 401),
                                ({"Authorization": "Bearer secret"}, 200), ({"X-Api-Key": "secret"}, 200)):
            for path in ("/v1/models", "/version"):
                answer = server.get(path, **headers)
                self.assertEqual(status, answer.status, headers)
                if status == 401:
                    self.assertEqual(("AuthenticationError", 401), (answer.error["type"], answer.error["code"]))
            answer = server.call("POST", "/v1/completions", {**LONG, "max_tokens": 1}, headers)
            self.assertEqual(status, answer.status, headers)
        for path in ("/health", "/ready", "/metrics"):
            self.assertEqual(200, server.get(path).status)

    def check_log(self, server):
        server.call("POST", "/v1/completions", {**LONG, "max_tokens": 3}, {"X-Api-Key": "secret", "x-request-id": "log-1"})
        line = server.line(r"\S+Z unix POST /v1/completions 200 [\d.]+ ms .*id log-1$", 10)[0]
        self.assertIn("prompt 5 cached 0 completion 3", line)
        self.assertNotIn("secret", "\n".join(server.lines))


class Ends(unittest.TestCase):
    def test_signals_until_the_process_is_gone_leave_the_exit_code_as_it_is(self):
        for _ in range(4):  # the engine, the driver and what is static go last, in a few milliseconds
            with Server() as server:
                while server.process.poll() is None:
                    server.process.send_signal(signal.SIGTERM)
                self.assertEqual(0, server.process.returncode)

    def streaming(self, server, **more):
        """A stream of which the first event has come."""
        connection, response = server.begin("/v1/completions", **{**LONG, **more})
        self.addCleanup(connection.close)
        self.addCleanup(response.close)
        first = response.readline() + response.readline()
        self.assertRegex(first, rb"\Adata: \{[^\n]*\}\n\n\Z")
        return first, response

    def rest(self, first, response):
        answer = Answer(response)
        answer.body = first + answer.body
        return answer

    def test_sigterm_lets_a_stream_end_whole_and_takes_nothing_new(self):
        self.assert_drains_at(signal.SIGTERM)

    def test_a_terminal_that_goes_away_drains_as_well(self):
        before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup themselves
        self.addCleanup(signal.signal, signal.SIGHUP, before)
        self.assert_drains_at(signal.SIGHUP)

    def assert_drains_at(self, asked):
        with Server() as server:
            kept = server.connection()
            self.addCleanup(kept.close)
            server.call("GET", "/health", connection=kept)
            first, response = self.streaming(server)
            server.process.send_signal(asked)
            server.line(r"nodewright: draining 1 open outputs?$", END_S)
            for connection in (kept, None):
                answer = server.call("POST", "/v1/completions", {**LONG, "max_tokens": 1}, connection=connection)
                self.assertEqual((503, "ServiceUnavailableError"), (answer.status, answer.error["type"]))
                self.assertTrue(answer.headers["Retry-After"])
            self.assertEqual((503, 200), (server.get("/ready").status, server.get("/health").status))
            self.assertEqual(1, server.gauge("vllm:num_requests_running"))
            chunks = self.rest(first, response).chunks
            self.assertEqual((300, "length"), (len(chunks), chunks[-1]["choices"][0]["finish_reason"]))
            self.assertEqual(0, server.process.wait(timeout=END_S))

    def assert_aborted(self, server, first, response):
        data = self.rest(first, response).data
        self.assertEqual("[DONE]", data[-1])
        error = json.loads(data[-2])["error"]
        self.assertEqual(503, error["code"])
        self.assertLess(len(data), 900)
        self.assertEqual(0, server.process.wait(timeout=END_S))

    def test_a_second_signal_ends_a_stream_with_an_error(self):
        for signals in ((signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)):
            with Server() as server:
                first, response = self.streaming(server, max_tokens=1000)
                server.process.send_signal(signals[0])
                server.line(r"nodewright: draining ", END_S)
                server.process.send_signal(signals[1])
                self.assert_aborted(server, first, response)

    def test_without_patience_the_first_signal_does(self):
        with Server("--shutdown-timeout", "0") as server:
            first, response = self.streaming(server, max_tokens=1000)
            server.process.send_signal(signal.SIGTERM)
            self.assert_aborted(server, first, response)

    def test_under_nohup_a_terminal_that_goes_away_changes_nothing(self):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the server inherits it, as from nohup
        self.addCleanup(signal.signal, signal.SIGHUP, before)
        with Server() as server:
            server.process.send_signal(signal.SIGHUP)
            answer = server.completions(prompt="Once", max_tokens=2)
            self.assertEqual(200, answer.status, answer.body)
            self.assertEqual(0, server.stop())
            self.assertEqual(1, sum("draining" in line for line in server.lines if line is not None))


class Options(CommandTest):
    def assert_not_served(self, exit_code, named, *words):
        self.assert_refused(exit_code, named, *on_device("serve", DEMO, *words))

    def test_what_cannot_be_is_told_in_a_line(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            self.assert_not_served(RUN_TIME, ["127.0.0.1:" + port, "in use", "another port"], "--port", port)
            for words in (("--tp", "2", "--rank", "0", "--rendezvous", "127.0.0.1:" + port),
                          ("--kv-events-endpoint", "tcp://*:0", "--kv-events-replay-endpoint", "tcp://127.0.0.1:" + port)):
                done = run(*on_device("serve", DEMO, "--port", "0", *words))
                self.assertEqual(RUN_TIME, done.returncode, done.stderr)
                self.assertRegex(done.stderr.decode(), r"\nnodewright: cannot [^\n]+:%s[^\n]+ in use; [^\n]+\n\Z" % port)
        self.assert_not_served(USAGE, ["192.0.2.1:0"], "--host", "192.0.2.1", "--port", "0")
        self.assert_not_served(USAGE, ["no.such.host.invalid:8400"], "--host", "no.such.host.invalid", "--port", "8400")
        self.assert_not_served(USAGE, ["--port", "70000"], "--port", "70000")
        self.assert_not_served(USAGE, ["--max-requests", "0"], "--max-requests", "0")
        self.assert_not_served(USAGE, ["--io-threads"], "--io-threads", "99999999999")
        self.assert_not_served(USAGE, ["io_threads", "1000"], "--io-threads", "1000", "--port", "0")
        self.assert_not_served(USAGE, ["--shutdown-timeout", "-1"], "--shutdown-timeout", "-1")
        self.assert_not_served(USAGE, ["--access-log", "loud"], "--access-log", "loud")

    def test_a_key_that_was_given_is_a_key(self):
        for key in ("", " ", "a\nb", "two words", "k\u00e9"):
            self.assert_not_served(USAGE, ["--api-key"], "--api-key", key)
            os.environ["NODEWRIGHT_API_KEY"] = key
            self.addCleanup(os.environ.pop, "NODEWRIGHT_API_KEY", None)
            self.assert_not_served(USAGE, ["NODEWRIGHT_API_KEY"])

    def test_a_path_that_is_no_place_for_a_socket_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            here = os.path.join(folder, "file")
            open(here, "w").close()
            self.assert_not_served(USAGE, [here, "no socket"], "--uds", here)
            self.assert_not_served(USAGE, [folder + "/a/b"], "--uds", folder + "/a/b")
            self.assert_not_served(USAGE, ["a shorter path"], "--uds", folder + "/" + "a" * 200)
            self.assertTrue(os.path.exists(here))
            with socket.socket(socket.AF_UNIX) as taken:
                taken.bind(folder + "/socket")
                taken.listen()
                self.assert_not_served(RUN_TIME, [folder + "/socket", "listens there already"], "--uds", folder + "/socket")

    def test_a_folder_that_is_no_model_is_named_before_it_listens(self):
        self.assert_refused(USAGE, ["/nowhere"], "serve", "--model", "/nowhere", "--port", "0")


if __name__ == "__main__":
    unittest.main()
