# The page of `nodewright serve` without a browser: its files come with their types and a policy that lets nothing else
# in, they name nothing on a network, /live counts what was asked for, /plan is the page of a bucket's plan. Standard
# library only.
import html.parser
import json
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from page_server import PageServer, model_without_template  # noqa: E402

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".svg": "image/svg+xml"}
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "serve", "page", "site")
FILES = sorted(name for name in os.listdir(FOLDER) if os.path.splitext(name)[1] in TYPES)
XML = "http://www.w3.org/2000/svg"  # a name, which nobody fetches
VOID = {"meta", "link", "input"}
KEY = {"Authorization": "Bearer secret"}


class Page(html.parser.HTMLParser):
    """What is wrong with the page, and what it refers to."""

    def __init__(self, text):
        super().__init__()
        self.open, self.faults, self.paths, self.ids, self.labelled, self.inputs = [], [], [], set(), set(), set()
        self.feed(text)
        self.close()
        self.faults += ["<%s> is not closed" % tag for tag in self.open]
        self.faults += ["no label for " + name for name in sorted(self.inputs - self.labelled)]
        self.faults += ["nothing is called " + name for name in sorted(self.labelled - self.ids)]

    def handle_starttag(self, tag, attributes):
        names = dict(attributes)
        if tag not in VOID:
            self.open.append(tag)
        self.paths += [names[name] for name in ("src", "href") if name in names]
        self.faults += ["<%s> has a handler %s" % (tag, name) for name in names if name.startswith("on")]
        self.faults += ["<%s> has a style" % tag for name in names if name == "style"]
        if names.get("id") in self.ids:
            self.faults.append("two are called " + names["id"])
        if "id" in names:
            self.ids.add(names["id"])
        if tag == "label":
            self.labelled.add(names["for"])
        if tag in ("input", "textarea"):
            self.inputs.add(names.get("id", "?"))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append("</%s> closes nothing" % tag)

    def handle_data(self, data):
        if self.open and self.open[-1] in ("script", "style") and data.strip():
            self.faults.append("text inside <%s>" % self.open[-1])


def faults_of_file(name, text):
    """What the policy forbids or a network would be needed for."""
    found = ["%s names %s" % (name, url) for url in re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]{2,}[^\s\"')]*", text)
             if url != XML]
    words = r"\beval\(|new Function|innerHTML|outerHTML|insertAdjacentHTML|document\.write|@import|url\("
    return found + ["%s has %s" % (name, word) for word in re.findall(words, text)]


