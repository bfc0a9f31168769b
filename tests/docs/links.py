"""Finds broken links in Markdown: files that are not there, and anchors that no heading makes. No network: of an address
only the form is looked at."""
import pathlib
import re
import subprocess
import urllib.parse

LINK = re.compile(r"""!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(\s*<?([^)\s>]*)>?(?:\s+"[^"]*")?\s*\)""")
REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]:\s+<?(\S+?)>?(?:\s|$)", re.M)
HTML = re.compile(r"""<(?:img|a)\b[^>]*?\b(?:src|href)=["']([^"']*)["']""")


def tracked_pages(root):
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"], cwd=root,
                            capture_output=True, text=True)
    if listed.returncode:  # an archive, not a checkout
        return [path for path in sorted(root.rglob("*.md")) if not path.relative_to(root).parts[0].startswith("build")]
    return [root / name for name in listed.stdout.split("\0") if name and (root / name).exists()]


def prose(text):
    """The text without code, in which nothing is a link or a heading; lines keep their numbers."""
    text = re.sub(r"^ {0,3}(`{3,}|~{3,}).*?^ {0,3}\1[`~]*[ \t]*$", lambda block: "\n" * block[0].count("\n"), text, flags=re.M | re.S)
    return re.sub(r"(?<!`)(`+)(?!`)[^\n]*?(?<!`)\1(?!`)", lambda code: " " * len(code[0]), text)


def anchors(text):
    """Of its headings, as GitHub makes them, and of its own <a name> and id."""
    text = re.sub(r"^ {0,3}(`{3,}|~{3,}).*?^ {0,3}\1[`~]*[ \t]*$", "", text, flags=re.M | re.S)
    found = set(re.findall(r"""<\w+\b[^>]*?\b(?:id|name)=["']([^"']+)["']""", text))
    seen = {}
    for title in re.findall(r"^ {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*[ \t]*$", text, re.M):
        title = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", title)
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        number = seen.get(anchor, 0)
        seen[anchor] = number + 1
        found.add(f"{anchor}-{number}" if number else anchor)
    return found


def broken_links(pages, root):
    """One line for each link that leads nowhere: `page:line: link: why`."""
    problems = []
    for page in pages:
        text = prose(page.read_text())
        for pattern in (LINK, REFERENCE, HTML):
            for match in pattern.finditer(text):
                why = why_broken(match[1], page, root)
                if why:
                    problems.append(f"{page.relative_to(root)}:{text.count(chr(10), 0, match.start()) + 1}: {match[1]}: {why}")
    return problems


def why_broken(target, page, root):
    parts = urllib.parse.urlsplit(target)
    if parts.scheme in ("http", "https"):
        return None if re.fullmatch(r"[\w.-]+\.\w+(:\d+)?", parts.netloc) else "no such host can be"
    if parts.scheme:
        return f"a link of kind {parts.scheme}"
    if not target:
        return "empty"
    other = (page.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else page
    if not other.is_relative_to(root.resolve()):
        return "outside the repository"
    if not other.exists():
        return "no such file"
    if parts.fragment and other.suffix == ".md" and urllib.parse.unquote(parts.fragment) not in anchors(other.read_text()):
        return "no such heading"
    return None
