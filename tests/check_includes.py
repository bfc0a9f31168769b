#!/usr/bin/env python3
# Rejects what the layout rules forbid: an include against the order of the folders, folders of one room that include each
# other in a circle, CUDA below a folder that knows none, a kernel source that includes more than kernels, a file named
# after nothing in particular, a file that does not say what it is, a folder of more sources than one can survey.
#   check_includes.py ROOT    one line per violation, exit 1 if there is one
import collections
import os
import posixpath
import re
import sys

BELOW = {                                         # what each folder may include beside itself
    "cpu_driver": (),                             # and CONTRACT
    "runtime": (),
    "graph": ("runtime",),
    "base": (),                                   # and ERROR
    "text": ("base",),                            # and ERROR
    "models": ("base", "graph", "runtime"),
    "engine": ("text", "models", "base", "graph", "runtime"),
    "serve": ("engine", "text", "models", "base", "graph", "runtime"),
}
ORDER = "%s -> serve -> engine -> {text, models} -> graph -> runtime, base below text and models"
TOP = ("cli", "bench", "examples", "tests")       # may include BELOW and themselves; cli and tests also MEASURES
MEASURES = ("bench/", "examples/nanogpt/")        # what `nodewright bench` runs; the second includes the first
ERROR = "runtime/error.h"                         # all of runtime that base and text see
PURE = ("base", "text", "engine/cache", "engine/schedule")  # nothing that they include, directly or not, is of CUDA
CUDA = re.compile(r"(cuda|cublas|nvrtc|nvtx|nvml)\w*\.(h|hpp)$|cuda/")
LEAVES = "kernels_src"                            # may be included by all but base and text, includes itself alone
EMULATION = "cpu_driver/emulation.h"              # the one exception: what DIALECT includes for the host compiler
DIALECT = "kernels_src/device/dialect.cuh"
SEALED = "cpu_driver"                             # opened at run time: included from inside and by the tests alone
CONTRACT = ("runtime/calls/child_ownership.h", "runtime/calls/cpu_driver_api.h", "runtime/calls/driver_entries.h",
            "runtime/host/held_signals.h")        # all of runtime that the CPU driver sees: what both agree on
# Arrows inside a room that close a circle and are still there. No others may come; one that goes leaves this list.
CLOSING = {"cpu_driver/work": ("cpu_driver/graphs",), "serve/tools": ("serve/api", "serve/api/asked", "serve/fields")}
NO_ORDER_INSIDE = ("tests",)                      # its folders share fixtures in every direction
MOST_SOURCES = 25                                 # in one folder, without those below it

SOURCES = (".h", ".cpp", ".cu", ".cuh")
COUNTED = SOURCES + (".py", ".sh", ".js", ".css", ".html", ".cmake")
COMMENTED = SOURCES + (".py", ".sh", ".cmake")    # files whose first line (after #!) must say what they are
# Goldens, the fuzzers' inputs and recorded results are no sources; tests/package/stranger is somebody else's project.
NOT_OURS = ("golden", "corpus", "results", "__pycache__", "stranger")
SHAPELESS_NAMES = {"utils", "util", "common", "misc", "helpers", "helper"}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
ANY_INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)


def main(root):
    paths = project_files(root)
    violations = [violation for path in paths for violation in check_file(path, read(root, path))]
    violations += [violation for path in paths for violation in check_purity(root, path)]
    texts = {path: read(root, path) for path in paths if path.endswith(SOURCES)}
    violations += check_circles(texts) + check_sizes(project_files(root, COUNTED))
    for violation in violations:
        print(violation, file=sys.stderr)
    print("%d violations" % len(violations) if violations else "layout: every include follows the order of the folders")
    return 1 if violations else 0


def project_files(root, endings=COMMENTED):
    """Paths of the project's own sources, relative to root; no build folders, no third_party."""
    found = []
    for folder in (*BELOW, *TOP, LEAVES, "cmake", "demo", "docs"):
        for where, folders, files in os.walk(os.path.join(root, folder)):
            folders[:] = [name for name in folders if name not in NOT_OURS]
            found += [os.path.relpath(os.path.join(where, name), root) for name in files]
    return sorted(path for path in found if path.endswith(endings))


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def check_file(path, text):
    """Violations of one file as sentences that begin with its path."""
    found = ["%s: includes %s, but %s" % (path, target, why)
             for target in INCLUDE.findall(text) for why in [why_forbidden(path, target)] if why]
    stem = os.path.basename(path).split(".")[0]
    if SHAPELESS_NAMES & set(stem.split("_")):
        found.append("%s: the name says nothing; name the file after what it holds" % path)
    if not opens_with_comment(path, text):
        found.append("%s: the first line must say, in a comment, what the file is" % path)
    return found


