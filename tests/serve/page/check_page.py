# The page of `nodewright serve` in a headless Chromium, which `make check-page` installs: what a user does with it. First
# every planted fault must be found, then none may be left.
#   check_page.py [--screenshots DIR]    also takes the pictures of docs/images (fonts: Inter, JetBrains Mono)
#   NODEWRIGHT_CHROMIUM                  the browser (default: chromium on the path)
import argparse
import contextlib
import json
import os
import re
import shutil
import sys

from playwright.sync_api import sync_playwright

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "page")]
from contrast import PALE  # noqa: E402
from page_server import PageServer, model_without_template  # noqa: E402

TIMEOUT_MS = 120000  # until a step that hangs fails; none that passes waits for it
KEY = "secret"
REFUSED = re.compile(r"Failed to load resource: the server responded with a status of (401|400)")  # the browser's own words
MARKUP = "<img src=/x.png onerror='document.title=1'><b>bold</b> </script> & \u20ac"


class Check:
    """Visits a server's page, with `plant` done to its files, and notes what is not as it should be."""

    def __init__(self, browser, servers, plant=None, timeout_ms=TIMEOUT_MS):
        self.browser, self.servers, self.plant, self.timeout_ms = browser, servers, plant, timeout_ms
        self.faults, self.bodies, self.context = [], [], None
        self.own_words = REFUSED

    def visit(self, server="demo", scheme="light", size=(1280, 800), refusals=False, **more):
        self.close()
        self.server = self.servers[server]
        self.context = self.browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, **more)
        self.bodies, self.refusals = [], refusals
        self.page = self.open_page()
        self.page.goto(self.server.address + "/", timeout=TIMEOUT_MS)

    def open_page(self):
        page = self.context.new_page()
        self.context.set_default_timeout(self.timeout_ms)
        self.context.on("request", lambda request: self.expect(request.url.startswith((self.server.address + "/", "blob:")),
                                                               "asks for " + request.url))
        page.on("request", lambda request: self.bodies.append(request.post_data_json) if request.method == "POST" else None)
        page.on("console", lambda line: self.expect(self.refusals and self.own_words.match(line.text), "console: " + line.text))
        page.on("pageerror", lambda error: self.expect(False, "script error: %s" % error))
        if self.plant:
            name, old, new = self.plant
            page.route("**/" + name, lambda route: self.fulfil(route, old, new))
        return page

    def fulfil(self, route, old, new):
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.text().replace(old, new))

    def close(self):
        if self.context:
            self.context.close()
        self.context = None

    def expect(self, holds, fault):
        if not holds:
            self.faults.append(fault)

    def expect_equal(self, wanted, found, what):
        self.expect(wanted == found, "%s: %r, not %r" % (what, found, wanted))

    def turn(self, index=-1):
        return self.page.locator("#turns .turn").nth(index)

    def text(self, index=-1):
        return self.turn(index).locator(".text").inner_text()

    def kept_turns(self):
        """Of the conversation that is open, as the browser keeps them: texts as they came."""
        return self.page.evaluate("""() => JSON.parse(localStorage.getItem(
            'nodewright.conversation.' + JSON.parse(sessionStorage.getItem('nodewright.open')))).turns""")

    def answer_is(self, *deltas, end=None):
        """Every chat is answered by these."""
        chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        if end:
            chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": end}]})
        events = "".join("data: %s\n\n" % json.dumps(chunk, ensure_ascii=False) for chunk in chunks) + "data: [DONE]\n\n"
        self.page.route("**/v1/chat/completions", lambda route: route.fulfill(
            status=200, headers={"Content-Type": "text/event-stream"}, body=events))

    def wait_answered(self, turns=None):
        """Until the last turn's answer has ended, and there are so many turns."""
        if turns is not None:
            self.page.wait_for_function("n => document.querySelectorAll('#turns .turn').length === n", arg=turns)
        self.page.wait_for_selector("#turns[aria-busy=false]")

    def say(self, text, turns=None):
        self.page.fill("#prompt", text)
        self.page.press("#prompt", "Enter")
        self.wait_answered(turns)

    def set(self, **values):
        for name, value in values.items():
            self.page.fill("#" + name, str(value))

    def answer_with(self, tokens):
        """Answers have so many tokens, whatever the model and the settings want."""
        def go_on(route):
            body = {**route.request.post_data_json, "ignore_eos": True, "max_tokens": tokens}
            route.continue_(post_data=json.dumps(body))
        self.page.route("**/v1/chat/completions", go_on)


def check_chat(check):
    check.visit(permissions=["clipboard-read", "clipboard-write"])
    check.set(system="Be kind.", max_tokens=12, temperature=0, top_p=0.9, top_k=40, min_p=0.01, seed=7, stop_strings="zzz\nyyy")
    check.page.fill("#prompt", "Tell me")
    check.page.press("#prompt", "Shift+Enter")
    check.page.type("#prompt", "a story")
    check.expect_equal("Tell me\na story", check.page.input_value("#prompt"), "after Shift+Enter")
    check.page.press("#prompt", "Enter")
    check.wait_answered(2)
    check.expect_equal("", check.page.input_value("#prompt"), "the message after it was sent")
    first, note = check.text(), check.turn().locator(".note").inner_text()
    check.expect(len(first) > 5, "the answer is %r" % first)
    check.expect(re.search(r"^\d+ tokens · [\d.]+ tokens/s · first after [\d.]+ ms · prompt \d+", note), "the note is " + note)
    body = check.bodies[-1]
    wanted = {"max_tokens": 12, "temperature": 0, "top_p": 0.9, "top_k": 40, "min_p": 0.01, "seed": 7, "stop": ["zzz", "yyy"],
              "stream": True, "model": "demo", "stream_options": {"include_usage": True},
              "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Tell me\na story"}]}
    check.expect_equal(wanted, body, "the call's body")
    first = check.kept_turns()[1]["text"]
    check.say("And then?", 4)
    check.expect_equal([("system", "Be kind."), ("user", "Tell me\na story"), ("assistant", first), ("user", "And then?")],
                       [(one["role"], one["content"]) for one in check.bodies[-1]["messages"]], "the second turn's messages")
    second = check.text()
    check.page.click("text=Regenerate")
    check.wait_answered(4)
    check.expect_equal(second, check.text(), "the same question, greedily")
    check.expect_equal(check.bodies[-2], check.bodies[-1], "the body of a second try")
    check.page.evaluate("() => navigator.clipboard.writeText('')")
    check.turn(1).locator(".tools >> text=Copy").click()
    check.page.wait_for_selector("text=Copied")
    check.expect_equal(first, check.page.evaluate("navigator.clipboard.readText()"), "the copied answer")
    check.page.click("#clear")
    check.expect_equal(0, check.page.locator("#turns .turn").count(), "turns after New")


