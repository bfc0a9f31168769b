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
from contrast import PALE  # noqa: E402

READY_MS, REACTION_MS = 1000, 200  # what feels like at once; the figures are printed
LARGE = 2000                       # nodes
TIMEOUT_MS = 120000                 # until a step that hangs fails; none that passes waits for it


class Check:
    """Visits pages, counts what they load, and notes what is not as it should be."""

    def __init__(self, browser, folder, timeout_ms=TIMEOUT_MS):
        self.browser, self.folder, self.timeout_ms = browser, folder, timeout_ms
        self.faults, self.figures = [], {}

    def visit(self, page, scheme="light", link="", size=(1440, 900), **more):
        path = os.path.join(self.folder, "page.html")
        with open(path, "w") as file:
            file.write(page)
        self.context = self.browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, **more)
        self.page = self.context.new_page()
        self.page.set_default_timeout(self.timeout_ms)
        url = pathlib.Path(path).as_uri() + link
        self.page.on("request", lambda request: self.expect(request.url.split("#")[0] == url.split("#")[0],
                                                            "asks for " + request.url))
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

    def link(self):
        return self.page.evaluate("location.hash")

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


def kilobytes(value):
    """As the page writes some thousands of bytes: three digits."""
    return "%.*f kB" % (2 if value < 1e4 else 1 if value < 1e5 else 0, value / 1000)


def check_node(check, plan):
    node = next(node for node in plan["nodes"] if node["name"] == "l0.attend")
    check.row("l0.attend").click()
    text = check.panel()
    grid = [n for n in node["grid"] if n > 1] or [1]
    shape = ("×".join(map(str, node["grid"][:2])), "%d blocks" % math.prod(grid), "%d threads" % math.prod(node["block"]),
             kilobytes(node["shared_bytes"]))
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
    check.expect("kernel fetch_inputs" in check.panel(), "an arrow up does not reach the first node")
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
    shown = " ".join(check.rows())
    check.expect("loop.body" in shown and "2 × same block" in shown, "the body is not shown folded: " + shown)
    body = check.page.locator("#rows .row.scope").first
    moved = sum(node["bytes_read"] + node["bytes_written"] for node in synthetic.nested()["plan"]["nodes"][1]["bodies"][0]["nodes"])
    check.expect(kilobytes(moved) in body.inner_text(), "the body's row lacks its bytes: " + body.inner_text())
    body.click()
    check.expect("a round" in check.panel(), "the body's panel does not say that its bytes are of a round")
    body.click()
    check.page.click('.row[title="loop"] .chevron')
    check.expect_equal(3, check.page.locator("#rows .row").count(), "rows of a plan with a closed one inside a node")
    check.find("innermost")
    check.expect(check.row("innermost").count() == 1, "a node of a child in a body is not shown when found")
    check.expect("kernel mix" in check.panel(), "a node of a child in a body does not open")
    check.find("loop")
    check.expect("while" in check.panel(), "the conditional node's panel does not say what it is")
    check.context.close()
    check.visit(synthetic.with_data(page, synthetic.nested_timed()))
    row = check.page.locator("#rows .row.scope").first
    check.expect("28.0 µs" in row.inner_text(), "the body's row lacks the time of a round: " + row.inner_text())
    check.expect("40.0 µs" in check.row("loop").inner_text(), "the loop's row lacks its time")
    check.row("l0.down").click()
    check.expect("2.00 µs" in check.panel(), "a node of a body has no time")
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


def check_head(check, plan):
    head = check.page.inner_text("#about")
    for what in ("model", "context", "edges", "numerics", "tuning"):
        check.expect(what in head and plan["about"][what] in head, "the head lacks the " + what)


