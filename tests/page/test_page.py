# The page of `nodewright graph --format html` without a browser: it is HTML whose tags close, it names nothing on a
# network, it carries the plan and the timings as --format json and --timings have them. Standard library only.
import html.parser
import json
import os
import re
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cli"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from command import DEMO, RUN_TIME, USAGE, CommandTest, golden_model, on_device, run  # noqa: E402
import synthetic  # noqa: E402

VOID = {"meta", "link", "input", "path", "circle", "br", "img"}
FETCHING = ("src", "href", "action", "data", "srcset", "poster", "background")


class Page(html.parser.HTMLParser):
    """What is wrong with a page, and the text of each script."""

    def __init__(self, text):
        super().__init__()
        self.open, self.faults, self.scripts, self.ids = [], [], [], []
        self.feed(text)
        self.close()
        self.faults += ["<%s> is not closed" % tag for tag in self.open]

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name in FETCHING and not (value or "").startswith("data:"):
                self.faults.append("<%s %s> fetches %s" % (tag, name, value))
            if name.startswith("on"):
                self.faults.append("<%s> has a handler %s" % (tag, name))
            if name == "id":
                self.ids.append(value)
        if tag == "script":
            self.scripts.append([dict(attributes).get("type", "text/javascript"), ""])

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append("</%s> closes nothing" % tag)

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1][1] += data
        if self.open and self.open[-1] == "style" and re.search(r"url\(|@import", data):
            self.faults.append("the style sheet fetches")


def faults_of(text):
    page = Page(text)
    faults = list(page.faults)
    if [kind for kind, _ in page.scripts] != ["application/json", "text/javascript"]:
        faults.append("scripts: %s" % [kind for kind, _ in page.scripts])
    if len(set(page.ids)) != len(page.ids):
        faults.append("an id is there twice")
    addresses = set(re.findall(r"\w+://[^\s\"'<>]*", text)) - {"http://www.w3.org/2000/svg"}
    faults += ["names %s" % address for address in sorted(addresses)]
    if "default-src 'none'" not in text:
        faults.append("no policy against fetching")
    return faults


