#!/usr/bin/env python3
"""Doxygen's input filter: comments.py HEADER prints the header with its plain comments in Doxygen's form.

The comment at the top describes the file. A comment above a declaration describes it, and the declarations below it up
to the next blank line or comment; one behind a declaration describes that. Indented lines of a comment are code."""
import re
import sys

COMMENT = re.compile(r"^(\s*)//(?!/) ?(.*)$")
TRAILING = re.compile(r"^(.*\S)\s+// (.*)$")
VALUE = r"\w+(?:\s*=\s*[^,;(){}]+)?"
SEVERAL = re.compile(r"^(\s*)([\w:]+(?:<[\w:<>, *]+>)?) (%s(?:, %s)+);$" % (VALUE, VALUE))  # int a = 0, b = 0;
DECLARES_NOTHING = ("}", "#", "private:", "public:", "protected:", "else", "requires", "friend")


def main(path):
    with open(path, encoding="utf-8") as file:
        head = "@mainpage Nodewright" if path.endswith("nodewright.h") else "@file"
        print("\n".join(converted(file.read().split("\n"), head)))


def converted(source, head):
    """`head`: of the comment at the top."""
    out, depth, i = [], 0, 0
    first = shared = None  # the comment above: for the next line, and for declarations that share it
    shared_depth, ended = 0, False
    while i < len(source):
        block = comment_at(source, i)
        if block:
            text = as_doxygen(block)
            if i == 0:
                out.append("/** %s\n%s */" % (head, text))
            i += len(block)
            first = shared = None if i == len(block) else text
            shared_depth, ended = depth, False
            continue
        code, i = source[i], i + 1
        trailing = TRAILING.match(code)
        if trailing:
            code, text = trailing[1], [trailing[2]]
            column = source[i - 1].rindex("// " + trailing[2])
            more = comment_at(source, i) if indented(source, i, column) else []
            i += len(more)
            text = "\n\n".join(filter(None, (first, as_doxygen(text + more))))
            out.append(documented(code, None if declares_nothing(code) else text))
            first = None
        elif not code.strip():
            first = shared = None
            out.append(code)
        else:
            shares = ended and depth == shared_depth and not declares_nothing(code)
            out.append(documented(code, first or (shared if shares else None)))
            first = None
        bare = re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])\'', '""', code)
        depth += sum(map(bare.count, "({[")) - sum(map(bare.count, ")}]"))
        ended = code.rstrip().endswith((";", "}"))
    return out


def documented(code, text):
    """The declaration after its comment; several of one type each after it."""
    if text is None:
        return code
    several = SEVERAL.match(code)
    if not several:
        return "/** %s */ %s" % (text, code)
    return "".join("/** %s */ %s %s; " % (text, several[2], one) for one in several[3].split(", "))


def comment_at(source, i):
    """The text of the comment lines from line i on."""
    block = []
    while i + len(block) < len(source) and COMMENT.match(source[i + len(block)]):
        block.append(COMMENT.match(source[i + len(block)])[2])
    return block


def indented(source, i, column):
    """Whether line i goes on with the comment that began behind code in this column."""
    return i < len(source) and COMMENT.match(source[i]) and len(COMMENT.match(source[i])[1]) >= column


def declares_nothing(code):
    return code.strip().startswith(DECLARES_NOTHING)


def as_doxygen(lines):
    text, in_code = "", False
    for line in lines:
        is_code = line.startswith("  ")
        if is_code != in_code:
            text += "@code{.cpp}\n" if is_code else "@endcode\n"
            in_code = is_code
        text += (line if is_code else re.sub(r"([\\@<>&#%])", r"\\\1", line)) + "\n"
    return (text + ("@endcode" if in_code else "")).strip().replace("/*", "/ *").replace("*/", "* /")


main(sys.argv[1])