class ServePage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(PageServer("--max-context", "256"))
        cls.server.wait_ready()

    def test_every_file_has_its_type_and_the_policy(self):
        for path, name in [("/", "page.html"), *(("/" + name, name) for name in FILES)]:
            status, headers, text = self.server.get(path)
            self.assertEqual((200, TYPES[os.path.splitext(name)[1]]), (status, headers["Content-Type"]), path)
            policy = headers["Content-Security-Policy"].split("; ")
            self.assertIn("default-src 'self'", policy)
            self.assertNotIn("unsafe", " ".join(policy))
            self.assertEqual("nosniff", headers["X-Content-Type-Options"])
            with open(os.path.join(FOLDER, name)) as file:
                self.assertEqual(file.read(), text, path)

    def test_nothing_on_a_network_is_named_and_nothing_is_evaluated(self):
        for name in FILES:
            self.assertEqual([], faults_of_file(name, self.server.get("/" + name)[2]))
        self.assertEqual(["x.js names https://cdn.example.org/a.js", "x.js has innerHTML"],
                         faults_of_file("x.js", "import 'https://cdn.example.org/a.js'; e.innerHTML = t"))

    def test_the_page_is_whole_and_refers_to_files_that_are_there(self):
        page = Page(self.server.get("/")[2])
        self.assertEqual([], page.faults)
        self.assertEqual({"/icon.svg", "/page.css", "/turns.css", "/start.js"}, set(page.paths))
        scripts = "\n".join(self.server.get("/" + name)[2] for name in FILES if name.endswith(".js"))
        for wanted in re.findall(r'(?:getElementById|by_id|field)\("([\w-]+)"\)', scripts):
            self.assertIn(wanted, page.ids)
        for module in re.findall(r'from "\./([\w.]+)"', scripts):
            self.assertIn(module, FILES)
        bad = Page('<p id="a" onclick="x()"><label for="b"></label><input id="a"><script>1</script>')
        self.assertEqual(6, len(bad.faults), bad.faults)

    def test_only_get_and_head_are_taken(self):
        self.assertEqual((405, "GET"), (lambda a: (a[0], a[1]["Allow"]))(self.server.get("/page.css", method="DELETE")))
        self.assertEqual((200, ""), (lambda a: (a[0], a[2]))(self.server.get("/page.css", method="HEAD")))
        self.assertEqual(404, self.server.get("/../serve/page/page.css")[0])
        self.assertEqual(404, self.server.get("/page_files.h")[0])

    def test_live_counts_what_was_asked_for(self):
        before = self.server.live_when(lambda live: live["requests"]["running"] == 0)
        self.assertEqual(("ready", 0, 0), (before["state"], before["requests"]["running"], before["requests"]["waiting"]))
        self.server.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 20, "ignore_eos": True})
        after = self.server.live_when(lambda live: live["requests"]["running"] == 0 and
                                      live["tokens"]["generated"] >= before["tokens"]["generated"] + 20)
        self.assertEqual(20, after["tokens"]["generated"] - before["tokens"]["generated"])
        self.assertLess(before["seconds"], after["seconds"])
        self.assertEqual(1, after["requests"]["ended"]["length"] - before["requests"]["ended"]["length"])
        self.assertEqual(19, after["recent"]["between_tokens"]["count"] - before["recent"]["between_tokens"]["count"])
        times = after["recent"]["between_tokens"]
        self.assertTrue(0 < times["median_ms"] <= times["p99_ms"], times)
        launches = after["graphs"]["launches"]
        self.assertTrue(launches)
        for launch in launches:
            self.assertEqual("explicit", launch["form"])
            self.assertLessEqual(launch["rows"], launch["bucket"] * launch["steps"])
        padded = sum(launch["bucket"] * launch["steps"] - launch["rows"] for launch in launches)
        self.assertEqual(padded, after["graphs"]["padded_rows"])
        self.assertLessEqual({launch["bucket"] for launch in launches}, set(after["graphs"]["buckets"]))
        self.assertEqual(({"name": "demo", "context": 256, "rows": 8, "chat": True, "tokenizer": True}),
                         {name: after["model"][name] for name in ("name", "context", "rows", "chat", "tokenizer")})
        self.assertLess(0, after["pages"]["all"])

    def test_the_ready_line_says_where_the_page_is(self):
        self.assertIn("; open %s/ in a browser" % self.server.address, self.server.told_line("nodewright: ready: "))

    def test_live_says_what_a_call_gets_that_does_not_say(self):
        defaults = self.server.live()["model"]["defaults"]
        self.assertEqual({"temperature", "top_p", "top_k", "min_p", "seed"}, set(defaults))
        self.assertIsNone(defaults["seed"])
        body = {"prompt": "Once upon a time", "max_tokens": 20, "seed": 3}
        said = {name: value for name, value in defaults.items() if name != "seed"}
        silent, told = (self.server.post("/v1/completions", {**body, **more})["choices"][0]["text"] for more in ({}, said))
        self.assertEqual(silent, told)

    def test_live_tells_what_the_prefix_cache_found(self):
        prompt = list(range(5, 205))  # three whole pages
        for found in (0, 192):
            before = self.server.live()["prefix_cache"]
            self.server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1})
            after = self.server.live_when(lambda live: live["prefix_cache"]["asked"] >= before["asked"] + 200)["prefix_cache"]
            self.assertEqual((200, found), (after["asked"] - before["asked"], after["found"] - before["found"]))

    def test_the_plan_of_each_bucket_is_a_page(self):
        for bucket in self.server.live()["graphs"]["buckets"]:
            status, headers, text = self.server.get("/plan?bucket=%d" % bucket)
            self.assertEqual((200, TYPES[".html"]), (status, headers["Content-Type"]))
            self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
            data = json.loads(re.search(r'id="plan-data">(.*?)</script>', text, re.DOTALL)[1])["plan"]
            self.assertIn(".b%d" % bucket, data["name"] + ".")
            self.assertIsNone(data["timings"])
            self.assertEqual("demo", data["about"]["model"])
        self.assertEqual(self.server.get("/plan")[2], self.server.get("/plan?bucket=%d" % bucket)[2])  # the largest

    def test_a_bucket_without_a_plan_is_an_error_that_names_those_that_have_one(self):
        for query, status, words in (("3", 404, "no graph of 3 rows; there are 1, 2"), ("x", 400, "bucket is x"),
                                     ("99999999999", 400, "99999999999")):
            found, _, text = self.server.get("/plan?bucket=" + query)
            self.assertEqual(status, found)
            self.assertIn(words, json.loads(text)["error"]["message"])


