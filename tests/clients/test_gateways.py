# The server as a replica behind gateways: the model-server protocol of the Gateway API inference extension, and how
# vLLM's production stack and SGLang's gateway (SMG) read /metrics and /v1/models. Standard library only.
import re
import unittest

from served_demo import STORY, serve

SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "gauge": ("",), "counter": ("",)}


class Family:
    def __init__(self, name):
        self.name, self.kind, self.help, self.samples = name, None, None, []

    def of(self, **labels):
        """The one value with these labels among others."""
        value, = (value for _, found, value in self.samples if labels.items() <= found.items())
        return value


def parse(text):
    """Families of the text format, as strict as Prometheus's own parser: a name has its lines together, HELP and TYPE
    once and first, no series twice, histograms that add up."""
    families, current, seen = {}, None, set()

    def open_family(name):
        if current is not None and current.name == name:
            return current
        assert name not in families, "the lines of %s are apart" % name
        return families.setdefault(name, Family(name))

    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if described := re.fullmatch(r"# (HELP|TYPE) (\S+) (.*)", line):
            word, name, rest = described.groups()
            current = open_family(name)
            assert not current.samples, line
            assert getattr(current, {"HELP": "help", "TYPE": "kind"}[word]) is None, line
            setattr(current, {"HELP": "help", "TYPE": "kind"}[word], rest)
            assert word == "HELP" or rest in SUFFIXES, line
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, line
        name, labels, value = sample.groups()
        assert current is not None and name in [current.name + end for end in SUFFIXES.get(current.kind, ())], line
        found = dict(LABEL.findall(labels or ""))
        assert (name, tuple(sorted(found.items()))) not in seen, line
        seen.add((name, tuple(sorted(found.items()))))
        current.samples.append((name, found, float(value)))
    for family in families.values():
        assert family.samples and family.help, family.name
        if family.kind == "histogram":
            check_histogram(family)
    return families


def check_histogram(family):
    buckets = [(float(labels["le"]), value) for name, labels, value in family.samples if name.endswith("_bucket")]
    count, = (value for name, _, value in family.samples if name.endswith("_count"))
    assert buckets == sorted(buckets) and buckets[-1] == (float("inf"), count), family.name
    assert [value for _, value in buckets] == sorted(value for _, value in buckets), family.name


def setUpModule():
    global server
    server = serve("--max-batch", "2", "--pages", "40")


def scrape():
    answer = server.get("/metrics")
    assert answer.status == 200 and answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"), answer.headers
    return parse(answer.body.decode())


class Parser(unittest.TestCase):
    """That the parser above would see what is wrong."""

    def test_planted_faults_are_found(self):
        good = ("# HELP a Count\n# TYPE a counter\na{x=\"1\"} 1\na{x=\"2\"} 2\n# HELP h Time\n# TYPE h histogram\n"
                "h_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 3\nh_sum 1.5\nh_count 3\n")
        self.assertEqual(2, parse(good)["a"].of(x="2"))
        for right, wrong in (("a{x=\"2\"}", "a{x=\"1\"}"), ("# HELP a Count\n", ""), ("# TYPE a counter\n", ""),
                             ("h_count 3", "h_count 4"), ("le=\"1\"} 2", "le=\"1\"} 5"), ("{x=\"1\"}", "{x=1}"), ("counter", "count"),
                             ("h_sum 1.5\n", "a{x=\"3\"} 1\nh_sum 1.5\n"), ("h_count 3\n", "h_count 3\n# HELP a Count\n"),
                             ("h_count 3\n", "h_count 3"), ("a{x=\"1\"} 1", "a{x=\"1\"} one")):
            self.assertIn(right, good)
            with self.assertRaises((AssertionError, ValueError), msg=wrong):
                parse(good.replace(right, wrong, 1))