def why_forbidden(path, target):
    """The rule that forbids `path` to include `target`, or None. Both are paths from the root."""
    source, goal = path.split("/")[0], target.split("/")[0]
    if "/" not in target:
        return "an include in quotes is a path from the root of the project"
    if goal not in (*BELOW, *TOP, LEAVES):
        return None  # third-party, or made by the build
    if source == LEAVES:
        if goal == LEAVES or (path, target) == (DIALECT, EMULATION):
            return None
        return "kernels include kernels_src only"
    if source in ("base", "text"):
        if goal == source or goal in BELOW[source] or target == ERROR:
            return None
        return "%s includes %s alone" % (source, " and ".join((source, *BELOW[source], ERROR)))
    if goal == LEAVES:
        return None
    if source == SEALED:
        return None if goal == SEALED or target in CONTRACT else "%s includes of runtime %s alone" % (
            SEALED, ", ".join(CONTRACT))
    if goal == SEALED:
        return None if source == "tests" else "%s is opened at run time: runtime/calls/cpu_driver_api.h" % SEALED
    if source in TOP:
        if target.startswith(MEASURES) and (source in ("cli", "tests") or path.startswith(MEASURES[1])):
            return None
        return None if goal in (*BELOW, source) else "%s and %s must not know each other" % (source, goal)
    if goal != source and goal not in BELOW[source]:
        return "the order is " + ORDER % ", ".join(TOP)
    return None


def check_circles(texts):
    """A sentence for each circle of folders inside a room, and for each of CLOSING that closes none. `texts`: by path.
    A folder and those below it are one matter: what lies in it is the face of what lies below."""
    arrows = {}  # from folder to folder: the first include
    for path, text in sorted(texts.items()):
        source = posixpath.dirname(path)
        for target in INCLUDE.findall(text):
            goal = posixpath.dirname(target)
            apart = not (source + "/").startswith(goal + "/") and not (goal + "/").startswith(source + "/")
            if apart and source.split("/")[0] == goal.split("/")[0] and source.split("/")[0] not in NO_ORDER_INSIDE:
                arrows.setdefault(source, {}).setdefault(goal, "%s includes %s" % (path, target))
    found = ["%s: includes nothing of %s that closes a circle; take it from CLOSING" % (source, goal)
             for source in CLOSING if any(path.startswith(source + "/") for path in texts)
             for goal in CLOSING[source] if not way(arrows, goal, source) or goal not in arrows.get(source, {})]
    for source, goals in CLOSING.items():
        for goal in goals:
            arrows.get(source, {}).pop(goal, None)
    seen = set()
    for source in sorted(arrows):
        for goal in sorted(arrows[source]):
            back = way(arrows, goal, source)
            if back and not seen & {source, goal}:
                circle = [source, *back]
                seen.update(circle)
                found.append("%s: folders of a room include each other in a circle: %s" % (
                    source, "; ".join(arrows[a][b] for a, b in zip(circle, circle[1:]))))
    return found


def way(arrows, start, end):
    """The folders from `start` to `end` along arrows, both among them; None where there is no way."""
    ways = [(start,)]
    seen = {start}
    for folders in ways:
        if folders[-1] == end:
            return folders
        for goal in sorted(arrows.get(folders[-1], {})):
            if goal not in seen:
                seen.add(goal)
                ways.append((*folders, goal))
    return None


def check_sizes(paths):
    """A sentence for each folder with more than MOST_SOURCES of these."""
    counts = collections.Counter(posixpath.dirname(path) for path in paths)
    return ["%s: has %d sources, and a folder may have %d: give some a folder of their own" % (
        folder, count, MOST_SOURCES) for folder, count in sorted(counts.items()) if count > MOST_SOURCES]


def check_purity(root, path):
    """A sentence with the includes that lead from `path`, a file of PURE, to CUDA; none where nothing leads there."""
    if not path.endswith(SOURCES) or not path.startswith(tuple(folder + "/" for folder in PURE)):
        return []
    seen, chains = {path}, [(path,)]
    for chain in chains:
        for target in ANY_INCLUDE.findall(read(root, chain[-1])):
            if CUDA.search(target):
                return ["%s: knows CUDA, and %s must not: %s" % (path, posixpath.dirname(path), " -> ".join((*chain, target)))]
            if target not in seen and os.path.isfile(os.path.join(root, target)):
                seen.add(target)
                chains.append((*chain, target))
    return []


def opens_with_comment(path, text):
    """Also true for a .cpp that opens with the header it implements or tests: that header says what it is."""
    lines = text.split("\n")
    if lines[0].startswith("#!"):
        lines = lines[1:]
    first = lines[0] if lines else ""
    if path.endswith(".cpp") and INCLUDE.match(first):
        return True
    return first.startswith("//" if path.endswith(SOURCES) else ("#", '"""'))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