def check_markup(check):
    """A model may say anything: it is text."""
    check.visit()
    check.answer_is({"role": "assistant", "reasoning_content": "Hm: ", "content": ""}, {"reasoning_content": MARKUP}, {"content": MARKUP})
    check.say(MARKUP, 2)
    for index in (0, 1):
        check.expect_equal(MARKUP, check.text(index), "markup in turn %d" % index)
    check.expect_equal("Hm: " + MARKUP, check.turn().locator(".thoughts").text_content(), "the thoughts")
    check.expect(check.turn().locator(".note").inner_text().startswith("3 tokens"), "the note of three tokens")
    check.expect_equal(0, check.page.locator("#turns img, #turns b").count(), "elements that a model made")


def check_errors(check):
    check.visit(refusals=True)
    check.set(temperature=-1)
    check.say("Hello", 2)
    body = {"messages": [{"role": "user", "content": "Hello"}], "temperature": -1}
    told = check.page.evaluate("body => fetch('/v1/chat/completions', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body)}).then(a => a.json())", body)
    check.expect(told["error"]["message"] in check.turn().inner_text(), "the error is " + check.turn().inner_text())
    check.expect(not check.turn().locator(".text").is_visible(), "a failed turn has an empty bubble")
    check.set(temperature=0, max_tokens=5)
    check.page.click("text=Try again")
    check.wait_answered(2)
    check.expect(len(check.text()) > 0, "nothing came after the error was mended")
    events = 'data: {"error": {"message": "the engine has failed", "type": "InternalServerError", "param": null, "code": 500}}\n\n'
    check.page.route("**/v1/chat/completions", lambda route: route.fulfill(
        status=200, headers={"Content-Type": "text/event-stream"}, body=events))
    check.say("Again", 4)
    check.expect("the engine has failed" in check.turn().inner_text(), "an error inside a stream is not shown")
    count = len(check.bodies)
    for spaces in ("", "   ", " \n \t"):
        check.say(spaces)
        check.page.click("#send")
    check.expect_equal((4, count), (check.page.locator("#turns .turn").count(), len(check.bodies)), "turns and calls after spaces")


def check_stop(check):
    for press in ("button", "Escape"):
        check.visit()
        check.answer_with(tokens=900)
        before = check.server.live()["requests"]["ended"]["abort"]
        check.page.fill("#prompt", "A long story")
        check.page.press("#prompt", "Enter")
        check.page.wait_for_function("() => document.querySelector('.turn.assistant .text')?.textContent.length > 20")
        if press == "Escape":
            check.page.keyboard.press("Escape")
        else:
            check.page.click("#stop")
        check.wait_answered(2)
        live = check.server.live_when(lambda live: live["requests"]["running"] == 0 and live["requests"]["ended"]["abort"] > before)
        check.expect_equal((0, before + 1), (live["requests"]["running"], live["requests"]["ended"]["abort"]),
                           "running and cancelled calls after " + press)
        note = check.turn().locator(".note").inner_text()
        check.expect("stopped" in note, "the note after %s is %s" % (press, note))
        check.expect(len(check.text()) > 20, "what had come is gone")
        check.page.unroute("**/v1/chat/completions")
        check.set(max_tokens=4)
        check.say("Go on", 4)
        check.expect(len(check.text()) > 0, "nothing can be asked after a stop")


def check_settings(check):
    check.visit()
    values = {"system": "Be brief.\n\u20ac", "temperature": "0.5", "top_p": "0.9", "top_k": "40", "min_p": "0.1", "max_tokens": "9",
              "seed": "3", "stop_strings": "a\nb", "api_key": "k"}
    check.set(**values)
    check.page.click("text=Completion")
    check.page.reload()
    found = {name: check.page.input_value("#" + name) for name in values}
    check.expect_equal(values, found, "settings after a reload")
    check.expect_equal("true", check.page.get_attribute("[data-mode=completion]", "aria-pressed"), "the mode after a reload")
    check.page.click("#reset")
    check.page.reload()
    check.expect_equal({""}, {check.page.input_value("#" + name) for name in values}, "settings after a reset")
    check.page.wait_for_selector("#temperature[placeholder]")
    defaults = check.server.live()["model"]["defaults"]
    shown = {name: check.page.get_attribute("#" + name, "placeholder") for name in values}
    for name in ("temperature", "top_p", "top_k", "min_p"):
        check.expect_equal("%g" % defaults[name], shown[name], "the default shown for " + name)
    check.expect(all(shown.values()), "fields without a default: %s" % shown)
    check.page.click("#settings-button")
    check.expect(not check.page.is_visible("#settings"), "the settings do not close")


