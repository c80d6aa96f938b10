#!/usr/bin/env python3
"""Fails if a comment or a line of Markdown is longer than 110 characters (README.md: 120), or if a file has the
markers of an unfinished merge.

Not checked: tables, lines with a link, lines that are one command, code blocks, generated parts, printed
results in lab/results/, recorded texts, and comments that follow code on the same line. A tab counts as four
characters.

Usage: scripts/wrap.py
"""

import re
import sys

sys.dont_write_bytecode = True

from links import list_files, prose_lines, read

LIMIT, README_LIMIT = 110, 120
RUST, C, HASH = re.compile(r"\s*//[/!]? "), re.compile(r"\s*(//|/?\*+) "), re.compile(r"\s*# ")
COMMENT = {"rs": RUST, "c": C, "h": C, "sh": HASH, "py": HASH, "toml": HASH, "Makefile": HASH}
NOT_PROSE = re.compile(r"^\W*\||\]\(|https?://|^\s*`[^`]*`.?$")
MERGE = re.compile(r"^(<<<<<<<|>>>>>>>) ", re.MULTILINE)
GENERATED = re.compile(r"<!-- made by.*?: begin -->.*?: end -->", re.DOTALL)
EXCLUDED = re.compile(r"lab/results/|docs/reference/kernels/")


def long_lines(path):
    kind = path.rpartition("/")[2].rpartition(".")[2]
    if kind == "md":
        lines = prose_lines(GENERATED.sub(lambda part: "\n" * part[0].count("\n"), read(path)))
    elif kind in COMMENT:
        lines = ((n, line) for n, line in enumerate(read(path).split("\n"), 1) if COMMENT[kind].match(line))
    else:
        return
    limit = README_LIMIT if path == "README.md" else LIMIT
    for number, line in lines:
        length = len(line.expandtabs(4))
        if length > limit and not NOT_PROSE.search(line):
            yield number, length, limit


def main():
    problems = 0
    for path in list_files():
        if EXCLUDED.match(path):
            continue
        for number, length, limit in long_lines(path):
            print(f"{path}:{number}: {length} characters; wrap at {limit}", file=sys.stderr)
            problems += 1
        if MERGE.search(read(path)):
            print(f"{path}: an unfinished merge", file=sys.stderr)
            problems += 1
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