def check_all_buffers(check, plan):
    check.page.keyboard.press("b")
    text = re.sub(r"\s+", " ", check.panel())
    check.expect("%d buffers" % len(plan["buffers"]) in text, "b does not open the list of buffers")
    names = check.page.locator("#panel li.buffer .go").all_inner_texts()
    by_size = [one["name"] for one in sorted(plan["buffers"], key=lambda one: -one["bytes"])]
    check.expect_equal(sorted(by_size), sorted(names), "listed buffers")
    check.expect_equal(by_size[0], names[0], "the largest buffer")
    check.expect(check.page.locator("#panel .curve path").count() == 1, "no curve of memory")
    check.expect(plan["nodes"][plan["peak"]["node"]]["name"] in text, "the peak's node is not named")
    strip = check.page.locator('#panel li.buffer:has(.go:text-is("logits")) .strip i')
    first, last = next(one["needed"] for one in plan["buffers"] if one["name"] == "logits")
    found = strip.evaluate("strip => [parseFloat(strip.style.left), parseFloat(strip.style.width)]")
    count = len(plan["nodes"])
    check.expect(math.isclose(found[0], 100 * first / count, rel_tol=1e-3)
                 and math.isclose(found[1], 100 * (last - first + 1) / count, rel_tol=1e-3),
                 "the lifetime of logits is drawn at %s" % found)
    check.page.click("#panel >> text=by name")
    names = check.page.locator("#panel li.buffer .go").all_inner_texts()
    check.expect_equal("activated", names[0], "the first buffer by name")
    check.page.click('#panel [role=group] >> text=kv')
    names = check.page.locator("#panel li.buffer .go").all_inner_texts()
    check.expect_equal(["kv.l0", "kv.l1", "kv.l2", "kv.l3"], names, "buffers of kind kv")
    check.page.click('#panel [role=group] >> text=all')
    check.page.click('#panel li.buffer .go:text-is("logits")')
    check.expect("Needed" in check.panel() and "logits to sample" in check.panel(), "a listed buffer does not open")
    check.page.keyboard.press("Escape")


def check_links(check, page):
    check.visit(page)
    check.find("l2.attend")
    check.expect_equal("#node=l2.attend", check.link(), "the link to a node")
    check.page.keyboard.press("Escape")
    check.expect_equal("", check.link(), "the link to nothing")
    check.context.close()
    for link, words in (("#node=l2.attend", "kernel rope_flash_decode"), ("#buffer=kv.l3", "kv buffer"),
                        ("#layer=l3", "5 nodes"), ("#layers=l1", "3 layers"), ("#buffers", "by size"),
                        ("#node=nothing", "Choose a node"), ("#node=%", "Choose a node")):
        check.visit(page, link=link)
        check.expect(words in check.panel(), "the link %s does not open its place" % link)
        check.context.close()
    check.visit(page, link="#node=l2.attend")
    check.expect_equal(1, check.page.locator('#rows .row.on[title="l2.attend"]').count(), "rows of a link's node")
    check.page.evaluate("location.hash = 'buffer=residual'")
    check.page.wait_for_selector("#panel h2:text-is('residual')")
    check.context.close()


def check_times(check, timed, plan):
    check.visit(timed)
    heads = check.page.inner_text("#columns")
    for head in ("Of step", "GB/s", "Floor"):
        check.expect(head in heads, "no column " + head)
    node = plan["nodes"][3]
    moved, step = node["bytes_read"] + node["bytes_written"], sum(1 + i for i in range(len(plan["nodes"])))
    row = re.sub(r"\s+", " ", check.row(node["name"]).inner_text())
    for what, value in (("share", 100 * 4 / step), ("rate", moved / 4e-6 / 1e9), ("floor", moved / 4.66e12 * 1e6)):
        found = check.row(node["name"]).locator("." + what).inner_text()
        number = float(found.split()[0]) / (1000 if "ns" in found else 1)
        check.expect(math.isclose(number, value, rel_tol=0.02),
                     "%s of %s is %s, not %.3f (%s)" % (what, node["name"], found, value, row))
    check.row(node["name"]).click()
    for words in ("Floor", "Critical path", "on it", "of the step"):
        check.expect(words in check.panel(), "the timed node's panel lacks " + words)
    check.expect(not check.page.is_visible("#timeline"), "the timeline is open at first")
    check.page.keyboard.press("t")
    bars = check.page.locator("#timeline .bar")
    check.expect_equal(len(plan["nodes"]), bars.count(), "bars of the timeline")
    check.expect_equal(len(plan["nodes"]), check.page.locator("#timeline .bar.critical").count(), "critical bars of a chain")
    check.expect_equal(1, check.page.locator("#timeline .bar.on").count(), "bars of the chosen node")
    wide = bars.nth(5).evaluate("bar => bar.getBoundingClientRect().width")
    check.page.keyboard.press("+")
    check.expect(bars.nth(5).evaluate("bar => bar.getBoundingClientRect().width") > 1.5 * wide, "+ does not zoom")
    check.page.keyboard.press("-")
    bars.nth(4).click()
    check.expect_equal(plan["nodes"][4]["name"], check.page.inner_text("#panel h2"), "the node of a bar")
    check.page.keyboard.press("ArrowDown")
    check.expect_equal(plan["nodes"][5]["name"], check.page.locator("#timeline .bar.on").get_attribute("data-node"),
                       "the bar of the node below")
    check.page.click("#timeline-button")
    check.expect(not check.page.is_visible("#timeline"), "the timeline does not close")
    check.context.close()