class ModelServerProtocol(unittest.TestCase):
    def test_both_interfaces_answer(self):
        self.assertEqual(200, server.completions(model="demo", prompt=STORY, max_tokens=1).status)
        self.assertEqual(200, server.chat(model="demo", messages=[{"role": "user", "content": STORY}], max_tokens=1).status)

    def test_the_gauges_tell_queue_running_and_use_of_the_cache(self):
        def gauges():
            families = scrape()
            for name in ("num_requests_waiting", "num_requests_running", "kv_cache_usage_perc"):
                self.assertEqual("gauge", families["vllm:" + name].kind)
            return [families["vllm:" + name].of(model_name="demo", engine="0")
                    for name in ("num_requests_waiting", "num_requests_running", "kv_cache_usage_perc")]
        server.until(lambda: gauges() == [0, 0, 0])
        connection, response = server.begin("/v1/completions", prompt=STORY, n=5, max_tokens=900, ignore_eos=True, stream=True)
        response.readline()
        server.until(lambda: gauges()[:2] == [3, 2])
        self.assertTrue(0 < gauges()[2] <= 1, gauges())
        response.close()
        connection.close()
        server.until(lambda: gauges() == [0, 0, 0])

    def test_the_cache_is_described_by_labels(self):
        info = scrape()["vllm:cache_config_info"]
        (_, labels, value), = info.samples
        self.assertEqual((1, "40"), (value, labels["num_gpu_blocks"]))
        self.assertLess(0, int(labels["block_size"]))
        self.assertEqual("auto", labels["cache_dtype"])
        self.assertNotIn("vllm:lora_requests_info", scrape())  # there are no adapters

    def test_counters_and_histograms_of_dashboards_count_a_request(self):
        names = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:prefix_cache_queries_total",
                 "vllm:prefix_cache_hits_total", "vllm:num_preemptions_total")
        histograms = ("time_to_first_token_seconds", "inter_token_latency_seconds", "request_time_per_output_token_seconds",
                      "e2e_request_latency_seconds", "request_queue_time_seconds", "request_prefill_time_seconds",
                      "request_decode_time_seconds", "request_inference_time_seconds", "request_prompt_tokens",
                      "request_generation_tokens", "iteration_tokens_total")

        def numbers():
            families = scrape()
            for name in names:
                self.assertEqual("counter", families[name].kind)
            counts = {name: next(value for sample, _, value in families["vllm:" + name].samples if sample.endswith("_count"))
                      for name in histograms}
            return {name: families[name].of() for name in names}, counts, families["vllm:request_success_total"].of(
                finished_reason="length")
        before, before_counts, before_ends = numbers()
        server.completions(prompt=[0, 5, 6, 7], max_tokens=6, ignore_eos=True)
        after, counts, ends = numbers()  # at once: who has the answer is counted
        self.assertEqual(1, ends - before_ends)
        self.assertEqual([4, 6, 4, 0, 0], [after[name] - before[name] for name in names])
        self.assertEqual(5, counts["inter_token_latency_seconds"] - before_counts["inter_token_latency_seconds"])
        for name in histograms:
            self.assertLess(before_counts[name], counts[name], name)


class Routers(unittest.TestCase):
    def test_production_stack_reads_models_health_and_gauges(self):
        model, = server.get("/v1/models").json["data"]
        for name, kind in (("id", str), ("object", str), ("created", int), ("owned_by", str), ("root", str)):
            self.assertIsInstance(model[name], kind, name)
        self.assertIsNone(model["parent"])  # else it is an adapter
        self.assertEqual(200, server.get("/health").status)

        def samples():
            return {name: value for family in scrape().values() for name, _, value in family.samples}
        server.until(lambda: samples()["vllm:num_requests_running"] + samples()["vllm:num_requests_waiting"] == 0)

    def test_smg_finds_the_dialect_and_the_length_of_the_context(self):
        answer = server.get("/v1/models").json
        self.assertEqual("list", answer["object"])
        self.assertEqual(1024, answer["data"][0]["max_model_len"])
        self.assertNotIn(answer["data"][0]["owned_by"], ("sglang", "trtllm"))  # whose own interface we do not have
        self.assertIsInstance(server.get("/version").json["version"], str)     # then it speaks vLLM's
        for path in ("/server_info", "/get_server_info", "/v1/loads"):
            self.assertEqual(404, server.get(path).status, path)

    def test_a_gateway_that_asks_for_usage_gets_it(self):
        chunks = server.completions(prompt=STORY, max_tokens=2, stream=True, stream_options={"include_usage": True}).chunks
        self.assertEqual(([], 7), (chunks[-1]["choices"], chunks[-1]["usage"]["total_tokens"]))

    def test_the_id_of_a_request_goes_through(self):
        self.assertEqual("gw-1", server.get("/v1/models", **{"x-request-id": "gw-1"}).headers["x-request-id"])


if __name__ == "__main__":
    unittest.main()
