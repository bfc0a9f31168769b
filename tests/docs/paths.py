"""Finds paths that lead nowhere: in code spans of Markdown, and in comments of sources. A path is a text whose first part
is a folder of the root; `a/*.h`, `a/{b,c}.h`, `a/b` for a/b.h and its .cpp, `a/b.h:12` and `a/NAME` are allowed."""
import fnmatch
import itertools
import re

SPAN = re.compile(r"(?<!`)(`+)(?!`)([^\n]*?)(?<!`)\1(?!`)")
PLACEHOLDER = re.compile(r"/[A-Z]{3,}(/|$)")
COMMENT = {"//": re.compile(r"(?:^|\s)///?(.*)"), "#": re.compile(r"(?:^|\s)#(?!include)(.*)")}
MARK = {".h": "//", ".cpp": "//", ".cu": "//", ".cuh": "//", ".js": "//", ".py": "#", ".sh": "#", ".cmake": "#", ".txt": "#"}


def expanded(path):
    """`a/{b,c}.h` as a/b.h and a/c.h."""
    parts = [re.split(",", part[1:-1]) if part.startswith("{") else [part] for part in re.split(r"(\{[^{}]*\})", path)]
    return ["".join(chosen) for chosen in itertools.product(*parts)]


class Paths:
    def __init__(self, files):
        """files: paths of tracked files, from the root, with slashes."""
        self.files = set(files)
        folders = {path.rsplit("/", depth)[0] for path in files for depth in range(1, path.count("/") + 1)}
        self.known = self.files | folders
        ends = (r"\.\w+$", r"(_test|_fuzzer)\.\w+$", r"(?<=/\d{4})-.*$")  # the last: a decision's number
        self.stems = {re.sub(end, "", path) for path in files for end in ends}
        tops = sorted({path.split("/")[0] for path in files if "/" in path})
        self.pattern = re.compile(rf"""(?<![\w./{{}}$<>~:@"-])(?:{"|".join(map(re.escape, tops))})/[\w./{{}},*-]*""")

    def leads_somewhere(self, path):
        return all(one in self.known or one in self.stems or ("*" in one and fnmatch.filter(self.known, one))
                   for one in expanded(path))

    def broken(self, text):
        found = (match[0].rstrip("./,-") for match in self.pattern.finditer(text))
        return [path for path in found
                if "/" in path and not PLACEHOLDER.search(path) and not self.leads_somewhere(path)]


def texts(name, content):
    """(line, text) for each place of the file in which a path is looked for."""
    suffix = name[name.rfind("."):]
    if suffix == ".md":
        for match in SPAN.finditer(content):
            yield content.count("\n", 0, match.start()) + 1, match[2]
    elif suffix in MARK:
        for number, line in enumerate(content.split("\n"), 1):
            match = COMMENT[MARK[suffix]].search(line)
            if match:
                yield number, match[1]


def broken_paths(contents, files):
    """One line, `file:line: path`, for each path in these files (name -> content) that none of `files` is."""
    paths = Paths(files)
    return [f"{name}:{line}: {path}" for name, content in contents.items() for line, text in texts(name, content)
            for path in paths.broken(text)]
