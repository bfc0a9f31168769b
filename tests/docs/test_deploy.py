# The files of deploy/: the dashboard and the page name metrics that the server has, and the manifests name its options.
import json
import os
import re
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def text(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def metrics():
    """What the server writes, as a scraper sees it."""
    source = text("serve/metrics/serve_metrics.cpp") + text("serve/server.cpp")
    names = set(re.findall(r'\.(?:gauge|counter)\("([\w:]+)"', source))
    for name in re.findall(r'\.histogram\("([\w:]+)"', source):
        names |= {name, name + "_bucket", name + "_sum", name + "_count"}
    return names


class Deploy(unittest.TestCase):
    def test_the_dashboard_reads_metrics_that_there_are(self):
        board = json.loads(text("deploy/grafana.json"))
        expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
        named = set(re.findall(r"(?:vllm:|nodewright_)\w+", " ".join(expressions)))
        self.assertGreater(len(named), 15)
        self.assertEqual(set(), named - metrics())
        places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
        self.assertEqual(len(places), len(set(places)))

    def test_the_page_lists_every_metric_and_no_other(self):
        listed = set(re.findall(r"`((?:vllm:|nodewright_)\w+)`", text("docs/serving.md")))
        whole = {name for name in metrics() if not re.search(r"_(bucket|sum|count)$", name) or name == "nodewright_graph_count"}
        self.assertEqual(set(), listed - whole)
        self.assertEqual(set(), whole - listed)

    def test_manifests_name_options_of_serve(self):
        options = set(re.findall(r"--[a-z][\w-]+", text("cli/serve/serve.cpp") + text("cli/session.cpp")
                                 + text("cli/options/folders/model_folder.cpp")))
        for path in ("deploy/kubernetes.yaml", "deploy/nodewright.service", "deploy/Containerfile"):
            named = {word for line in re.findall(r"(?:args:|ExecStart=|CMD).*", text(path)) for word in re.findall(r"--[\w-]+", line)}
            self.assertTrue(named, path)
            self.assertEqual(set(), named - options, path)

    def test_probes_are_paths_of_the_server(self):
        paths = set(re.findall(r"httpGet: {path: (/\w+)", text("deploy/kubernetes.yaml")))
        self.assertEqual({"/ready", "/health"}, paths)
        for path in paths:
            self.assertIn('"GET", "%s"' % path, text("serve/server.cpp"))


if __name__ == "__main__":
    unittest.main()