def check_completion(check):
    check.visit("plain")
    check.page.wait_for_selector("[data-mode=chat]:disabled")
    check.expect_equal("true", check.page.get_attribute("[data-mode=completion]", "aria-pressed"), "completions without a template")
    check.set(max_tokens=8, temperature=0)
    check.say("Once upon a time", 2)
    check.expect_equal("Once upon a time", check.bodies[-1].get("prompt"), "the prompt of a completion")
    check.expect("messages" not in check.bodies[-1], "a completion has messages")
    told = check.server.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0})
    check.expect_equal(told["choices"][0]["text"].strip(), check.text().strip(), "the completion")
    check.page.fill("#max_tokens", "")
    shown = int(check.page.get_attribute("#max_tokens", "placeholder"))
    check.page.click("#clear")
    for prompt, most in (("Once upon a time", 240), ("Once upon a time " * 40, 80)):  # the context is 256 tokens
        check.say(prompt)
        sent = check.bodies[-1].get("max_tokens", 16)
        check.expect(most / 2 < sent <= shown, "a completion of %d letters asks for %d tokens of %d" % (len(prompt), sent, shown))
        check.expect(not check.turn().locator(".error").is_visible(), "an empty max_tokens is refused: " + check.turn().inner_text())


def check_live(check):
    check.visit()
    check.page.click("#live-tab")
    check.page.wait_for_selector("#card dd")
    card = check.page.inner_text("#card")
    for words in ("demo", "1,024 tokens", "8 outputs at once", "bf16", "models/demo"):
        check.expect(words in card, "the card lacks " + words)
    before = int(figure(check, "Generated").replace(",", ""))
    check.server.post("/v1/completions", {"prompt": ["Once", "The", "A"], "max_tokens": 40, "ignore_eos": True})
    check.page.wait_for_function(
        """before => [...document.querySelectorAll('#now div')].some(pair => pair.firstChild.textContent === 'Generated' &&
           Number(pair.lastChild.textContent.replaceAll(',', '')) >= before + 120)""", arg=before)
    live = check.server.live()
    check.expect(figure(check, "Between tokens, median").endswith("ms"), "no time between tokens")
    check.expect(float(figure(check, "Tokens/s")) > 0, "tokens/s does not move")
    rows = check.page.locator("#launches tr")
    steps = {launch["bucket"]: launch for launch in live["graphs"]["launches"]}
    for bucket in live["graphs"]["buckets"]:
        row = rows.filter(has=check.page.locator("th", has_text=re.compile("^%d$" % bucket)))
        check.expect_equal(1, row.count(), "rows of bucket %d" % bucket)
        check.expect_equal("{:,}".format(steps[bucket]["steps"] if bucket in steps else 0), row.locator("td").nth(1).inner_text(),
                           "launches of bucket %d" % bucket)
    check.expect(check.page.evaluate("""() => { const canvas = document.getElementById('timeline');
        const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        const style = getComputedStyle(canvas).getPropertyValue('--rate').trim();
        const [r, g, b] = style.match(/\\w\\w/g).map(hex => parseInt(hex, 16));
        let found = 0;
        for (let i = 0; i < data.length; i += 4)
            found += data[i + 3] > 150 && Math.abs(data[i] - r) < 40 && Math.abs(data[i + 1] - g) < 40 && Math.abs(data[i + 2] - b) < 40;
        return found; }""") > 10, "the time line is not drawn")
    check.expect("tokens/s" in check.page.get_attribute("#timeline", "aria-label"), "the time line has no words")
    check.expect("at their token limit" in figure(check, "Ended"), "ends are told as " + figure(check, "Ended"))
    accent, bar = check.page.evaluate("""() => [getComputedStyle(document.querySelector('#card-title')).getPropertyValue('--accent'),
        getComputedStyle(document.querySelector('.bar i')).backgroundColor]""")
    check.expect_equal(tuple(int(accent.strip()[i:i + 2], 16) for i in (1, 3, 5)), tuple(map(int, re.findall(r"\d+", bar))),
                       "the colour of the bars")
    check.context.add_init_script("""const draw = CanvasRenderingContext2D.prototype.fillText; window.drawn = new Set();
        CanvasRenderingContext2D.prototype.fillText = function(text, ...at) { window.drawn.add(text); draw.call(this, text, ...at); };""")
    before = check.page.evaluate("performance.timeOrigin / 1000")
    check.page.reload()
    check.expect(check.page.is_visible("#live-view") and check.page.url.endswith("/#live"), "a reload leaves Live")
    check.page.wait_for_function("() => ['now', '1 min ago', '2 min ago'].every(text => window.drawn.has(text))")
    kept = check.page.evaluate("JSON.parse(localStorage.getItem('nodewright.samples')).filter(one => one.rate > 0).map(one => one.at)")
    check.expect(kept and min(kept) - before < check.page.evaluate("performance.timeOrigin / 1000") - before,
                 "the time line has forgotten what was before the reload")
    check.page.click("#chat-tab")
    check.page.evaluate("location.hash = 'live'")
    check.page.wait_for_selector("#live-view:not([hidden])")


def figure(check, name):
    """Of the live view, by its name."""
    return check.page.locator("#live-view .figures div").filter(
        has=check.page.locator("dt", has_text=re.compile("^%s$" % re.escape(name)))).locator("dd").inner_text()


def check_plan(check):
    check.visit()
    check.page.click("#live-tab")
    check.page.wait_for_selector("#launches a")
    with check.context.expect_page() as opened:
        check.page.click('#launches a[href="/plan?bucket=8"]')
    plan = opened.value
    plan.on("console", lambda line: check.expect(False, "console of the plan: " + line.text))
    plan.wait_for_selector("#rows .row")
    check.expect("b8" in plan.inner_text("h1"), "the plan's page is of " + plan.inner_text("h1"))


