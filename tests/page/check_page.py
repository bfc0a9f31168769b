# The page of `nodewright graph --format html` in a headless Chromium, which `make check-page` installs: what a reader
# does with it, and how fast it answers. First every planted fault must be found, then none may be left.
#   check_page.py [--screenshot FILE]    also takes the picture of docs/inspection.md (fonts: Inter, JetBrains Mono)
#   NODEWRIGHT_CHROMIUM                  the browser (default: chromium on the path)
import argparse
import json
import math
import os
import pathlib
import re
import shutil
import sys
import tempfile

from playwright.sync_api import sync_playwright

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cli"))
from command import DEMO, on_device, run  # noqa: E402
import synthetic  # noqa: E402

READY_MS, REACTION_MS = 1000, 200  # what feels like at once; the figures are printed
LARGE = 2000                       # nodes
TIMEOUT_MS = 15000                 # of a step that should be there at once, on a machine busy with other work


class Check:
    """Visits pages, counts what they load, and notes what is not as it should be."""

    def __init__(self, browser, folder, timeout_ms=TIMEOUT_MS):
        self.browser, self.folder, self.timeout_ms = browser, folder, timeout_ms
        self.faults, self.figures = [], {}

    def visit(self, page, scheme="light"):
        path = os.path.join(self.folder, "page.html")
        with open(path, "w") as file:
            file.write(page)
        self.context = self.browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.page.set_default_timeout(self.timeout_ms)
        url = pathlib.Path(path).as_uri()
        self.page.on("request", lambda request: self.expect(request.url == url, "asks for " + request.url))
        self.page.on("console", lambda line: self.expect(False, "console: " + line.text))
        self.page.on("pageerror", lambda error: self.expect(False, "script error: %s" % error))
        self.page.goto(url, timeout=TIMEOUT_MS)

    def expect(self, holds, fault):
        if not holds:
            self.faults.append(fault)

    def expect_equal(self, wanted, found, what):
        self.expect(wanted == found, "%s: %s, not %s" % (what, found, wanted))

    def rows(self):
        return self.page.locator("#rows .row .name").all_inner_texts()

    def row(self, name):
        return self.page.locator('#rows .row[title="%s"]' % name)

    def panel(self):
        return self.page.inner_text("#panel")

    def find(self, text):
        self.page.keyboard.press("/")
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")

    def reaction_ms(self, script):
        """From an action to the frame after it by the page's own clock. The quickest of five: other work only adds."""
        return min(self.page.evaluate("""async () => {
            const start = performance.now();
            %s;
            await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
            return performance.now() - start;
        }""" % script) for _ in range(5))


def check_folding(check, plan):
    names = [node["name"] for node in plan["nodes"]]
    shown = " ".join(check.rows())
    check.expect("3 × same block" in shown and "l1 … l3" in shown, "the layers are not folded: " + shown)
    check.expect(check.row("l2.attend").count() == 0, "a folded node is shown")
    check.page.click("text=3 × same block")
    check.expect(check.row("l2.attend").count() == 1, "unfolding does not show l2.attend")
    check.page.click("#fold-all")
    check.expect(check.row("l2.attend").count() == 0, "folding does not hide l2.attend")
    check.page.click("#fold-all")
    found = [check.page.locator("#rows .row.node").nth(i).get_attribute("title")
             for i in range(check.page.locator("#rows .row.node").count())]
    check.expect_equal(names[:len(found)], found, "unfolded rows")
    check.page.click("#fold-all")


