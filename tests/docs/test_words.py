# Comments and documents name their subjects: no sentence hides one behind a phrase that a reader has to resolve. The
# phrases below were the ones that stopped readers most; each has a plain form.
import os
import re
import subprocess
import unittest

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PHRASES = {
    r"^Of ": "begin with the subject",
    r"\b[Ww]ho(?:m|so)?ever\b": "name the caller, the client, the thread",
    r"\b(?:in|of|by|on|with|for|at most) so many\b": "name the number",
    r"\b[Ww]hat follows\b": "the rest, the successors, the columns from n on",
    r"\b(?:is|are) told\b": "reported, answered, refused, distinguished",
    r"\bis anything\b(?! else| to)": "is undefined",
}
COMMENT = {".md": None, ".py": re.compile(r"(?:^|\s)# ?(.*)$")}
CODE = re.compile(r"(?:^|[\s;,{}()])// ?(.*)$")


def sentences_of(path):
    """The commented part of each line, with the line's number; of a document every line outside code blocks."""
    kind = os.path.splitext(path)[1]
    pattern, in_code = COMMENT.get(kind, CODE), False
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if kind == ".md":
                in_code ^= line.startswith("```")
                if not in_code and not line.startswith("|"):
                    yield number, line.strip()
            elif found := pattern.search(line.rstrip("\n")):
                yield number, found[1].strip()


def complaints_about(path):
    return ["%s:%d: %r: %s" % (path, number, found[0], advice)
            for number, text in sentences_of(path) for phrase, advice in PHRASES.items()
            if (found := re.search(phrase, text))]


class Words(unittest.TestCase):
    def test_no_phrase_hides_its_subject(self):
        files = subprocess.run(["git", "ls-files", "*.h", "*.cpp", "*.cu", "*.cuh", "*.md", "*.py"], cwd=SOURCE, check=True,
                               capture_output=True, text=True).stdout.split()
        own = os.path.relpath(os.path.abspath(__file__), SOURCE)
        files = [f for f in files if f != own and not f.startswith(("third_party/", "docs/decisions/", "CHANGELOG"))
                 and os.path.exists(os.path.join(SOURCE, f))]
        self.assertGreater(len(files), 1000)
        self.assertEqual([], [complaint for path in files for complaint in complaints_about(path)])

    def test_each_phrase_is_found(self):
        for text in ("Of a row its tokens.", "for whoever asks", "a step of so many rows", "what follows them",
                     "the last column is anything"):
            self.assertTrue(any(re.search(phrase, text) for phrase in PHRASES), text)


if __name__ == "__main__":
    unittest.main()