def check_key(check):
    check.visit("locked", refusals=True)
    check.page.wait_for_selector("#notice:not([hidden])")
    check.expect("API key" in check.page.inner_text("#notice"), "no word of the key: " + check.page.inner_text("#notice"))
    check.expect_equal("api_key", check.page.evaluate("document.activeElement.id"), "the focus where a key is wanted")
    check.page.keyboard.type(KEY)
    check.page.keyboard.press("Tab")
    check.page.wait_for_selector("#model-facts:not(:empty)")
    check.page.wait_for_selector("#notice", state="hidden")
    check.set(max_tokens=4)
    check.say("Hello", 2)
    check.expect(len(check.text()) > 0 and not check.turn().locator(".error").is_visible(), "no answer with the key: " + check.turn().inner_text())
    check.page.click("#live-tab")
    with check.context.expect_page() as opened:
        check.page.locator("#launches a").first.click()
    opened.value.wait_for_selector("#rows .row")
    check.expect(KEY not in opened.value.url, "the key is in a link")


def check_keys(check):
    """Everything without a mouse."""
    check.visit()
    check.answer_with(tokens=900)
    keys = check.page.keyboard
    check.page.wait_for_selector("#model-facts:not(:empty)")
    check.expect_equal("prompt", check.page.evaluate("document.activeElement.id"), "the focus at first")
    keys.type("Hello")
    keys.press("Enter")
    check.page.wait_for_function("() => document.querySelector('.turn.assistant .text')?.textContent.length > 5")
    keys.press("Escape")
    check.wait_answered(2)
    check.expect_equal("prompt", check.page.evaluate("document.activeElement.id"), "the focus after a stop")
    order = []
    for _ in range(40):
        keys.press("Tab")
        order.append(check.page.evaluate("document.activeElement.id || document.activeElement.textContent"))
    wanted = ["send", "system", "temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "stop_strings", "api_key", "reset"]
    check.expect_equal(wanted, [one for one in order if one in wanted][:len(wanted)], "the order of Tab")
    check.expect("Regenerate" in order and "clear" in order and "settings-button" in order, "Tab does not reach all: %s" % order)
    check.page.focus("#chat-tab")
    keys.press("ArrowRight")
    check.expect(check.page.is_visible("#live-view") and not check.page.is_visible("#chat-view"), "an arrow does not open Live")
    check.page.wait_for_selector("#launches a")
    keys.press("Tab")
    keys.press("Tab")
    check.expect("Plan" in check.page.evaluate("document.activeElement.textContent"), "Tab does not reach the plans")
    check.page.click("#chat-tab")
    unnamed = check.page.evaluate("""() => [...document.querySelectorAll('button, input, textarea, a, canvas')].filter(
        one => !(one.labels?.length || one.textContent.trim() || one.getAttribute('aria-label'))).map(one => one.outerHTML)""")
    check.expect_equal([], unnamed, "controls without a name")


def check_sizes(check):
    grounds = {}
    for scheme in ("light", "dark"):
        check.visit(scheme=scheme, size=(380, 720))
        check.page.wait_for_function("() => document.getElementById('model-name').textContent === 'demo'")
        check.expect(not check.page.is_visible("#settings"), "the settings are open at 380 px")
        check.answer_with(tokens=8)
        check.page.fill("#prompt", "wide" * 60)
        check.page.press("#prompt", "Enter")
        check.wait_answered(2)
        for view in ("chat", "settings", "live"):
            if view == "settings":
                check.page.click("#settings-button")
                check.expect(check.page.is_visible("#api_key"), "the settings do not open at 380 px")
            if view == "live":
                check.page.click("#live-tab")
                check.page.wait_for_selector("#launches a")
            wide = check.page.evaluate("""() => [...document.querySelectorAll('body *')].filter(one => !one.closest('.wide') &&
                (one.getBoundingClientRect().right > 381 || (one.clientWidth > 0 && one.tagName === 'DIV' && one.scrollWidth > one.clientWidth)) &&
                one.offsetParent).map(one => one.tagName + '.' + one.className + '#' + one.id)""")
            check.expect_equal([], wide, "wider than 380 px in %s" % view)
        grounds[scheme] = check.page.evaluate("getComputedStyle(document.body).backgroundColor + getComputedStyle(document.body).color")
    check.expect(grounds["light"] != grounds["dark"], "dark looks like light")
    for scheme, colours in grounds.items():
        ground, ink = (sum(map(int, one.split(",")[:3])) for one in re.findall(r"rgb\(([^)]*)\)", colours))
        check.expect((ground > ink) == (scheme == "light") and abs(ground - ink) > 500, "%s is %s" % (scheme, colours))


# A text with all that the page renders, and what would harm.
MARKDOWN = """# The *title*

Some **bold**, `code <b>` and a [link](https://example.org/a_(b)).
A second line with <script>document.title = 1</script>.

```python
def f(x):
    return "<i>" * x  # **not bold**
```

1. one
   - inner
2. two

> quoted

| a | b |
|---|--:|
| 1 | **2** |

[harm](javascript:document.title=1) [data](data:text/html,x) ![image](https://example.org/x.png) <img src=/x.png>
"""


def check_markdown(check):
    check.visit()
    check.answer_is({"role": "assistant", "content": ""}, *({"content": MARKDOWN[i:i + 5]} for i in range(0, len(MARKDOWN), 5)))
    check.say("Show me", 2)
    text = check.turn().locator(".text")
    for selector, words in (("h4", "The title"), ("h4 em", "title"), ("p strong", "bold"), ("p code", "code <b>"),
                            (".code-head span", "python"), (".code pre", 'def f(x):\n    return "<i>" * x  # **not bold**'),
                            ("ol > li > p", "one"), ("ol > li ul > li", "inner"), ("blockquote", "quoted"), ("thead th", "a"),
                            ("td strong", "2"), ("td.end", "2")):
        check.expect_equal(words, text.locator(selector).first.inner_text(timeout=check.timeout_ms).strip(), selector)
    links = text.locator("a").evaluate_all("all => all.map(one => [one.textContent, one.href, one.target, one.rel.includes('noopener')])")
    check.expect_equal([["link", "https://example.org/a_(b)", "_blank", True], ["image", "https://example.org/x.png", "_blank", True]],
                       links, "links")
    check.expect_equal(0, text.locator("img, script, b, i, iframe, style, form").count(), "elements that a model made")
    check.expect("document.title = 1" in text.inner_text() and check.page.title() != "1", "a script of a model ran, or is gone")
    check.expect("A second line" in text.locator("p").first.inner_text().split("\n")[1], "a line's end is lost")
    check.page.evaluate("() => { navigator.clipboard.writeText = async text => { window.copied = text; }; }")
    text.locator(".copy-code").click()
    check.page.wait_for_function("() => window.copied === 'def f(x):\\n    return \"<i>\" * x  # **not bold**'")
    # What is shown piece by piece is what is shown at once, blocks that are done stay, and no text makes a deep document.
    found = check.page.evaluate("""async text => {
        const { GrowingMarkdown } = await import('/markdown.js');
        const [whole, growing] = [0, 1].map(() => document.createElement('div'));
        const shower = new GrowingMarkdown(growing);
        let first = null, stays = true;
        for (let end = 1; end <= text.length; ++end) {
            shower.show(text.slice(0, end));
            if (end === 40) first = growing.firstChild;
            stays &&= end < 40 || growing.firstChild === first;
        }
        new GrowingMarkdown(whole).show(text);
        const depth_of = element => 1 + Math.max(0, ...[...element.children].map(depth_of));
        const n = 3000, deep = ['*'.repeat(n) + 'a' + '*'.repeat(n), '*a '.repeat(n) + 'a* '.repeat(n), '>'.repeat(n), '[a'.repeat(n) + '](b)'.repeat(n),
            Array.from({ length: 300 }, (_, i) => ' '.repeat(2 * i) + '- a').join('\\n'), '_*'.repeat(n) + 'a' + '*_'.repeat(n)];
        const depths = deep.map(one => { const shown = document.createElement('div'); new GrowingMarkdown(shown).show(one); return depth_of(shown); });
        return { same: whole.innerHTML === growing.innerHTML, stays, depth: Math.max(...depths) };
    }""", MARKDOWN)
    check.expect(found["same"], "piece by piece it looks other than at once")
    check.expect(found["stays"], "a block that is done is made anew")
    check.expect(found["depth"] < 40, "a text makes a document %d deep" % found["depth"])


def check_reload(check):
    """What was said is there after a reload, in a list, and in a second window."""
    check.visit()
    check.set(max_tokens=6, temperature=0)
    check.expect(check.page.is_visible("#welcome") and "demo" in check.page.inner_text("#greeting"), "an empty page says nothing")
    check.page.locator("#examples button").first.click()
    check.expect(len(check.page.input_value("#prompt")) > 5, "an example does not fill the message")
    check.say("First question", 2)
    check.expect(not check.page.is_visible("#welcome"), "the greeting stays")
    first = check.kept_turns()
    check.page.fill("#prompt", "half a mess")
    check.page.reload()
    check.page.wait_for_selector("#turns .turn")
    check.expect_equal(2, check.page.locator("#turns .turn").count(), "turns after a reload")
    check.expect_equal("half a mess", check.page.input_value("#prompt"), "the draft after a reload")
    check.expect("tokens/s" in check.turn().locator(".note").inner_text(), "the note after a reload")
    check.page.wait_for_selector("#model-facts:not(:empty)")
    check.say("Second question", 4)
    check.expect_equal(["First question", first[1]["text"], "Second question"],
                       [one["content"] for one in check.bodies[-1]["messages"]], "messages after a reload")
    check.page.click("#clear")
    check.expect(check.page.is_visible("#welcome"), "no greeting after New")
    check.page.fill("#prompt", "of the new one")
    check.page.reload()
    check.expect_equal("of the new one", check.page.input_value("#prompt"), "the draft of a new conversation")
    check.say("Other question", 2)
    titles = check.page.locator("#list .open span").all_inner_texts()
    check.expect_equal(["Other question", "First question"], titles, "the list")
    check.page.locator("#list .open").nth(1).click()
    check.expect_equal(4, check.page.locator("#turns .turn").count(), "turns of the first conversation")
    check.expect_equal("Second question", check.text(2), "a turn of it")
    other = check.context.new_page()
    other.goto(check.server.address + "/")
    other.wait_for_selector("#turns .turn")
    check.expect_equal(4, other.locator("#turns .turn").count(), "turns in a second window")
    other.close()
    check.page.on("dialog", lambda dialog: dialog.accept())
    check.page.locator("#list .delete").nth(1).click()
    check.page.wait_for_function("() => document.querySelectorAll('#list li').length === 1")
    check.expect_equal(0, check.page.locator("#turns .turn").count(), "turns of a deleted conversation")
    # A reload in the middle of an answer keeps what has come.
    check.answer_with(tokens=900)
    check.page.fill("#prompt", "A long one")
    check.page.press("#prompt", "Enter")
    check.page.wait_for_function("() => document.querySelector('.turn.assistant .text')?.textContent.length > 20")
    check.page.reload()
    check.page.wait_for_selector("#turns .turn")
    check.expect(len(check.text()) > 20, "half an answer is gone after a reload")
    check.page.click("#delete-all")
    check.page.wait_for_function("() => document.querySelectorAll('#list li').length === 0")
    check.expect_equal([], check.page.evaluate("Object.keys(localStorage).filter(key => key.includes('conversation.'))"), "kept after deletion")


def check_storage(check):
    """A browser that keeps nothing, and one that keeps somebody else's text."""
    check.visit()
    check.context.add_init_script("Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); };")
    check.page.reload()
    check.set(max_tokens=4)
    check.say("Hello", 2)
    check.expect(len(check.text()) > 0, "no answer where nothing is kept")
    check.expect("no room" in check.page.inner_text("#list-hint"), "a full browser is not told: " + check.page.inner_text("#list-hint"))
    check.visit()
    check.page.evaluate("""() => { for (const [name, text] of Object.entries({ 'conversation.a': '{', 'conversation.b': '{"turns": 7}',
        'conversation.c': '{"turns": [{"role": "<b>", "text": "x"}, null, {"role": "user"}]}', settings: '[1]', samples: '{"a": 1}', panels: '7', open: '{}',
        'conversation.d': '{"changed": "x", "turns": [{"role": "user", "text": "whole", "note": 7}]}' })) localStorage.setItem('nodewright.' + name, text);
        sessionStorage.clear(); }""")
    check.page.reload()
    check.expect_equal(["whole"], check.page.locator("#list .open span").all_inner_texts(), "the list of what can be read")
    check.set(max_tokens=4)
    check.say("Hello", 2)


def check_edit(check):
    check.visit(accept_downloads=True)
    check.set(max_tokens=5, temperature=0, system="Be kind.")
    check.say("One", 2)
    check.say("Two", 4)
    check.turn(0).locator("text=Edit").click()
    check.turn(0).locator(".editor").fill("Zero")
    check.turn(0).locator("text=Send again").click()
    check.wait_answered(2)
    check.expect_equal(["Be kind.", "Zero"], [one["content"] for one in check.bodies[-1]["messages"]], "the messages after an edit")
    check.turn(1).locator("text=Edit").click()
    check.turn(1).locator(".editor").fill("My **own** answer")
    check.turn(1).locator("text=Save").click()
    check.expect_equal("My own answer", check.text(1), "an edited answer")
    check.turn(1).locator("text=Edit").click()
    check.turn(1).locator(".editor").press("Escape")
    check.expect_equal("My own answer", check.text(1), "an answer that was not edited")
    check.say("Next", 4)
    check.expect_equal(["Be kind.", "Zero", "My **own** answer", "Next"], [one["content"] for one in check.bodies[-1]["messages"]],
                       "the messages after an answer was edited")
    last, files = check.kept_turns()[-1]["text"], {}
    for ending in ("json", "markdown"):
        with check.page.expect_download() as download:
            check.page.click("#export-" + ending)
        check.expect_equal("Zero." + {"json": "json", "markdown": "md"}[ending], download.value.suggested_filename, "the file's name")
        with open(download.value.path()) as file:
            files[ending] = file.read()
    told = json.loads(files["json"])
    check.expect_equal(("demo", ["system", "user", "assistant", "user", "assistant"], ["Be kind.", "Zero", "My **own** answer", "Next", last]),
                       (told["model"], [one["role"] for one in told["messages"]], [one["content"] for one in told["messages"]]), "the JSON")
    check.expect("## You\n\nZero\n\n## Assistant\n\nMy **own** answer\n" in files["markdown"], "the Markdown is " + files["markdown"])


def check_dead(check):
    """A server that ended, and one that comes back."""
    with PageServer("--max-context", "128", "--max-batch", "1") as server:
        server.wait_ready()
        check.servers = {**check.servers, "mortal": server}
        check.visit("mortal", refusals=True)
        check.own_words = re.compile(r"Failed to load resource: net::ERR_(CONNECTION_\w+|EMPTY_RESPONSE|FAILED)")
        check.page.wait_for_selector("#strip dd")
        check.expect(not check.page.is_visible("#status"), "a live server has the status " + check.page.inner_text("#status"))
        check.answer_is({"content": "A line.\n\n" * 60}, end="stop")
        check.say("Hello", 2)
        check.page.unroute("**/v1/chat/completions")
        server.process.kill()
        server.process.wait()
        check.page.wait_for_selector("#status:not([hidden])")
        check.page.wait_for_timeout(100)  # a frame or two
        hidden = check.page.evaluate("(talk => talk.scrollHeight - talk.scrollTop - talk.clientHeight)(document.getElementById('talk'))")
        check.expect(hidden < 2, "the notice hides the end of the talk: %s px of it" % hidden)
        for view in ("chat", "live"):
            check.page.click("#%s-tab" % view)
            head = check.page.inner_text("header")
            check.expect("not answering" in head and "tokens/s" not in head, "the head of a dead server is %r" % head)
        check.expect_equal("not answering", figure(check, "State"), "the state of a dead server")
        check.page.click("#chat-tab")
        check.say("Hello", 4)
        check.expect("does not answer." in check.turn().inner_text(), "a call of a dead server says " + check.turn().inner_text())
    check.visit(refusals=True)
    check.page.wait_for_selector("#strip dd")
    check.page.route("**/live", lambda route: route.abort())
    check.page.wait_for_selector("#status:not([hidden])")
    check.page.unroute("**/live")
    check.page.wait_for_selector("#status", state="hidden")
    check.page.wait_for_selector("#strip dd")
    check.expect(not check.page.is_visible("#notice"), "the notice stays when the server is back")
    check.own_words = REFUSED


def check_phone(check):
    """Room for the talk, nothing beside the screen, and nothing too small for a finger."""
    for size in ((390, 844), (844, 390)):
        check.visit(size=size, has_touch=True, is_mobile=True)
        check.page.wait_for_function("() => document.getElementById('model-name').textContent === 'demo'")
        check.answer_is({"content": MARKDOWN + "wide" * 90 + "\n\n```\n" + "wide" * 90 + "\n```\n"}, end="length")
        check.page.fill("#prompt", "wide" * 60)
        check.page.press("#prompt", "Enter")
        check.page.wait_for_timeout(100)
        check.expect_equal(0, check.page.locator("#turns .turn").count(), "turns after Enter on a keyboard of glass")
        check.page.click("#send")
        check.wait_answered(2)
        check.expect(not check.page.is_visible("#settings") and not check.page.is_visible("#conversations"), "a panel is open at %s" % (size,))
        talk = check.page.evaluate("document.getElementById('talk').clientHeight")
        check.expect(talk > 200, "the talk has %d px at %s" % (talk, size))
        for view in ("chat", "settings", "conversations", "live"):
            if view == "live":
                check.page.click("#live-tab")
                check.page.wait_for_selector("#launches a")
            elif view != "chat":
                check.page.click("#%s-button" % view)
                check.page.wait_for_selector("#%s:not([hidden])" % view)
            wide = check.page.evaluate("""() => [document.documentElement, ...document.querySelectorAll('main, header, #talk, aside, #live-view')]
                .filter(one => one.scrollWidth > one.clientWidth).map(one => one.id || one.tagName)""")
            check.expect_equal([], wide, "scrolls sideways at %s in %s" % (size, view))
            small = check.page.evaluate("""() => [...document.querySelectorAll('button, input, textarea, summary')].filter(one => {
                const { width, height } = one.getBoundingClientRect();
                return width > 0 && (width < 44 || height < 44); }).map(one => one.id || one.textContent)""")
            check.expect_equal([], small, "too small for a finger at %s in %s" % (size, view))


def check_contrast(check):
    for scheme in ("light", "dark"):
        check.visit(scheme=scheme)
        check.page.wait_for_selector("#model-facts:not(:empty)")
        check.expect_equal([], check.page.evaluate(PALE), "pale texts of the greeting, " + scheme)
        check.answer_is({"reasoning_content": "Hm"}, {"content": MARKDOWN})
        check.say("Show me", 2)
        check.expect_equal([], check.page.evaluate(PALE), "pale texts of the chat, " + scheme)
        check.page.click("#live-tab")
        check.page.wait_for_selector("#launches a")
        check.expect_equal([], check.page.evaluate(PALE), "pale texts of Live, " + scheme)


STEPS = {"chat": check_chat, "markup": check_markup, "markdown": check_markdown, "errors": check_errors, "stop": check_stop,
         "settings": check_settings, "completion": check_completion, "reload": check_reload, "storage": check_storage,
         "edit": check_edit, "live": check_live, "plan": check_plan, "key": check_key, "dead": check_dead, "keys": check_keys,
         "sizes": check_sizes, "phone": check_phone, "contrast": check_contrast}


def faults_of(check, only=None):
    """A step that the page does not survive is one fault more."""
    for name, step in STEPS.items():
        if only not in (None, name):
            continue
        try:
            step(check)
        except Exception as error:  # a locator that finds nothing within its time
            check.faults.append("%s: %s" % (name, str(error).splitlines()[0]))
        check.close()
    return check.faults


# The file, what is broken in it, what replaces it, the step that must then find a fault, and a word of it.
PLANTED = [
    ("start.js", "start_list();", "start_list(); console.log('left over');", "settings", "left over"),
    ("start.js", "start_list();", "start_list(); new Image().src = 'http://localhost:9/x.png';", "settings", "console|asks for"),
    ("markdown.js", 'made("p", {}, inline_nodes(', 'made("p", { innerHTML: lines.join("") }, inline_nodes(', "markup", "markup|elements"),
    ("inline.js", '["http:", "https:", "mailto:"]', '["http:", "https:", "javascript:"]', "markdown", "links"),
    ("inline.js", "depth > kMostNested", "false", "markdown", "deep|call stack"),
    ("markdown.js", "depth >= kMostNested", "false", "markdown", "deep|call stack"),
    ("markdown.js", 'made("code", { textContent: text })', 'made("code", { innerHTML: text })', "markdown", "code pre|elements"),
    ("markdown.js", "while (same < sources.length && sources[same] === this.shown[same]) ++same;", "", "markdown", "made anew"),
    ("chat.js", "running?.abort();", "", "stop", "Timeout|cancelled|stopped"),
    ("composer.js", 'if (event.key === "Escape") stop();', "", "keys", "Timeout|focus"),
    ("composer.js", "|| event.shiftKey", "", "chat", "Shift.Enter|Timeout"),
    ("composer.js", "|| !enter_sends()", "", "phone", "keyboard of glass"),
    ("answer.js", "clock.first ||= clock.last", "clock.first = clock.last", "chat", "the note is"),
    ("answer.js", 'role: one.role, content', 'role: "user", content', "chat", "second turn's messages"),
    ("answer.js", "await tokens_for(prompt, fields.model, signal)", "undefined", "completion", "asks for 16"),
    ("answer.js", "context - count", "context", "completion", "is refused"),
    ("chat.js", "cut_at(last);", "", "chat", "Timeout"),
    ("chat.js", "cut_at(view);", "", "edit", "Timeout|after an edit"),
    ("chat.js", 'prompt.value.trim() === ""', 'prompt.value === ""', "errors", "after spaces"),
    ("turn.js", "this.body.hidden = ", "this.body.hidden = false && ", "errors", "empty bubble"),
    ("turn.js", "await copy(text);", "", "chat", "copied answer"),
    ("turn.js", "this.thoughts.append(thoughts.slice(-has_more));", "", "markup", "the thoughts"),
    ("export.js", "content: text, ...", "content: role, ...", "edit", "the JSON"),
    ("conversations.js", "keep(kName + id, { created, changed, turns })", "true", "reload", "null|Timeout|turns after a reload"),
    ("conversations.js", "else keep(draft_name(conversation), text);", "", "reload", "draft"),
    ("conversations.js", "kRoles.includes(one?.role) && ", "one && ", "storage", "what can be read"),
    ("list.js", "has_room() ? kHint", "true ? kHint", "storage", "not told"),
    ("welcome.js", 'by_id("welcome").hidden = !is_empty;', "", "reload", "says nothing"),
    ("api.js", "if (chunk.error)", "if (false)", "errors", "inside a stream"),
    ("api.js", "${error.message}`, status", "`, status", "errors", "the error is"),
    ("settings.js", '"seed"]', "]", "chat", "body"),
    ("settings.js", "field(name).placeholder = String(value);", ";", "settings", "Timeout"),
    ("settings.js", 'if (can || mode() === "completion") return;', "return;", "completion", "without a template"),
    ("browser_store.js", "store.setItem(kPrefix + name, JSON.stringify(value));", "", "settings", "after a reload"),
    ("start.js", "error instanceof ApiFailure && error.status === 0", "false", "dead", "dead server"),
    ("start.js", "history.replaceState(null", "(() => 0)(null", "live", "leaves Live"),
    ("chat.js", "if (was_at_end)", "if (false)", "dead", "end of the talk"),
    ("live.js", 'by_id("strip").replaceChildren();', "", "dead", "dead server"),
    ("live.js", "setTimeout(() => poll({ told, failed }), kEveryMs)", "0", "live", "Timeout"),
    ("live.js", "draw_timeline(by_id", "void (by_id", "live", "time line"),
    ("live.js", "whole(launch.steps)", "whole(launch.steps + 1)", "live", "launches of"),
    ("live.js", 'length: "at their token limit"', 'length: "length"', "live", "ends are told"),
    ("live.js", "`/plan?bucket=${bucket}`", "`/plan?bucket=1`", "plan", "Timeout|is of"),
    ("live.js", '(ticket ? `', '(false ? `', "key", "Timeout|console"),
    ("timeline.js", 'keep("samples", samples);', "0;", "live", "forgotten|null"),
    ("timeline.js", "context.fillText(ago_text(ago), at, top + 16);", "", "live", "Timeout"),
    ("page.html", '<label for="seed">seed</label>', "", "keys", "without a name"),
    ("page.html", 'id="temperature"', 'id="temperature" tabindex="1"', "keys", "order of Tab"),
    ("page.html", 'rows="1" autofocus', 'rows="12" autofocus', "phone", "the talk has"),
    ("page.css", "min-height: 44px; min-width: 44px;", "", "phone", "too small"),
    ("page.css", "flex-direction: column; min-width: 0; }", "flex-direction: column; }", "phone", "sideways"),
    ("page.css", "--dim: #62646a", "--dim: #9a9ca2", "contrast", "pale"),
    ("page.css", "@media (prefers-color-scheme: dark)", "@media print", "sizes", "dark"),
    ("turns.css", ".turn .text { overflow-wrap: anywhere; }", "", "sizes", "wider than"),
]


def plant_for(name, old, new):
    return ("" if name == "page.html" else name, old, new)


def find_browser():
    found = os.environ.get("NODEWRIGHT_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if not found:
        sys.exit("check_page: no chromium on the path; NODEWRIGHT_CHROMIUM may name one")
    return found


def take_screenshots(browser, servers, folder):
    check = Check(browser, servers)
    check.visit(size=(1100, 680))
    check.set(temperature=0.8, seed=11, max_tokens=60)
    check.say("Tell me a story about a fox.", 2)
    check.say("Tell me one about a boat.", 4)
    check.page.screenshot(path=os.path.join(folder, "serve-chat.png"))
    check.visit(size=(1100, 900), scheme="dark")
    check.page.click("#live-tab")
    for count in (1, 3, 8, 6, 2, 5):
        check.server.post("/v1/completions", {"prompt": ["Once upon a time"] * count, "max_tokens": 400, "ignore_eos": True})
    check.page.wait_for_timeout(1500)
    check.page.screenshot(path=os.path.join(folder, "serve-live.png"))
    check.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--screenshots")
    parser.add_argument("--only", choices=STEPS, help="one step, without planted faults")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        plain = stack.enter_context(model_without_template())
        servers = {"demo": stack.enter_context(PageServer()),
                   "plain": stack.enter_context(PageServer("--max-context", "256", model=plain)),
                   "locked": stack.enter_context(PageServer("--max-context", "256", "--api-key", KEY))}
        for server in servers.values():
            server.wait_ready()
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        print("check_page: Chromium %s" % browser.version)
        missed, planted = [], [] if options.only else PLANTED
        for name, old, new, step, words in planted:
            text = servers["demo"].get("/" if name == "page.html" else "/" + name)[2]
            assert old in text, (name, old)
            found = faults_of(Check(browser, servers, plant_for(name, old, new), timeout_ms=3000), step)
            caught = [fault for fault in found if re.search(words, fault)]
            print("planted %-58s %s" % (old[:58].replace("\n", " "), "found: " + caught[0][:90] if caught else "NOT FOUND %s" % found))
            missed += [] if caught else [old]
        faults = faults_of(Check(browser, servers), options.only)
        for fault in faults:
            print("fault: " + fault)
        if options.screenshots:
            take_screenshots(browser, servers, options.screenshots)
        browser.close()
    print("check_page: %d faults, %d of %d planted faults found" % (len(faults), len(planted) - len(missed), len(planted)))
    return 1 if faults or missed else 0


if __name__ == "__main__":
    sys.exit(main())