class PageTest(CommandTest):
    @classmethod
    def setUpClass(cls):
        words = on_device("graph", DEMO, "--format")
        cls.page = cls().succeed(*words, "html")
        cls.plan = json.loads(cls().succeed(*words, "json"))

    def test_the_page_is_html_that_fetches_nothing(self):
        self.assertEqual([], faults_of(self.page))
        self.assertTrue(self.page.startswith("<!doctype html>"))

    def test_the_page_carries_the_plan_as_json_has_it(self):
        data = synthetic.data_of(self.page)
        self.assertEqual(self.plan, data["plan"])
        self.assertIsNone(data["plan"]["timings"])
        self.assertEqual([{"first": 2, "count": 5, "times": 4}], data["plan"]["folds"]["runs"])
        self.assertEqual(data, json.loads(Page(self.page).scripts[0][1]))

    def test_the_page_carries_the_timings_of_this_plan_alone(self):
        timings = synthetic.timings_of(self.plan)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "t.json")
            with open(path, "w") as file:
                json.dump(timings, file)
            page = self.succeed(*on_device("graph", DEMO, "--format", "html", "--timings", path))
            other = golden_model("odd_sizes")
            self.assert_refused(RUN_TIME, ["t.json", "node 12 is 'l2.qkv' there and 'logits'"],
                                *on_device("graph", other, "--format", "html", "--timings", path))
            self.assert_refused(RUN_TIME, ["t.json", "'decode.b1' (%s), not of 'decode.b2' (" % self.plan["hash"]],
                                *on_device("graph", DEMO, "--format", "html", "--timings", path, "--bucket", "2"))
            for words in (("--edges", "serial"), ("--max-context", "512"), ("--numerics", "invariant")):
                self.assert_refused(RUN_TIME, ["t.json", "'decode.b1' with hash %s" % self.plan["hash"], "has hash"],
                                    *on_device("graph", DEMO, "--format", "html", "--timings", path, *words))
            in_json = json.loads(self.succeed(*on_device("graph", DEMO, "--format", "json", "--timings", path)))
            self.assert_refused(USAGE, ["--format html"], *on_device("graph", DEMO, "--timings", path))
            self.assert_refused(USAGE, [folder, "folder"],
                                *on_device("graph", DEMO, "--format", "html", "--timings", folder))
            self.assert_refused(USAGE, ["none.json", "there is no file"],
                                *on_device("graph", DEMO, "--format", "html", "--timings", "none.json"))
        found = synthetic.data_of(page)["plan"]["timings"]
        self.assertEqual(in_json["timings"], found)
        self.assertEqual([node["id"] for node in self.plan["nodes"]], found["critical_path"])
        self.assertEqual([], faults_of(page))
        self.assertEqual(timings["step_us"], found["step_us"])
        self.assertEqual([one["time_us"] for one in timings["nodes"]], [one["time_us"] for one in found["nodes"]])

    def test_the_head_names_model_context_edges_tuning_and_commit(self):
        words = ("--edges", "full", "--max-context", "512", "--tuning", "none", "--commit", "abc123")
        plan = json.loads(self.succeed(*on_device("graph", DEMO, "--format", "json", *words)))
        self.assertEqual({"model": "demo", "context": "512", "edges": "full", "numerics": "fast",
                          "tuning": "none, as --tuning says", "commit": "abc123"}, plan["about"])

    def test_buffers_have_lifetimes_and_the_plan_its_peak(self):
        last = len(self.plan["nodes"]) - 1
        needed = {buffer["name"]: buffer["needed"] for buffer in self.plan["buffers"]}
        self.assertEqual([0, last], needed["kv.l0"])
        self.assertEqual([0, last - 1], needed["embedding"])  # the logits are its products
        self.assertEqual("logits", self.plan["nodes"][needed["logits"][0]]["name"])
        held = [sum(buffer["bytes"] for buffer in self.plan["buffers"]
                    if buffer["needed"][0] <= node <= buffer["needed"][1]) for node in range(last + 1)]
        self.assertEqual({"bytes": max(held), "node": held.index(max(held))}, self.plan["peak"])

    def test_text_is_folded_unless_all_of_it_is_asked_for(self):
        folded, full = (self.succeed(*on_device("graph", DEMO, *words)) for words in ((), ("--full",)))
        self.assertRegex(folded, r"(?m)^3 × same block: l1 \.\. l3 \| nodes 7 to 21 \|")
        self.assertNotRegex(folded, r"(?m)^node 7 ")
        self.assertNotIn("same block", full)
        for bucket in ("2", "8", "16", "17", "32", "64"):  # the last layer hands its rows to another gain
            self.assertRegex(self.succeed(*on_device("graph", DEMO, "--bucket", bucket)), r"(?m)^\d × same block: l[12] ")
        self.assertEqual(len(self.plan["nodes"]), len(re.findall(r"(?m)^node ", full)))
        self.assertEqual(len(self.plan["nodes"]) - 15, len(re.findall(r"(?m)^node ", folded)))

    def test_a_built_graph_is_verified(self):
        counts = "verified: %d nodes, %d edges\n" % (len(self.plan["nodes"]), len(self.plan["edges"]))
        self.assertEqual(counts, self.succeed(*on_device("graph", DEMO, "--verify")))
        for edges in ("full", "serial"):
            self.assertRegex(self.succeed(*on_device("graph", DEMO, "--verify", "--edges", edges)), r"\Averified: ")

    def test_two_plans_are_compared(self):
        with tempfile.TemporaryDirectory() as folder:
            names = {}
            for name, words in (("one", ()), ("again", ("--commit", "abc")), ("eight", ("--bucket", "8")),
                                ("captured", ("--mode", "captured")), ("serial", ("--edges", "serial"))):
                names[name] = os.path.join(folder, name + ".json")
                self.succeed(*on_device("graph", DEMO, "--format", "json", "--out", names[name], *words))
            same = self.succeed("graph", "--diff", names["one"], names["again"])
            self.assertIn("about\n  ~ commit: none -> abc\n", same)
            self.assertTrue(same.endswith("the plans are the same\n"), same)

            text = self.differ("graph", "--diff", names["one"], names["eight"])
            self.assertIn("~ bucket: 1 -> 8\n", text)
            self.assertRegex(text, r"(?m)^  ~ \*\.attend: grid 1×2×1 -> 1×2×8; .* \| 4 layers: l0 \.\. l3$")
            self.assertRegex(text, r"(?m)^  \+ gained: \d+ B activation$")
            found = json.loads(self.differ("graph", "--diff", names["one"], names["eight"], "--format", "json"))
            self.assertFalse(found["equal"])
            page = self.differ("graph", "--diff", names["one"], names["eight"], "--format", "html")
            self.assertEqual([], faults_of(page))
            data = synthetic.data_of(page)
            self.assertEqual(found, data["diff"])
            with open(names["one"]) as one, open(names["eight"]) as eight:
                self.assertEqual([json.load(one), json.load(eight)], [data["before"], data["plan"]])

            captured = self.differ("graph", "--diff", names["one"], names["captured"])
            self.assertRegex(captured, r"(?m)^  ~ edges: as captured|edges: programmatic -> as captured$")
            self.assertIn("reasons RAW", captured)
            self.assertNotIn("\nnodes\n", captured)
            self.assertIn("type programmatic -> full", self.differ("graph", "--diff", names["one"], names["serial"]))

            broken = os.path.join(folder, "broken.json")
            with open(broken, "w") as file:
                file.write("{}")
            self.assert_refused(USAGE, ["broken.json", "no text \"name\""], "graph", "--diff", names["one"], broken)
            self.assert_refused(USAGE, ["none.json"], "graph", "--diff", names["one"], "none.json")
            self.assert_refused(USAGE, ["--format dot"], "graph", "--diff", names["one"], names["one"], "--format", "dot")
            self.assert_refused(USAGE, ["--diff", "--model"], "graph", "--diff", names["one"], names["one"],
                                "--model", DEMO)
            self.assert_refused(USAGE, ["--model"], "graph")

    def test_a_dump_is_shown_again(self):
        with tempfile.TemporaryDirectory() as folder:
            dump = os.path.join(folder, "demo.json")
            self.succeed(*on_device("graph", DEMO, "--format", "json", "--out", dump))
            for words in ((), ("--full",), ("--format", "dot"), ("--format", "json")):
                self.assertEqual(self.succeed(*on_device("graph", DEMO, *words)),
                                 self.succeed("graph", "--read", dump, *words), words)
            page = self.succeed("graph", "--read", dump, "--format", "html")
            self.assertEqual([], faults_of(page))
            with open(dump) as file:
                self.assertEqual(json.load(file), synthetic.data_of(page)["plan"])
            broken = os.path.join(folder, "broken.json")
            with open(dump) as whole, open(broken, "w") as file:
                file.write(whole.read().replace('"kind": "kernel"', '"kind": "colonel"'))
            self.assert_refused(USAGE, ["broken.json", "'colonel' means nothing"], "graph", "--read", broken)
            self.assert_refused(USAGE, ["--read", "--model"], "graph", "--read", dump, "--model", DEMO)

    def differ(self, *words):
        """Standard output of a comparison that finds a difference."""
        done = run(*words)
        self.assertEqual((1, b""), (done.returncode, done.stderr), words)
        return done.stdout.decode()

    def test_each_fault_of_a_page_is_found(self):
        for planted, words in (("<img src='https://example.org/x.png'>", "fetches https"), ("<div>", "is not closed"),
                               ("</p>", "closes nothing"), ("<script>1</script>", "scripts"),
                               ("<b onclick='f()'></b>", "handler"), ("<style>@import 'x'</style>", "style sheet"),
                               ("<i id='rows'></i>", "twice"), ("<!-- https://example.org -->", "https://example.org")):
            faults = faults_of(self.page.replace("<noscript>", planted + "<noscript>"))
            self.assertTrue(any(words in fault for fault in faults), (planted, faults))
        self.assertIn("no policy against fetching", faults_of(self.page.replace("default-src", "x")))


if __name__ == "__main__":
    unittest.main()
