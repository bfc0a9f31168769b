# `nodewright serve` under what strangers and the machine do to it: a standard error that is closed, full or read by
# nobody, more connections than descriptors, and bodies of clients without a key.
import contextlib
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from command import DEMO, PROGRAM, on_device
from serving import END_S, START_S, Server

GREEDY = {"prompt": "Once upon a time", "max_tokens": 3, "temperature": 0}


class Quiet(Server):
    """A server on a Unix socket whose standard error is the caller's: nothing is read of it."""

    def __init__(self, folder, *words, **popen):
        self.path = os.path.join(folder, "socket")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self.process = subprocess.Popen([PROGRAM, *on_device("serve", DEMO, "--uds", self.path, *words)],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **popen)
        end = time.monotonic() + START_S
        while self.ready() != 200:
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                raise AssertionError("it is not ready: exit %s" % self.process.poll())
            time.sleep(0.05)

    def ready(self):
        try:
            return self.get("/ready").status
        except OSError:
            return 0

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


class StandardError(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def assert_serves_and_ends(self, server):
        for fields in (GREEDY, {**GREEDY, "stream": True}):
            self.assertEqual(200, server.completions(**fields).status)
        self.assertEqual(404, server.get("/nowhere").status)
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(0, server.process.wait(END_S))

    def test_closed_it_takes_no_line_and_no_socket_gets_its_number(self):
        with Quiet(self.folder, "--access-log", "on", preexec_fn=lambda: os.close(2)) as server:
            self.assertEqual("/dev/null", os.readlink("/proc/%d/fd/2" % server.process.pid))
            self.assert_serves_and_ends(server)

    def test_on_a_full_disk(self):
        with open("/dev/full", "wb") as full, Quiet(self.folder, "--access-log", "on", stderr=full) as server:
            self.assertGreater(server.gauge("nodewright_log_lines_dropped_total"), 0)
            self.assert_serves_and_ends(server)

    def test_a_pipe_whose_reader_is_gone(self):
        read, write = os.pipe()
        with Quiet(self.folder, "--access-log", "on", stderr=write) as server:
            os.close(write)
            os.close(read)
            self.assert_serves_and_ends(server)

    def stalled(self, *words):
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        server = Quiet(self.folder, *words, stderr=write)
        os.close(write)
        return read, server

    def flood(self, server):
        """More lines than the pipe and the queue hold."""
        connection = server.connection()
        self.addCleanup(connection.close)
        for _ in range(6000):
            self.assertEqual(200, server.call("GET", "/health", headers={"x-request-id": "i" * 256},
                                              connection=connection).status)

    def test_a_pipe_that_nobody_reads_loses_lines_and_nothing_else(self):
        _, server = self.stalled("--access-log", "on")
        with server:
            self.flood(server)
            self.assertGreater(server.gauge("nodewright_log_lines_dropped_total"), 0)
            self.assert_serves_and_ends(server)

    def test_a_reader_that_comes_late_is_told_how_many_are_missing(self):
        read, server = self.stalled("--access-log", "on")
        with server:
            self.flood(server)
            text = b""
            while not re.search(rb"\n\d+ lines are missing before this one", text):
                piece = os.read(read, 1 << 16)
                self.assertTrue(piece, text[-300:])
                text += piece
            server.process.send_signal(signal.SIGTERM)
            drain = threading.Thread(target=lambda: list(iter(lambda: os.read(read, 1 << 16), b"")))
            drain.start()
            self.assertEqual(0, server.process.wait(END_S))
            drain.join()

    def test_lines_of_the_access_log_are_short_and_plain(self):
        with Server("--access-log", "on") as server:
            for path in (b"/\xc2\x9b31mred\xe2\x80\xa8x", b"/\x9b31m", b"/" + b"A" * 15000):
                with socket.create_connection((server.host, server.port)) as client:
                    client.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: a\r\n\r\n")
                    client.recv(100)
            server.get("/health", **{"x-request-id": "last"})
            server.line(r".* id last$", END_S)
            lines = [line for line in server.lines if line]
            self.assertTrue(any(r"\x9b31mred\u{2028}x" in line for line in lines), lines[-5:])
            self.assertLess(max(map(len, lines)), 1200)
            self.assertFalse([line for line in lines if re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\ufffd]", line)])


class Connections(unittest.TestCase):
    def test_idle_ones_make_room_where_descriptors_are_few(self):
        with tempfile.TemporaryDirectory() as folder, \
             Quiet(folder, stderr=subprocess.DEVNULL,
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))) as server:
            idle = []
            for _ in range(200):
                idle.append(socket.socket(socket.AF_UNIX))
                self.addCleanup(idle[-1].close)
                idle[-1].connect(server.path)
            for _ in range(5):
                self.assertEqual(200, server.get("/health").status)
                self.assertEqual(200, server.completions(**GREEDY).status)

    def test_the_soft_limit_of_descriptors_is_raised(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard == resource.RLIM_INFINITY or hard > 1 << 20:
            hard = 1 << 20
        with tempfile.TemporaryDirectory() as folder, \
             Quiet(folder, stderr=subprocess.DEVNULL,
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))) as server:
            limits = open("/proc/%d/limits" % server.process.pid).read()
            self.assertEqual(str(hard), re.search(r"Max open files +(\d+)", limits)[1])