def check_node(check, plan):
    node = next(node for node in plan["nodes"] if node["name"] == "l0.attend")
    check.row("l0.attend").click()
    text = check.panel()
    grid = [n for n in node["grid"] if n > 1] or [1]
    shape = ("×".join(map(str, node["grid"][:2])), "%d blocks" % math.prod(grid), "%d threads" % math.prod(node["block"]),
             "%.1f kB" % (node["shared_bytes"] / 1000))
    for words in ("l0.attend", "kernel rope_flash_decode", *shape, "on every path"):
        check.expect(words in text, "the node's panel lacks " + words)
    for use in node["uses"]:
        words = "%s [%d,%d)" % (use["buffer"], use["offset"], use["offset"] + use["bytes"])
        check.expect(words in re.sub(r"\s+", " ", text), "the node's panel lacks " + words)
    for argument in node["arguments"]:
        check.expect(argument["field"] in text, "the node's panel lacks the field " + argument["field"])
        if argument["role"] == "scalar":
            shown = map(float, re.findall(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", text))  # JavaScript writes 0.00001 for 1e-05
            check.expect(any(math.isclose(value, argument["value"], rel_tol=1e-6) for value in shown),
                         "the panel lacks the value of " + argument["field"])
    for edge in plan["edges"]:
        if node["id"] in (edge["from"], edge["to"]):
            other = plan["nodes"][edge["to"] if edge["from"] == node["id"] else edge["from"]]["name"]
            check.expect(other in text, "the node's panel lacks the edge with " + other)
            for reason in edge["reasons"]:
                check.expect(reason in re.sub(r"\s+\[", "[", text), "the node's panel lacks the reason " + reason)
    check.expect_equal(2, check.page.locator("#links .link.on").count(), "links of the chosen node")
    check.expect(check.page.locator("#links .link.programmatic").first.evaluate(
        "link => getComputedStyle(link).strokeDasharray") != "none", "programmatic links are not dashed")
    check.page.click("#panel >> text=l0.out")
    check.expect("kernel project_add" in check.panel(), "an edge does not lead to its node")


def check_buffer(check, plan):
    check.find("residual")
    users = [(node["name"], use["access"]) for node in plan["nodes"] for use in node["uses"]
             if use["buffer"] == "residual"]
    entries = check.page.locator("#panel li[data-access]")
    found = [(entries.nth(i).locator(".go").inner_text(), entries.nth(i).get_attribute("data-access"))
             for i in range(entries.count())]
    check.expect_equal(users, found, "writers and readers of residual")
    check.expect_equal(3, check.page.locator("#rows .row.node.writes").count(), "rows marked as writers")
    check.expect_equal(3, check.page.locator("#rows .row.node.reads").count(), "rows marked as readers")
    entries.nth(2).locator(".go").click()
    check.expect("kernel project_add" in check.panel(), "a buffer's user cannot be opened")
    check.page.keyboard.press("Escape")
    check.expect("The plan" in check.panel(), "Escape does not close the panel")


def check_keys(check):
    check.page.keyboard.press("ArrowDown")
    check.page.keyboard.press("ArrowDown")
    check.expect("kernel embed" in check.panel(), "two arrows down do not reach the second node")
    check.page.keyboard.press("ArrowUp")
    check.expect("memcpy" in check.panel(), "an arrow up does not reach the first node")
    check.page.keyboard.press("/")
    check.expect(check.page.evaluate("document.activeElement.id") == "search", "/ does not reach the search")
    check.page.keyboard.press("Escape")
    check.expect(check.page.evaluate("document.activeElement.id") != "search", "Escape does not leave the search")


def dot_colours(check):
    dots = check.page.locator("#links .dot:not(.back)")
    return dots.evaluate_all("dots => dots.map(dot => getComputedStyle(dot).fill)")


def check_colours(check, page, timed):
    for scheme in ("light", "dark"):
        check.visit(page, scheme)
        check.expect_equal(0, check.page.locator("#colours [data-shade=time]").count(), "time without timings")
        by_bytes = dot_colours(check)
        check.expect(len(set(by_bytes)) > 5, "nodes of different bytes have one colour (%s)" % scheme)
        check.page.click("[data-shade=none]")
        check.expect(len(set(dot_colours(check))) == 1, "nodes have colours without a measure")
        check.context.close()
        check.visit(timed, scheme)
        by_time = dot_colours(check)
        check.expect(len(set(by_time)) > 5 and by_time != by_bytes, "time does not colour the nodes (%s)" % scheme)
        legend = check.page.inner_text("#legend")
        check.expect("1.00 µs" in legend and "24.0 µs" in legend, "the legend is " + legend)
        check.find("l0.attend")
        for words in ("4.00 µs", "4.25 µs", "0.25 µs of it before its inputs are ready"):
            check.expect(words in check.panel(), "the timed node's panel lacks " + words)
        check.context.close()


def check_nested(check, page):
    check.visit(synthetic.with_data(page, synthetic.nested()))
    check.expect_equal(3, check.page.locator("#rows .row").count(), "rows of a plan with one inside a node")
    check.page.click('.row[title="loop"] .chevron')
    shown = " ".join(check.rows())
    check.expect("loop.body" in shown and "2 × same block" in shown, "the body is not shown folded: " + shown)
    check.find("innermost")
    check.expect(check.row("innermost").count() == 1, "a node of a child in a body is not shown when found")
    check.expect("kernel mix" in check.panel(), "a node of a child in a body does not open")
    check.find("loop")
    check.expect("while" in check.panel(), "the conditional node's panel does not say what it is")
    check.context.close()


def check_large(check, page):
    large = synthetic.with_data(page, synthetic.fork_join(LARGE))
    ready = []
    for last in (False, False, True):
        check.visit(large)
        check.page.wait_for_selector("#rows .row")
        ready.append(check.page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"))
        if not last:
            check.context.close()
    check.figures["ready, the quickest of three"] = min(ready)
    rows = check.page.locator("#rows .row").count()
    check.expect(0 < rows < 120, "%d rows of %d are in the document" % (rows, LARGE))
    check.figures["click on a node"] = check.reaction_ms(
        "document.querySelectorAll('#rows .row')[20 + Math.floor(Math.random() * 9)].click()")
    check.figures["scroll to the end and back"] = check.reaction_ms(
        "const g = document.getElementById('graph'); g.scrollTop = g.scrollTop ? 0 : g.scrollHeight")
    check.figures["search"] = check.reaction_ms("find('node1'); find('')")
    check.figures["open a buffer with %d users" % LARGE] = check.reaction_ms("choose(buffers[0])")
    check.find("node1999")
    check.expect(check.row("node1999").count() == 1, "the last node is not shown when found")
    for what, ms in check.figures.items():
        limit = READY_MS if what.startswith("ready") else REACTION_MS
        check.expect(ms <= limit, "%s: %.0f ms, more than %d" % (what, ms, limit))
    check.context.close()


def check_model(check, page, plan):
    check.visit(page)
    check_folding(check, plan)
    check_node(check, plan)
    check_buffer(check, plan)
    check_keys(check)
    check.context.close()


def faults_of(check, page, timed, plan, only=None):
    """(faults, figures). A step that the page does not survive is one fault more."""
    steps = {"model": lambda: check_model(check, page, plan), "colours": lambda: check_colours(check, page, timed),
             "nested": lambda: check_nested(check, page), "large": lambda: check_large(check, page)}
    for name, step in steps.items():
        if only not in (None, name):
            continue
        try:
            step()
        except Exception as error:  # a locator that finds nothing within its time
            check.faults.append(str(error).splitlines()[0])
    return check.faults, check.figures


# What is broken, what replaces it, the step that must then find a fault, and a word of it.
PLANTED = [
    ("<noscript>", '<img src="http://localhost:9/x.png"><noscript>', "model", "console|asks for"),
    ("function start() {", "function start() { console.log('left over');", "model", "left over"),
    ("if (run) {", "if (run && false) {", "model", "not folded"),
    ('kernel && ["Grid"', 'false && ["Grid"', "model", "lacks 1×2"),
    ("link.from.after.push(link);", "", "model", "lacks the edge with l0.out"),
    ("scope.buffers.get(use.buffer).uses.push({ node, use });", "", "model", "writers and readers"),
    ("stroke-dasharray: 4 3", "", "model", "dashed"),
    ("Escape: () => choose(null)", "Escape: () => 0", "model", "Escape"),
    ("Math.log(value / scale.low) / Math.log(scale.high / scale.low)", "1", "colours", "one colour"),
    ("item.open ? show(inner)", "false ? show(inner)", "nested", "body is not shown"),
    ("rows.slice(first, last)", "rows.slice()", "large", "rows of %d" % LARGE),
    ("function choose(item,", "function choose(item, ...rest) { const end = performance.now() + 300;"
     " while (performance.now() < end); return really_choose(item, ...rest); }\nfunction really_choose(item,",
     "large", "more than"),
]


def find_browser():
    found = os.environ.get("NODEWRIGHT_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if not found:
        sys.exit("check_page: no chromium on the path; NODEWRIGHT_CHROMIUM may name one")
    return found


def dumped(*words):
    done = run(*on_device("graph", DEMO, *words))
    if done.returncode != 0:
        sys.exit("check_page: " + done.stderr.decode())
    return done.stdout.decode()


def take_screenshot(check, page, path):
    check.visit(page)
    check.page.click("text=3 × same block")
    check.row("l1.attend").click()
    check.page.mouse.move(700, 20)
    check.page.screenshot(path=path)
    check.context.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--screenshot")
    options = parser.parse_args()
    page, plan = dumped("--format", "html"), json.loads(dumped("--format", "json"))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = os.path.join(folder, "timings.json")
        with open(path, "w") as file:
            json.dump(synthetic.timings_of(plan), file)
        timed = dumped("--format", "html", "--timings", path)
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        print("check_page: Chromium %s" % browser.version)
        missed = []
        for old, new, step, words in PLANTED:
            assert old in page, old
            faults, _ = faults_of(Check(browser, folder, timeout_ms=3000), page.replace(old, new),
                                  timed.replace(old, new), plan, step)
            caught = [fault for fault in faults if re.search(words, fault)]
            print("planted %-58s %s" % (old[:58], "found: " + caught[0][:90] if caught else "NOT FOUND"))
            missed += [] if caught else [old]
        faults, figures = faults_of(Check(browser, folder), page, timed, plan)
        for what, ms in figures.items():
            print("%5.0f ms  %s" % (ms, what))
        for fault in faults:
            print("fault: " + fault)
        if options.screenshot:
            take_screenshot(Check(browser, folder), page, options.screenshot)
        browser.close()
    print("check_page: %d faults, %d of %d planted faults found" % (
        len(faults), len(PLANTED) - len(missed), len(PLANTED)))
    return 1 if faults or missed else 0


if __name__ == "__main__":
    sys.exit(main())
