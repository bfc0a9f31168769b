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
from command import DEMO, RUN_TIME, USAGE, CommandTest, golden_model, on_device  # noqa: E402
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
        self.assertIsNone(data["timings"])
        self.assertEqual([{"first": 2, "count": 5, "times": 4}], data["folds"]["runs"])
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
            self.assert_refused(RUN_TIME, ["t.json", "'decode.b1', not of 'decode.b2'"],
                                *on_device("graph", DEMO, "--format", "html", "--timings", path, "--bucket", "2"))
            self.assert_refused(USAGE, ["--format html"], *on_device("graph", DEMO, "--timings", path))
            self.assert_refused(USAGE, [folder, "folder"],
                                *on_device("graph", DEMO, "--format", "html", "--timings", folder))
            self.assert_refused(USAGE, ["none.json", "there is no file"],
                                *on_device("graph", DEMO, "--format", "html", "--timings", "none.json"))
        found = synthetic.data_of(page)["timings"]
        self.assertEqual([], faults_of(page))
        self.assertEqual(timings["step_us"], found["step_us"])
        self.assertEqual([one["time_us"] for one in timings["nodes"]], [one["time_us"] for one in found["nodes"]])

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
