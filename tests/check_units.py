#!/usr/bin/env python3
"""Compiles sources one by one, without the unity builds that hide a missing #include:

    check_units.py BUILD              those of the last commits, newest first, at most 4: what `make test` can wait for
    check_units.py BUILD --all        every source
    check_units.py BUILD FILE...      these

With --tidy clang-tidy reads them, too, which takes ten times as long: `make tidy` has both for all that changed since the
last release."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
MOST = 4
OF_OTHERS = ("third_party/", "tests/package/")  # the latter are projects of their own
TIDY = "clang-tidy-16"


def git(*words):
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.split() if done.returncode == 0 else []


def sources(names):
    """Those that the build compiles, in their order, once."""
    return [name for name in dict.fromkeys(names)
            if name.endswith(".cpp") and not name.startswith(OF_OTHERS) and (ROOT / name).exists()]


def changed_since_release():
    release = subprocess.run(["cmake/last_release.sh"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    return sources(git("diff", "--name-only", release) if release else git("ls-files", "*.cpp"))


def changed_last():
    """What is not committed yet, and what the last 20 commits changed, the newest first."""
    return sources([*git("diff", "--name-only", "HEAD"), *git("log", "-20", "--format=", "--name-only")])


def commands_of(build):
    """The compiler's words, all but input and output: by its name for a source that the build compiles by itself, which
    may have definitions of its own; by the folder of the build for those of its batches, whose programs may include
    from several places."""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = [word for word in shlex.split(entry["command"]) if not word.endswith("ccache")]
        folder = words[words.index("-o") + 1].split("/")[0]
        for flag in ("-o", "-c", "-MT", "-MF"):
            if flag in words:
                del words[words.index(flag):words.index(flag) + 2]
        words = [word for word in words if word != "-MD"]
        commands[os.path.relpath(entry["file"], ROOT)] = words
        batch = commands.setdefault(folder, list(words))
        batch += [word for word in words if word.startswith("-I") and word not in batch]
    return commands


def command_for(name, commands):
    return commands.get(name) or commands.get(name.split("/")[0]) or commands["cli"]


def complaints(name, commands, tidy):
    """What the compiler and clang-tidy say of a source; empty where nothing."""
    command = command_for(name, commands)
    runs = [[*command, "-fsyntax-only", name]]
    if tidy:
        runs.append([tidy, "--quiet", name, "--", *command[1:]])
    said = ""
    for words in runs:
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            said += done.stderr if words[0] != tidy else done.stdout
    return re.sub(r"^\d+ warnings? .*generated\.\n", "", said, flags=re.M)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--tidy", action="store_true")
    options = parser.parse_args()
    changed = changed_since_release if options.tidy else lambda: changed_last()[:MOST]
    names = options.files or (sources(git("ls-files", "*.cpp")) if options.all else changed())
    commands, failed = commands_of(options.build), []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, said in zip(names, pool.map(lambda name: complaints(name, commands, TIDY if options.tidy else None), names)):
            if said:
                failed.append(name)
                print(f"{name}:\n{said}", flush=True)
    print(f"{len(names)} sources alone, {len(failed)} with complaints{': ' if failed else ''}{', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