def check_compared(check, compared):
    check.visit(compared)
    diff, text = synthetic.data_of(compared)["diff"], re.sub(r"\s+", " ", check.panel())
    for words in ("decode.b1", "decode.b8", "bucket", "Same plan", "bytes read"):
        check.expect(words in text, "the comparison lacks " + words)
    for what in ("Nodes", "Edges", "Buffers"):
        count = len(diff[what.lower()])
        check.expect(count == 0 or "%s (%d difference" % (what, count) in text, "the comparison lacks its " + what)
    changed = [one["name"] for one in diff["nodes"] if one["how"] == "changed"]
    check.page.click("#fold-all")
    for name in changed[:5]:
        check.expect(check.page.locator('#rows .row.changed[title="%s"]' % name).count() == 1, name + " is not marked")
    change = next(one for one in diff["nodes"] if one["name"] == "l0.qkv")
    check.row("l0.qkv").click()
    text = check.panel()
    check.expect("Differs" in text, "a changed node does not say what differs")
    for one in change["changes"]:
        for words in one.values():
            check.expect(words in text, "the changed node's panel lacks " + words)
    check.expect(check.row("l0.qkv").locator(".measure s").count() > 0, "a row does not say what was moved before")
    check.context.close()
    data = synthetic.data_of(compared)
    data["before"], data["plan"] = data["plan"], data["before"]
    data["before"]["nodes"][3]["name"] = "l0.gone"
    data["diff"]["nodes"] = [{"how": "removed", "plan": "", "name": "l0.gone", "words": "kernel x", "changes": []},
                             {"how": "added", "plan": "", "name": "l0.attend", "words": "kernel y", "changes": []}]
    check.visit(synthetic.with_data(compared, data))
    rows = check.page.locator("#rows .row").evaluate_all("rows => rows.map(row => row.title)")
    check.expect("l0.gone, removed" in rows and rows.index("l0.gone, removed") == rows.index("l0.qkv") + 1,
                 "a removed node has no row behind the one that it followed: %s" % rows)
    check.expect_equal(1, check.page.locator('#rows .row.added[title="l0.attend"]').count(), "rows of added nodes")
    check.page.click(".row.gone")
    check.expect("kernel rope_flash_decode" in check.panel(), "a removed node does not open")
    check.row("l0.attend").click()
    check.expect("Only the later plan has it" in check.panel(), "an added node does not say so")
    check.context.close()


def check_looks(check, page, timed, compared):
    """Nothing is too pale, nothing lies over another, and a phone has no sideways scroll."""
    for scheme in ("light", "dark"):
        for name, one in (("untimed", page), ("timed", timed), ("compared", compared)):
            check.visit(one, scheme)
            check.expect_equal([], check.page.evaluate(PALE), "pale texts of the %s page, %s" % (name, scheme))
            check.page.keyboard.press("b")
            check.expect_equal([], check.page.evaluate(PALE), "pale texts of the buffers, %s" % scheme)
            covered = check.page.evaluate("""() => [...document.querySelectorAll('.row .measure:has(i)')].filter(one => {
                const range = document.createRange();
                range.selectNodeContents(one.querySelector('b'));
                return range.getBoundingClientRect().right > one.querySelector('i').getBoundingClientRect().left - 4;
            }).map(one => one.textContent)""")
            check.expect_equal([], covered, "figures that touch their bar on the %s page" % name)
            check.context.close()
    check.visit(timed)
    table = check.page.locator("#panel table", has_text="Peak")
    edges = table.locator("tr td:last-child, tr th:last-child").evaluate_all("all => all.map(one => Math.round(one.getBoundingClientRect().right))")
    check.expect(len(edges) > 4 and len(set(edges)) == 1, "the peak is off the column of sizes: %s" % edges)
    check.context.close()
    for size in ((390, 844), (844, 390)):
        for one in (page, timed):
            check.visit(one, size=size, is_mobile=True, has_touch=True)
            check.page.wait_for_selector("#rows .row")
            wide, shown = check.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            check.expect(wide <= size[0] and shown == size[0], "scrolls sideways at %s: %d px" % (size, max(wide, shown)))
            search, mark = (check.page.locator(name).bounding_box() for name in ("#search", ".mark"))
            check.expect(search["width"] >= 180, "the search has %d px at %s" % (search["width"], size))
            check.expect_equal(mark["width"], mark["height"], "the height of the head's dot at %s" % (size,))
            rows = check.page.evaluate("document.getElementById('graph').clientHeight")
            check.expect(rows >= 200, "the list has %d px at %s" % (rows, size))
            check.context.close()


