#!/usr/bin/env python3
"""Every error text that docs/troubleshooting.md explains is one that the library still says; each page is in its index once;
decisions have a status and a date; results that pages name are there; the README is short."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/troubleshooting.md"


def sources():
    files = [path for folder in ("graph", "runtime", "cpu_driver", "models", "engine", "serve") for path in (ROOT / folder).rglob("*") if path.suffix in (".cpp", ".h")]
    text = "\n".join(path.read_text() for path in files)
    return re.sub(r'"\s*\n\s*"', "", text)  # literals that the compiler joins


class PagesTest(unittest.TestCase):
    def test_the_library_says_every_text_that_the_page_explains(self):
        said = sources()
        texts = [text for title in re.findall(r"^### (.*)$", PAGE.read_text(), re.M) for text in re.findall("`(.*?)`", title)]
        self.assertGreater(len(texts), 30)
        self.assertEqual([text for text in texts if text.removeprefix("cannot ") not in said], [])

    def test_every_page_is_in_its_index_once(self):
        for folder in (ROOT / "docs", ROOT / "docs/decisions"):
            table = [line for line in (folder / "README.md").read_text().splitlines() if line.startswith("| [")]
            linked = [re.match(r"\| \[[^]]*\]\(([^)]*)\)", line)[1] for line in table]
            pages = [page.name for page in folder.glob("*.md") if page.name != "README.md"]
            pages += [f"{inner.name}/README.md" for inner in folder.iterdir() if (inner / "README.md").exists()]
            self.assertEqual(sorted(linked), sorted(pages))

    def test_the_index_has_four_kinds_of_page(self):
        kinds = re.findall(r"^## ([\w-]+): ", (ROOT / "docs/README.md").read_text(), re.M)
        self.assertEqual(kinds, ["Tutorial", "How-to", "Reference", "Explanation"])

    def test_a_decision_has_the_status_and_date_of_the_index(self):
        index = (ROOT / "docs/decisions/README.md").read_text()
        decisions = sorted((ROOT / "docs/decisions").glob("0*.md"))
        self.assertGreater(len(decisions), 8)
        for page in decisions:
            title, status = page.read_text().split("\n\n")[:2]
            found = re.match(r"\*\*Status\.\*\* (Accepted|Superseded by \[\d{4}\]\(\S+\)), (20\d\d-\d\d-\d\d)\.", status)
            self.assertTrue(found, page.name)
            row = f"| [{page.name[:4]}]({page.name}) | {title[2:]} |"
            line, = [line for line in index.splitlines() if line.startswith(row)]
            self.assertTrue(line.endswith(f"| {found[1].lower()} | {found[2]} |"), line)

    def test_results_are_those_that_pages_and_sources_name(self):
        kept = {path.name for path in (ROOT / "bench/results").iterdir()}
        named, name = set(), re.compile(r"\b20\d\d-\d\d-\d\d-[\w.-]+?\.(?:json|txt)\b")
        pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        for path in pages:
            named.update(name.findall(path.read_text()))
        self.assertEqual(named - kept, set())
        for folder in ("runtime", "cpu_driver", "graph", "kernels_src", "base", "text", "models", "engine", "bench", "cli", "examples", "tests"):
            for path in (ROOT / folder).rglob("*"):
                if path.suffix in (".h", ".cpp", ".cu", ".cuh", ".py", ".md"):
                    named.update(name.findall(path.read_text()))
        self.assertEqual(kept - named, set(), "no page and no source names these files of bench/results")
        self.assertEqual(named - kept, set())

    def test_the_readme_is_a_front_door(self):
        text = (ROOT / "README.md").read_text()
        self.assertLessEqual(text.count("\n"), 150)
        self.assertLessEqual(len(text), 9000)


if __name__ == "__main__":
    unittest.main()