class Bodies(unittest.TestCase):
    def mib(self, server, name):
        with open("/proc/%d/status" % server.process.pid) as status:
            return int(re.search(name + r":\s+(\d+)", status.read())[1]) / 1024

    def peak_mib(self, server):
        return self.mib(server, "VmHWM")

    def test_the_memory_of_a_large_one_is_given_back(self):
        with Server() as server:
            self.assertEqual(200, server.completions(**GREEDY).status)
            before = self.mib(server, "VmRSS")
            for _ in range(3):
                self.assertEqual(400, server.completions(prompt="a", suppress_tokens=[1] * 8_000_000).status)
            end = time.monotonic() + END_S  # the answer may come first
            while self.mib(server, "VmRSS") - before > 40 and time.monotonic() < end:
                time.sleep(0.05)
            self.assertLess(self.mib(server, "VmRSS") - before, 40)

    def test_those_of_clients_without_a_key_are_not_kept(self):
        with Server("--api-key", "secret") as server:
            before = self.peak_mib(server)
            answers = []

            def send():
                with socket.create_connection((server.host, server.port), timeout=END_S) as client:
                    client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                                   b"Content-Length: %d\r\n\r\n" % (31 << 20))
                    with contextlib.suppress(OSError):
                        for _ in range(31):
                            client.sendall(b" " * (1 << 20))
                    with contextlib.suppress(OSError):
                        answers.append(client.recv(100)[9:12])

            threads = [threading.Thread(target=send) for _ in range(24)]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
            self.assertLess(self.peak_mib(server) - before, 20)
            self.assertLessEqual(set(answers), {b"401"})
            self.assertEqual(401, server.completions(**GREEDY).status)
            self.assertEqual(200, server.call("POST", "/v1/completions", GREEDY, {"X-Api-Key": "secret"}).status)

    def test_a_client_that_sends_no_more_is_answered(self):
        with Server() as server:
            body = b'{"prompt": "Once", "max_tokens": 5}'
            with socket.create_connection((server.host, server.port), timeout=END_S) as client:
                client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                               b"Content-Length: %d\r\n\r\n" % len(body) + body)
                client.shutdown(socket.SHUT_WR)
                text = b"".join(iter(lambda: client.recv(65536), b""))
            self.assertIn(b"HTTP/1.1 200 OK", text)
            self.assertIn(b'"finish_reason":"length"', text)


if __name__ == "__main__":
    unittest.main()