class OtherServers(unittest.TestCase):
    def test_options_of_the_command_line_are_the_defaults(self):
        words = ("--temperature", "0.3", "--top-k", "7", "--top-p", "0.9", "--min-p", "0.05", "--seed", "5")
        with PageServer("--max-context", "128", "--max-batch", "1", "--host", "0.0.0.0", "--api-key", "secret", *words) as server:
            server.wait_ready()
            self.assertEqual({"temperature": 0.3, "top_p": 0.9, "top_k": 7, "min_p": 0.05, "seed": 5},
                             server.live(KEY)["model"]["defaults"])
            port = server.address.rsplit(":", 1)[1]
            self.assertIn("; open http://127.0.0.1:%s/ in a browser" % port, server.told_line("nodewright: ready: "))

    def test_with_a_key_the_page_is_open_and_the_rest_is_not(self):
        with PageServer("--api-key", "secret", "--max-context", "128") as server:
            self.assertEqual(200, server.get("/")[0])  # also while the model is loaded
            self.assertIn(server.live(KEY)["state"], ("loading", "ready"))
            server.wait_ready()
            for path in ("/live", "/plan", "/plan?ticket=", "/plan?bucket=1&ticket=secret", "/v1/models"):
                self.assertEqual(401, server.get(path)[0], path)
            status, headers, _ = server.get("/live", KEY)
            self.assertEqual(200, status)
            self.assertEqual(200, server.get("/plan?bucket=1&ticket=" + headers["x-plan-ticket"])[0])
            self.assertEqual(200, server.get("/plan", KEY)[0])

    def test_node_times_are_on_the_page_of_the_largest_decode_graph(self):
        with PageServer("--plan-times", "--max-context", "128", "--max-batch", "2") as server:
            server.wait_ready()
            for bucket in server.live()["graphs"]["buckets"]:
                text = server.get("/plan?bucket=%d" % bucket)[2]
                data = json.loads(re.search(r'id="plan-data">(.*?)</script>', text, re.DOTALL)[1])["plan"]
                self.assertEqual(bucket == 2, data["timings"] is not None, bucket)
                if bucket == 2:
                    self.assertEqual(len(data["nodes"]), len(data["timings"]["nodes"]))
                    self.assertLess(0, data["timings"]["step_us"])
            told = server.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0})
        with PageServer("--max-context", "128", "--max-batch", "2") as server:  # timing leaves no trace
            server.wait_ready()
            plain = server.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0})
        self.assertEqual(plain["choices"][0]["text"], told["choices"][0]["text"])

    def test_a_model_without_a_template_says_so(self):
        with model_without_template() as folder, PageServer("--max-context", "128", model=folder) as server:
            server.wait_ready()
            self.assertFalse(server.live()["model"]["chat"])

    def test_other_ways_to_run_keep_no_plan(self):
        with PageServer("--mode", "eager", "--max-context", "128", "--max-batch", "1") as server:
            server.wait_ready()
            self.assertEqual([], server.live()["graphs"]["buckets"])
            status, _, text = server.get("/plan?bucket=1")
            self.assertEqual(404, status)
            self.assertIn("--mode", json.loads(text)["error"]["message"])


if __name__ == "__main__":
    unittest.main()
