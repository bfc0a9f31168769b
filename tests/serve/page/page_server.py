# A `nodewright serve` for the tests of its page, at a port of its own, and what it answers. Standard library only.
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "cli"))
from command import DEMO, PROGRAM, on_device  # noqa: E402

READY_S = 600  # a first start compiles the kernels, beside other tests


class PageServer:
    """Runs until the end of its `with`."""

    def __init__(self, *words, model=DEMO):
        self.words = (*on_device("serve", model), "--port", "0", *words)

    def __enter__(self):
        environment = {name: value for name, value in os.environ.items() if name != "NODEWRIGHT_API_KEY"}
        self.process = subprocess.Popen([PROGRAM, *self.words], stderr=subprocess.PIPE, text=True, env=environment)
        self.told = []
        for line in self.process.stderr:
            self.told.append(line)
            found = re.search(r"(http://\S+) listens", line)
            if found:
                self.address = found[1]
                break
        else:
            raise RuntimeError("serve did not listen: " + "".join(self.told))
        self.reader = threading.Thread(target=lambda: self.told.extend(self.process.stderr), daemon=True)
        self.reader.start()
        return self

    def __exit__(self, *error):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=600)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self.reader.join()
            self.process.stderr.close()

    def wait_ready(self):
        end = time.monotonic() + READY_S
        while self.get("/ready")[0] != 200:
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("serve did not get ready: " + "".join(self.told))
            time.sleep(0.05)
        return self

    def get(self, path, headers=None, method="GET"):
        """(status, headers, text)"""
        request = urllib.request.Request(self.address + path, headers=headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read().decode()

    def told_line(self, words):
        """The line of standard error with these words, or "" after ten seconds."""
        end = time.monotonic() + 300
        while not (found := [line for line in self.told if words in line]) and time.monotonic() < end:
            time.sleep(0.01)
        return found[0] if found else ""

    def live(self, headers=None):
        return json.loads(self.get("/live", headers)[2])

    def live_when(self, holds):
        """/live as soon as it `holds`, or after ten seconds as it is: its counters follow an answer by some milliseconds."""
        end = time.monotonic() + 300
        while not holds(live := self.live()) and time.monotonic() < end:
            time.sleep(0.01)
        return live

    def post(self, path, body, headers=None):
        request = urllib.request.Request(self.address + path, data=json.dumps(body).encode(), method="POST",
                                         headers={"Content-Type": "application/json", **(headers or {})})
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.loads(answer.read())


@contextlib.contextmanager
def model_without_template():
    """The demo model's folder, but for its chat template."""
    with tempfile.TemporaryDirectory() as folder:
        for name in os.listdir(DEMO):
            if name == "tokenizer_config.json":
                with open(os.path.join(DEMO, name)) as file:
                    config = json.load(file)
                config.pop("chat_template", None)
                with open(os.path.join(folder, name), "w") as file:
                    json.dump(config, file)
            elif name != "chat_template.jinja":
                os.symlink(os.path.join(DEMO, name), os.path.join(folder, name))
        yield folder
