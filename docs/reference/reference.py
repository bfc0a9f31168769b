#!/usr/bin/env python3
"""The API reference of the public headers, with Doxygen. reference.py FOLDER [HEADER...] writes FOLDER/html and prints
every public name that has no comment; then it exits with 1. Without headers: those of include/public_headers.txt.

A member also counts as described where the comment of its struct or enumeration has its name as a word. Copies, moves,
destructors and defaulted comparisons need no comment."""
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
FRONT = "include/nodewright/nodewright.h"


def main(folder, *headers):
    names = undocumented(pathlib.Path(folder), headers or public_headers())
    print("\n".join(names) if names else "every public name has a comment")
    return 1 if names else 0


def public_headers():
    lines = (ROOT / "include/public_headers.txt").read_text().splitlines()
    return [FRONT, *(line.split()[0] for line in lines if not line.startswith("#"))]


def undocumented(folder, headers, html=True):
    """Runs Doxygen on headers of the project. Sentences, one a name."""
    for header in headers:
        (ROOT / header).stat()  # Doxygen takes no notice of a file that is not there
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "PROJECT_NAME": "Nodewright",
        "PROJECT_BRIEF": '"CUDA graphs built node by node"',
        "OUTPUT_DIRECTORY": folder,
        "INPUT": " ".join(map(str, headers)),
        "INPUT_FILTER": f'"{sys.executable} {ROOT}/docs/reference/comments.py"',
        "STRIP_FROM_PATH": ROOT,
        "EXTRACT_ALL": "YES",
        "HIDE_IN_BODY_DOCS": "YES",
        "JAVADOC_AUTOBRIEF": "YES",
        "EXCLUDE_SYMBOLS": "*_detail* NODEWRIGHT_ENTRY NODEWRIGHT_FIELDS",
        "MACRO_EXPANSION": "YES",
        "EXPAND_ONLY_PREDEF": "YES",
        "GENERATE_HTML": "YES" if html else "NO",
        "GENERATE_XML": "YES",
        "GENERATE_LATEX": "NO",
        "HAVE_DOT": "NO",
        "SHOW_HEADERFILE": "NO",  # it would name the header without its folder
        "QUIET": "YES",
        "WARNINGS": "NO",
    }
    text = "".join(f"{name} = {value}\n" for name, value in settings.items())
    subprocess.run(["doxygen", "-"], input=text, text=True, check=True, cwd=ROOT)
    files = sorted((folder / "xml").glob("*.xml"))
    compounds = [compound for file in files for compound in xml.etree.ElementTree.parse(file).iter("compounddef")]
    hidden = tuple(compound.findtext("compoundname") for compound in compounds if compound.get("prot") == "private")
    inside = tuple(name + "::" for name in hidden)
    names = set()
    for compound in compounds:
        name = compound.findtext("compoundname")
        if name not in hidden and not name.startswith(inside):
            names.update(undocumented_in(compound))
    return sorted(names)


def undocumented_in(compound):
    kind, name = compound.get("kind"), compound.findtext("compoundname")
    if kind not in ("struct", "class", "union", "concept", "namespace", "file"):
        return
    if kind not in ("namespace", "file") and not description(compound):
        yield f"{place(compound)}: {kind} {name}"
    words = set(re.findall(r"\w+", description(compound))) if kind not in ("namespace", "file") else set()
    for member in compound.iter("memberdef"):
        if member.get("prot") != "public" or needs_no_comment(member, name):
            continue
        if not description(member) and member.findtext("name") not in words:
            yield f"{place(member)}: {member.get('kind')} {name}::{member.findtext('name')}{member.findtext('argsstring') or ''}"
        values = set(re.findall(r"\w+", description(member)))
        for value in member.iter("enumvalue"):
            is_macro = value.findtext("name").startswith("NODEWRIGHT_")  # of enumerators
            if not is_macro and not description(value) and value.findtext("name") not in values:
                yield f"{place(member)}: enumerator {member.findtext('name')}::{value.findtext('name')}"


def needs_no_comment(member, owner):
    arguments, name = member.findtext("argsstring") or "", member.findtext("name")
    own = re.sub(r"<.*", "", owner.split("::")[-1]).strip()
    moves_or_copies = re.match(r"\((const )?%s(< .* >)? ?&{1,2}\w*( \w+)?\)" % re.escape(own), arguments.replace(" &", "&"))
    return (member.get("kind") == "friend" or name.startswith("~") or (name in (own, "operator=") and moves_or_copies)
            or (name == own and arguments.replace(" ", "") == "()=default") or (name.startswith("operator==") and "=default" in arguments) or name.startswith("@"))


def description(element):
    parts = (element.find(part) for part in ("briefdescription", "detaileddescription"))
    return " ".join("".join(part.itertext()) for part in parts if part is not None).strip()


def place(element):
    return re.sub(r"^%s/" % re.escape(str(ROOT)), "", element.find("location").get("file"))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
