# Chaos for `nodewright serve`:
#   chaos.py [--quick] [--requests N] [--rounds N] [--seed S] [--port P] [--log file|stalled|full|closed] [--disconnects]
# Random clients of chaos_clients.py at once, and then: every accepted output ended once, no page is owned, memory and
# descriptors are where they were, and a greedy answer is the same. Then SIGTERM under load, several times, and a driver
# that fails. --log: stderr is a pipe that nobody reads, a full disk or closed, and nothing else may change; --disconnects:
# every client leaves before its answer has ended.
#   NODEWRIGHT_PROGRAM      the program (default: build/nodewright)
#   NODEWRIGHT_TEST_DEVICE  cpu (default) or a GPU, as cuda:0; the driver that fails is the CPU's
import argparse
import collections
import json
import os
import queue
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from chaos_clients import Unexpected, Wire, check_whole, events_of, message, random_call, random_client

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.abspath(os.environ.get("NODEWRIGHT_PROGRAM", os.path.join(SOURCE, "build", "nodewright")))
DEVICE = os.environ.get("NODEWRIGHT_TEST_DEVICE", "cpu")
START_S = 600        # of a server that may compile its kernels
IDLE_S = 300         # until what was cancelled and has not ended is a fault
CLIENTS = 16         # at once
# What the second half may add to resident memory: the allocator's arenas differ by 2 MiB from run to run, and a leak of
# 1 KiB a request adds 5 MiB in 5000.
MOST_GROWTH_MIB = 4
GREEDY = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0, "return_token_ids": True}
ACCESS = re.compile(r" (\S+) (/\S*) (\d+) [\d.]+ ms( prompt \d+ cached \d+ completion (\d+))? id (\S+)$")


