#!/usr/bin/env python3
"""Renders every chat template of llama-cpp-python's sdist in every conversation of conversations.py, here and in
transformers: each case must give the same text in both, or be refused by both. Exit 1 where one does not.

    check_templates.py             `make check-templates` has what it needs: render_cases, requirements.txt, network once
    check_templates.py NAME ...    only templates whose file's name holds one of these
    check_templates.py --show      also the cases that both refuse, with the reason of each

The sdist (76 MB, MIT) is fetched once; its templates stay in build/templates.
"""

import datetime
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from transformers.utils import chat_template_utils  # noqa: E402

from conversations import conversations  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = pathlib.Path(os.environ.get("NODEWRIGHT_RENDER_CASES", ROOT / "build/tests/render_cases"))
VERSION = "0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"  # of the sdist
TEMPLATES = 70
NOW = datetime.datetime(2024, 7, 6, 12, 30)
BOS, EOS = "<|startoftext|>", "<|endoftext|>"


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def fetched(place):
    """The folder of the templates, fetched where it is not there."""
    folder = place / VERSION
    if folder.is_dir():
        return folder
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as partial:
        print(f"Fetching the templates of llama-cpp-python {VERSION}", flush=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "llama-cpp-python", "--dest",
                        partial, f"llama-cpp-python=={VERSION}"], check=True)
        archive = next(pathlib.Path(partial).glob("*.tar.gz"))
        if (found := hashlib.sha256(archive.read_bytes()).hexdigest()) != SHA256:
            sys.exit(f"check_templates: {archive.name} has the sha256 {found}, not {SHA256}")
        out = pathlib.Path(partial) / "templates"
        out.mkdir()
        with tarfile.open(archive) as tar:
            for member in tar:
                path = pathlib.PurePosixPath(member.name)
                if member.isfile() and path.suffix == ".jinja" and path.parts[-3:-1] == ("models", "templates"):
                    (out / path.name).write_bytes(tar.extractfile(member).read())
        out.rename(folder)
    return folder


def theirs(source, variables):
    kwargs = {name: value for name, value in variables.items() if name not in ("messages", "tools", "add_generation_prompt")}
    try:
        texts, _ = chat_template_utils.render_jinja_template(
            conversations=[variables["messages"]], tools=variables.get("tools"), chat_template=source,
            add_generation_prompt=variables["add_generation_prompt"], bos_token=BOS, eos_token=EOS, **kwargs)
        return {"text": texts[0]}
    except Exception as error:  # of any kind: ours must refuse, too
        return {"refused": f"{type(error).__name__}: {error}"}


def ours(asked):
    lines = "".join(json.dumps(one) + "\n" for one in asked)
    done = subprocess.run([PROGRAM], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def difference(mine, other):
    """One line that tells how two answers differ."""
    if "text" not in mine:
        return f"refused here: {mine['refused']}"
    if "text" not in other:
        return f"refused by transformers alone: {other['refused']}"
    a, b = mine["text"], other["text"]
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return f"from character {at}: {a[max(at - 20, 0):at + 40]!r}, transformers {b[max(at - 20, 0):at + 40]!r}"


def main():
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    chat_template_utils.datetime = Clock
    files = sorted(fetched(ROOT / "build/templates").glob("*.jinja"))
    if len(files) != TEMPLATES:
        sys.exit(f"check_templates: {len(files)} templates, expected {TEMPLATES}")
    cases, asked = [], []
    for file in files:
        if words and not any(word in file.name for word in words):
            continue
        source = file.read_text(encoding="utf-8")
        for name, variables in conversations().items():
            variables.setdefault("add_generation_prompt", True)
            cases.append((file.stem, name, theirs(source, variables)))
            asked.append({"source": source, "bos_token": BOS, "eos_token": EOS, "variables": variables, "now": int(NOW.timestamp())})
    counts = {"rendered by both": 0, "refused by both": 0, "different": 0}
    for (stem, name, other), mine in zip(cases, ours(asked), strict=True):
        same = mine == other if "text" in other else "text" not in mine
        counts["different" if not same else "rendered by both" if "text" in other else "refused by both"] += 1
        if not same:
            print(f"{stem}, {name}: {difference(mine, other)}")
        elif "text" not in other and "--show" in sys.argv:
            print(f"  refused: {stem}, {name}: {other['refused'][:120]!r}; here {mine['refused'][-160:]!r}")
    print(f"{len({stem for stem, _, _ in cases})} templates, {len(cases)} cases: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
    sys.exit(counts["different"] > 0)


if __name__ == "__main__":
    main()