def check_model(check, page, plan):
    check.visit(page)
    check_head(check, plan)
    check_all_buffers(check, plan)
    check_folding(check, plan)
    check_node(check, plan)
    check_buffer(check, plan)
    check_keys(check)
    check.context.close()


def faults_of(check, page, timed, compared, plan, only=None):
    """(faults, figures). A step that the page does not survive is one fault more."""
    steps = {"model": lambda: check_model(check, page, plan), "colours": lambda: check_colours(check, page, timed),
             "times": lambda: check_times(check, timed, plan), "links": lambda: check_links(check, page),
             "looks": lambda: check_looks(check, page, timed, compared),
             "compared": lambda: check_compared(check, compared),
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
    ("Object.entries(data.plan.about)", "[]", "model", "head lacks"),
    ("b: () => choose(kBuffers)", "b: () => 0", "model", "list of buffers|text=by name"),
    ("left: `${100 * needed[0] / all}%`", "left: 0", "model", "lifetime of logits"),
    ("history.replaceState(null", "(() => 0)(null", "links", "link to a node"),
    ("  follow_link();\n}\nstart", "}\nstart", "links", "does not open its place"),
    ('addEventListener("hashchange", follow_link)', "0", "links", "wait_for_selector"),
    ('cell("floor", time_of(list) > 0 ? floor_of(list)', 'cell("floor", time_of(list) > 0 ? 2 * floor_of(list)', "times",
     "floor of"),
    ("node.critical = true", "break", "times", "critical bars|lacks on it"),
    ("onclick: () => choose(node) });\n    return element", "});\n    return element", "times", "the node of a bar"),
    ("  t: () => toggle_timeline(),", "", "times", "bars of the timeline"),
    (".change = change;\n  }\n  for", ".chang = change;\n  }\n  for", "compared", "is not marked"),
    ("--faint: #686a70", "--faint: #8a8c92", "looks", "pale"),
    ("grid-template-columns: 96px 1fr", "grid-template-columns: 48px 1fr", "looks", "touch their bar"),
    ("align-self: center; width: 12px;", "align-self: center; width: 4px;", "looks", "dot"),
    ("  .toolbar { flex-wrap: wrap; }", "", "looks", "sideways"),
    ('"", bytes_text(data.plan.peak.bytes)]', 'bytes_text(data.plan.peak.bytes)]', "looks", "peak is off"),
    ("...changes_of(node),", "", "compared", "what differs"),
    ("item.gone.forEach(show);", "", "compared", "removed node has no row"),
    ("set_timings(node.scopes[i], body.nodes)", "0", "nested", "time of a round"),
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


def compare(folder):
    """The page of the plans of 1 and 8 rows."""
    paths = []
    for bucket in ("1", "8"):
        paths.append(os.path.join(folder, bucket + ".json"))
        dumped("--format", "json", "--bucket", bucket, "--out", paths[-1])
    done = run("graph", "--diff", *paths, "--format", "html")
    if done.returncode != 1:
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
        compared = compare(folder)
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        print("check_page: Chromium %s" % browser.version)
        missed = []
        for old, new, step, words in PLANTED:
            assert old in page, old
            faults, _ = faults_of(Check(browser, folder, timeout_ms=3000), *(
                one.replace(old, new) for one in (page, timed, compared)), plan, step)
            caught = [fault for fault in faults if re.search(words, fault)]
            print("planted %-58s %s" % (old[:58], "found: " + caught[0][:90] if caught else "NOT FOUND"))
            missed += [] if caught else [old]
        faults, figures = faults_of(Check(browser, folder), page, timed, compared, plan)
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
