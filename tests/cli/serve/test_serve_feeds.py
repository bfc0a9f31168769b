# `nodewright serve --timeline`, and the options of KV events: what a server tells of its engine beside metrics. The events
# themselves are read in tests/clients/check_kv_events.py. Standard library only.
import json
import os
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from command import DEMO, USAGE, CommandTest, on_device
from serving import END_S, Server

STORY = {"prompt": "Once upon a time", "temperature": 0, "ignore_eos": True}


def events_of(path, ended):
    """Of a timeline; one that has not ended lacks its last bracket, and no more."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert text.endswith("\n]\n") == ended, text[-100:]
    return json.loads(text if ended else text + "]")


class Timeline(CommandTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "timeline.json")

    def slices(self, events, process):
        names = {event["args"]["name"]: event["pid"] for event in events if event["name"] == "process_name"}
        return [event for event in events if event["ph"] == "X" and event["pid"] == names[process]]

    def check_tracks(self, events):
        """Slices of one track do not overlap; each has a known track."""
        tracks = {}
        for event in events:
            if event["ph"] == "X":
                tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
        for spans in tracks.values():
            spans.sort()
            for (_, end), (begin, _) in zip(spans, spans[1:]):
                self.assertLess(end - begin, 0.002)  # three digits
        named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
        self.assertEqual(set(tracks), named)

    def test_it_has_each_step_and_each_output(self):
        with Server("--timeline", self.path, "--max-batch", "2", "--speculate", "0") as server:
            begun = time.monotonic()
            self.assertEqual(200, server.completions(n=3, max_tokens=5, **STORY).status)
            self.assertEqual(200, server.completions(max_tokens=1, **STORY).status)
            took_us = (time.monotonic() - begun) * 1e6
            steps_seen = server.gauge("nodewright_graph_launches_total")
            self.assertEqual(0, server.stop())
        events = events_of(self.path, ended=True)
        self.check_tracks(events)
        steps = self.slices(events, "engine")
        self.assertEqual(steps_seen, len(steps))
        self.assertEqual(list(range(1, len(steps) + 1)), [step["args"]["step"] for step in steps])
        for step in steps:
            args = step["args"]
            self.assertEqual("graph %d" % args["bucket"], step["name"])
            self.assertEqual(args["rows"], args["prompt_tokens"] + args["decode_rows"])
            self.assertEqual(args["bucket"], args["rows"] + args["padding"])
            self.assertTrue(0 <= args["waiting"] <= 3 and 0 <= args["admitted"] <= 2, args)
        self.assertEqual(2, max(step["args"]["decode_rows"] for step in steps))
        self.assertEqual(2, steps[0]["args"]["waiting"])  # the others of the prompt, until it is computed
        self.assertTrue(0 < sum(step["dur"] for step in steps) < took_us)
        counters = [event["args"] for event in events if event["ph"] == "C"]
        self.assertEqual({"running": 0, "waiting": 0}, counters[-1])
        outputs = {}
        for slice in self.slices(events, "outputs"):
            outputs.setdefault(slice["args"]["request"], {})[slice["name"]] = slice
        self.assertEqual(4, len(outputs))
        for parts in outputs.values():
            self.assertEqual(["queued", "prefill", "decode"], list(parts))
            self.assertEqual(1, len({part["tid"] for part in parts.values()}))
            self.assertEqual((5, "length"), (parts["prefill"]["args"]["prompt_tokens"], parts["decode"]["args"]["end"]))
        self.assertEqual([1, 5, 5, 5], sorted(parts["decode"]["args"]["tokens"] for parts in outputs.values()))

        def end_of(request, part):
            return outputs[request][part]["ts"] + outputs[request][part]["dur"]
        # There are two rows: the third waited for the end of another.
        self.assertGreater(end_of(3, "queued") + 0.002, min(end_of(1, "decode"), end_of(2, "decode")))

    def test_it_is_whole_at_any_time(self):
        with Server("--timeline", self.path, "--max-batch", "1", "--speculate", "0") as server:
            self.assertEqual([], self.slices(events_of(self.path, ended=False), "engine"))
            connection, response = server.begin("/v1/completions", max_tokens=900, stream=True, **STORY)
            response.readline()
            server.until(lambda: len(self.slices(events_of(self.path, ended=False), "engine")) > 2)
            server.process.send_signal(signal.SIGTERM)
            server.line("nodewright: draining")
            server.process.send_signal(signal.SIGTERM)  # at once
            self.assertEqual(0, server.process.wait(timeout=END_S))
            response.close()
            connection.close()
        events = events_of(self.path, ended=True)
        self.check_tracks(events)
        self.assertEqual("cancelled", self.slices(events, "outputs")[-1]["args"]["end"])

    def test_a_killed_server_leaves_whole_events(self):
        with Server("--timeline", self.path) as server:
            self.assertEqual(200, server.completions(max_tokens=3, **STORY).status)
            time.sleep(1.1)
            self.assertEqual(200, server.completions(max_tokens=2, **STORY).status)
            server.process.kill()
            server.process.wait()
        self.assertLess(2, len(self.slices(events_of(self.path, ended=False), "engine")))


class Refusals(CommandTest):
    def refused(self, named, *words):
        message = self.assert_refused(USAGE, named, *on_device("serve", DEMO, "--port", "0", *words))
        self.assertNotIn("listens", message)

    def test_options_that_cannot_be_together(self):
        self.refused(["--no-prefix-cache", "--kv-events-endpoint"], "--kv-events-endpoint", "tcp://127.0.0.1:*",
                     "--no-prefix-cache")
        self.refused(["--kv-events-replay-endpoint", "--kv-events-endpoint"], "--kv-events-replay-endpoint", "tcp://*:5558")
        self.refused(["--kv-events-topic", "--kv-events-endpoint"], "--kv-events-topic", "kv@a@b")
        self.refused(["--timeline", "/no/such/folder"], "--timeline", "/no/such/folder/timeline.json")


if __name__ == "__main__":
    unittest.main()