class Server:
    """The process, ready, and what it has logged."""

    def __init__(self, *words, device=None, log="file"):
        self.log = {"file": lambda: tempfile.TemporaryFile("w+"), "full": lambda: open("/dev/full", "w"),
                    "closed": lambda: None, "stalled": self.stalled_pipe}[log]()
        self.is_logged = log == "file"
        if not self.is_logged:
            with socket.socket() as probe:  # nobody reads the port that it would say
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
            words = (*words, "--port", str(self.port))
        self.process = subprocess.Popen(
            [*(("sh", "-c", 'exec "$0" "$@" >&- 2>&-') if log == "closed" else ()), PROGRAM, "serve", "--model", os.path.join(SOURCE, "models/demo"), "--device", device or DEVICE, "--max-body", "1",
             "--access-log", "on", *words], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        if not self.is_logged:
            return self.wait_until_ready()
        self.port = self.waited_for(r"listens", r":(\d+) listens")
        self.waited_for("ready", r"nodewright: ready: (.*)")

    def stalled_pipe(self):
        """One that is full from the start, and whose reader does not read."""
        self.reader, writer = os.pipe()
        os.set_blocking(writer, False)
        try:
            while os.write(writer, b"x" * 65536):
                pass
        except BlockingIOError:
            pass
        os.set_blocking(writer, True)
        return os.fdopen(writer, "w")

    def wait_until_ready(self):
        end = time.monotonic() + START_S
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if self.get("/ready")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.02)
        self.kill()
        raise SystemExit("chaos: the server is not ready: exit code %s" % self.process.returncode)

    def lines(self):
        if not self.is_logged:
            return []
        self.log.flush()
        return os.pread(self.log.fileno(), 1 << 30, 0).decode(errors="replace").splitlines()

    def waited_for(self, what, pattern):
        end = time.monotonic() + START_S
        while time.monotonic() < end and self.process.poll() is None:
            for line in self.lines():
                if found := re.search(pattern, line):
                    return int(found[1]) if found[1].isdigit() else found[1]
            time.sleep(0.02)
        raise SystemExit("chaos: the server did not say that it %s:\n%s" % (what, "\n".join(self.lines())))

    def get(self, path):
        wire = Wire(self.port)
        wire.send(b"GET %s HTTP/1.1\r\nHost: c\r\n\r\n" % path.encode())
        status, body = wire.answer()
        wire.close()
        return status, body.decode()

    def metrics(self):
        """Values by name, those of all labels added up."""
        sums = collections.Counter()
        for line in self.get("/metrics")[1].splitlines():
            if not line.startswith("#"):
                name, value = line.split("{")[0], float(line.rsplit(" ", 1)[1])
                sums[name] += value
        return sums

    def greedy_tokens(self):
        wire = Wire(self.port)
        wire.send(message("/v1/completions", GREEDY, "greedy"))
        status, body = wire.answer()
        wire.close()
        if status != 200:
            raise Unexpected("%d of a greedy request: %r" % (status, body))
        check_whole(body, 1)
        return json.loads(body)["choices"][0]["token_ids"]

    def descriptors(self):
        return len(os.listdir("/proc/%d/fd" % self.process.pid))

    def resident_mib(self):
        """Without the stacks of the CPU driver's fibers, whose pages come whenever one of its threads runs a larger
        block than before: the only memory that asks for no huge pages (nh)."""
        with open("/proc/%d/smaps" % self.process.pid) as file:
            mappings = re.findall(r"^Rss:\s+(\d+) kB\n(?:.*\n)*?VmFlags:(.*)", file.read(), re.MULTILINE)
        return sum(int(resident) for resident, flags in mappings if "nh" not in flags.split()) / 1024

    def wait_until_idle(self, descriptors):
        """Nothing runs, waits or is owned, and the clients' sockets are closed."""
        end = time.monotonic() + IDLE_S
        while time.monotonic() < end:
            metrics = self.metrics()
            held = {name: metrics["vllm:" + name] for name in
                    ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")}
            held["descriptors"] = max(0, self.descriptors() - descriptors)
            if not any(held.values()):
                return metrics
            time.sleep(0.05)
        raise Unexpected("held with no client: %s" % held)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Asked:
    """What clients asked for, by x-request-id: outputs, and the status that they read or None."""

    def __init__(self, leavers=False):
        self.lock, self.leavers = threading.Lock(), leavers
        self.calls, self.kinds, self.wrong = {}, collections.Counter(), []

    def note(self, kind, identity, outputs, status):
        with self.lock:
            self.kinds[kind] += 1
            for i, one in enumerate(outputs if isinstance(outputs, list) else [outputs]):
                self.calls["%s.%d" % (identity, i) if isinstance(outputs, list) else identity] = (one, status)


def run_clients(server, asked, seed, numbers):
    """Those of `numbers`, CLIENTS at a time. Each is the same in every run with this seed, but for its moments."""
    waiting = queue.SimpleQueue()
    for number in numbers:
        waiting.put(number)

    def work():
        while not asked.wrong:
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                return
            rng, identity = random.Random(seed * 1000003 + number), "c%d" % number
            client = random_client(rng, asked.leavers)
            try:
                asked.note(client.__name__, identity, *client(server.port, rng, identity))
            except Exception as error:  # the main thread tells it
                asked.wrong.append("client %d, %s: %s: %s" % (number, client.__name__, type(error).__name__, error))

    threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if asked.wrong:
        raise Unexpected("\n".join(asked.wrong))


def check_log(server, asked, ended):
    """Each call stands once in the access log, as its client saw it; their outputs are those that have ended."""
    told, accepted = collections.Counter(), 0
    for line in server.lines():
        found = ACCESS.search(line)
        if not found or found[6] == "greedy" or found[6] not in asked.calls:
            continue
        outputs, status = asked.calls[found[6]]
        told[found[6]] += 1
        if status not in (None, int(found[3])):
            raise Unexpected("the client read %s, and the log says: %s" % (status, line))
        if found[4]:
            accepted += outputs
            if found[3] not in ("200", "499"):
                raise Unexpected("an accepted call: %s" % line)
    twice = [name for name, count in told.items() if count > 1]
    missing = [name for name, (outputs, status) in asked.calls.items() if outputs and status and name not in told]
    if twice or missing:
        raise Unexpected("in the log twice: %s; missing: %s" % (twice, missing))
    if accepted != ended:
        raise Unexpected("%d outputs were accepted, and %d ended" % (accepted, ended))
    return accepted


def written_log(server, asked, ended):
    """check_log once the log is written, which a thread of the server does in its time."""
    end = time.monotonic() + IDLE_S
    while True:
        try:
            return check_log(server, asked, ended)
        except Unexpected:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def check_counts(asked, ended):
    """Without a log: what clients read to its end has ended, and no more than all that was asked for."""
    read = sum(outputs for outputs, status in asked.calls.values() if status == 200)
    most = sum(outputs for outputs, status in asked.calls.values() if status in (200, None))
    if not read <= ended <= most:
        raise Unexpected("%d outputs ended, of %d that were read whole and %d that were asked for" % (ended, read, most))
    return ended


def chaos(options):
    server = Server(*(("--port", str(options.port)) if options.log == "file" else ()), log=options.log)
    try:
        tokens = server.greedy_tokens()
        descriptors = server.descriptors()
        before = server.metrics()["vllm:request_success_total"]
        asked = Asked(options.disconnects)
        half = options.requests // 2
        resident = []
        begun = time.monotonic()
        for numbers in (range(half), range(half, options.requests)):
            run_clients(server, asked, options.seed, numbers)
            metrics = server.wait_until_idle(descriptors)
            resident.append(server.resident_mib())
        ended = metrics["vllm:request_success_total"] - before
        accepted = written_log(server, asked, ended) if server.is_logged else check_counts(asked, ended)
        if resident[1] - resident[0] > MOST_GROWTH_MIB:
            raise Unexpected("resident memory grew from %.1f to %.1f MiB in the second half" % tuple(resident))
        if server.greedy_tokens() != tokens:
            raise Unexpected("a greedy answer has changed: %s" % tokens)
        print("%d requests in %.0f s: %d outputs accepted and ended; resident %.1f and %.1f MiB; %s" % (
            options.requests, time.monotonic() - begun, accepted, *resident, dict(asked.kinds)))
        server.process.send_signal(signal.SIGTERM)
        if server.process.wait(IDLE_S) != 0:
            raise Unexpected("exit code %d" % server.process.returncode)
    finally:
        server.kill()


# --- SIGTERM under load -----------------------------------------------------------------------------------------------

def read_to_the_end(wire):
    """"whole", "error" or "closed", of a call's answer."""
    try:
        status, body = wire.answer()
    except (EOFError, ConnectionError):
        return "closed"
    if body.startswith(b"data: "):
        events = events_of(body)
        if events[-1] != b"[DONE]":
            raise Unexpected("a stream that ended without [DONE]: %r" % body[-300:])
        errors = sum(b'{"error":' in event for event in events)
        if errors > 1:
            raise Unexpected("a stream with %d errors: %r" % (errors, body[-600:]))
        return "error" if errors else "whole"
    if status != 200 and not json.loads(body)["error"]["message"]:
        raise Unexpected("%d without a message" % status)
    return "whole" if status == 200 else "error"


def end_under_load(options, number):
    """One server that gets SIGTERM while clients come and wait: patient, impatient (a timeout), or told twice."""
    rng = random.Random(options.seed * 7919 + number)
    way = ("patient", "impatient", "twice")[number % 3]
    server = Server("--port", str(options.port), "--shutdown-timeout", "1" if way == "impatient" else "60")
    ends, wrong, stop = collections.Counter(), [], threading.Event()

    def client(index):
        own = random.Random(number * 1009 + index)
        while not stop.is_set():
            path, call, _ = random_call(own, longest=20 if way == "patient" else 600)
            try:
                wire = Wire(server.port)
            except OSError:
                return
            try:
                wire.send(message(path, call, "t%d" % index))
                ends[read_to_the_end(wire)] += 1
            except Exception as error:  # the main thread tells it
                wrong.append("%s: %s" % (type(error).__name__, error))
                return
            finally:
                wire.close()

    threads = [threading.Thread(target=client, args=(i,)) for i in range(CLIENTS)]
    try:
        for thread in threads:
            thread.start()
        time.sleep(rng.uniform(0.1, 1))
        server.process.send_signal(signal.SIGTERM)
        if way == "twice":
            time.sleep(rng.uniform(0.05, 0.5))
            server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(IDLE_S)
        stop.set()
        for thread in threads:
            thread.join()
        lines = server.lines()
        if code != 0 or wrong:
            raise Unexpected("round %d, %s: exit code %d; %s\n%s" % (number, way, code, wrong, "\n".join(lines[-5:])))
        calls = [found for found in map(ACCESS.search, lines) if found and found[4]]
        cut = [found[0] for found in calls if way == "patient" and found[3] not in ("200", "503")]
        if cut:
            raise Unexpected("round %d: a patient server ended calls: %s" % (number, cut))
        if not calls:
            raise Unexpected("round %d, %s: no call was under way" % (number, way))
        return way, dict(ends)
    finally:
        stop.set()
        server.kill()


# --- A driver that fails ----------------------------------------------------------------------------------------------

def driver_fails(options):
    """No launch may take longer than a millisecond, and a long prompt's does: every call gets an error, exit code 1."""
    server = Server("--port", str(options.port), device="cpu:timeout_ms=1")
    try:
        wires = [Wire(server.port) for _ in range(6)]
        for index, wire in enumerate(wires):
            call = {"prompt": "cat dog " * 300, "max_tokens": 20, "n": 4, "ignore_eos": True, "stream": index % 2 == 0}
            wire.send(message("/v1/completions", call, "f%d" % index))
        ends = collections.Counter()
        for wire in wires:
            ends[read_to_the_end(wire)] += 1
            wire.close()
        code = server.process.wait(IDLE_S)
        lines = server.lines()
        told = sum("CUDA_ERROR_LAUNCH_TIMEOUT" in line for line in lines)
        if code != 1 or told != 1 or ends["whole"] or not ends["error"]:
            raise Unexpected("a driver that fails: exit code %d, %s\n%s" % (code, dict(ends), "\n".join(lines[-5:])))
        return dict(ends)
    finally:
        server.kill()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="500 requests and three ends")
    parser.add_argument("--requests", type=int)
    parser.add_argument("--rounds", type=int, help="servers that are ended under load")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", choices=("file", "stalled", "full", "closed"), default="file", help="what stderr is")
    parser.add_argument("--disconnects", action="store_true", help="every client leaves before its answer has ended")
    options = parser.parse_args()
    options.requests = options.requests if options.requests is not None else 500 if options.quick else 10000
    is_whole = options.log == "file" and not options.disconnects  # the ends are the same in each way
    options.rounds = options.rounds if options.rounds is not None else 3 if options.quick else 30
    options.rounds = options.rounds if is_whole else 0
    try:
        if options.requests:
            chaos(options)
        for number in range(options.rounds):
            print("ended under load, %s: %s" % end_under_load(options, number))
        if is_whole and DEVICE == "cpu":
            print("a driver that fails: %s" % driver_fails(options))
    except Unexpected as wrong:
        sys.exit("chaos, seed %d: %s" % (options.seed, wrong))


if __name__ == "__main__":
    main()
