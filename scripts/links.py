#!/usr/bin/env python3
"""Fails if a document or comment names a file or heading that does not exist.

Checked in all files that git tracks or would track:
* relative links of *.md, including the heading after # if the target is a *.md;
* paths in *.md that begin with a folder of the repository (crates/engine/src/context.rs), outside code blocks;
* paths docs/... in all other text files, including comments and help texts;
* docs/SUMMARY.md, the contents of the documentation site: each page of docs/ is in it.
A path may contain * and a trailing slash. CHANGELOG.md describes the past and is not checked.

Usage: scripts/links.py
"""

import glob
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+)\)")
# A path ends before the punctuation of its sentence. NAME, PATH and similar words are placeholders.
PATH = re.compile(r"(?<![\w./$<-])((?:%s)/[\w.*/+-]*[\w*/])")
DOCS_PATH = re.compile(r"(?<![\w./-])(docs/[\w.*/-]+\.(?:md|json)|docs/[\w/-]+/)(?![\w{])")
PLACEHOLDER = re.compile(r"NAME|VERB|DATE|TEST|PATH|FILE")


def list_files():
    try:
        out = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, check=True, capture_output=True, text=True,
        ).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        # Not a git clone, or a clone of another user: list everything except build output.
        out = [
            os.path.relpath(os.path.join(folder, name), ROOT)
            for folder, _, names in os.walk(ROOT)
            for name in names
            if not re.match(r"(\./)?(\.git|target)(/|$)", os.path.relpath(folder, ROOT))
        ]
    return sorted(f for f in set(out) if f and os.path.isfile(os.path.join(ROOT, f)))


def read(path):
    try:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError:
        return ""


def prose_lines(text):
    """Yields number and text of the lines outside code blocks."""
    in_block = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            in_block = not in_block
        elif not in_block:
            yield number, line


def anchor_of(heading):
    """The anchor that GitHub generates for a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors_of(path, known={}):
    if path not in known:
        known[path] = set()
        for _, line in prose_lines(read(path)):
            if line.startswith("#"):
                anchor, nth = anchor_of(line.lstrip("#")), 0
                while (name := anchor if nth == 0 else f"{anchor}-{nth}") in known[path]:
                    nth += 1
                known[path].add(name)
    return known[path]


def exists(path):
    full = os.path.join(ROOT, path)
    return bool(glob.glob(full)) if "*" in path else os.path.exists(full)


def is_external(target):
    """True for an address with a scheme, such as https:."""
    return bool(re.match(r"[a-z]+:", target))


def check_link(path, target):
    if is_external(target):
        return None
    name, _, anchor = target.partition("#")
    file = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
    if not exists(file):
        return f"link to {target}: no {file}"
    if anchor and file.endswith(".md") and anchor not in anchors_of(file):
        return f"link to {target}: {file} has no such heading"
    return None


def check_markdown(path, mentioned):
    for number, line in prose_lines(read(path)):
        for target in LINK.findall(line):
            if problem := check_link(path, target):
                yield number, problem
        for named in mentioned.findall(LINK.sub("", line)):
            if not PLACEHOLDER.search(named) and not exists(named):
                yield number, f"{named} does not exist"


def check_other(path):
    for number, line in enumerate(read(path).split("\n"), 1):
        for named in DOCS_PATH.findall(line):
            if not PLACEHOLDER.search(named) and not exists(named):
                yield number, f"{named} does not exist"


def pages_without_entry(files):
    """The pages of docs/ that SUMMARY.md does not name."""
    named = {os.path.normpath(f"docs/{target}") for target in LINK.findall(read("docs/SUMMARY.md"))}
    return [file for file in files if re.match(r"docs/.*\.md$", file) and file not in named]


def main():
    files = list_files()
    # Top-level folders of the repository. Others, such as target/, are not checked.
    folders = sorted({f.split("/")[0] for f in files if "/" in f and not f.startswith(".")})
    mentioned = re.compile(PATH.pattern % "|".join(map(re.escape, folders)))
    problems = 0
    for path in files:
        if path == "CHANGELOG.md" or path == "scripts/links.py":
            continue
        found = check_markdown(path, mentioned) if path.endswith(".md") else check_other(path)
        for number, problem in found:
            print(f"{path}:{number}: {problem}", file=sys.stderr)
            problems += 1
    for page in pages_without_entry(files):
        print(f"docs/SUMMARY.md: {page} has no entry", file=sys.stderr)
        problems += 1
    if problems:
        print(f"links: {problems} references to files or headings that do not exist", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
