#!/usr/bin/env python3
"""Builds the documentation site with mdBook, and checks that each link in it leads to a file and a heading.

docs/SUMMARY.md names the pages; their links may lead anywhere in the repository. mdBook copies only its own
folder, so the pages and the files to which they link are first copied to OUTPUT.src, at the same paths. The site
has the folders of the repository, and every relative link holds in both.

mdBook is the `mdbook` on PATH. If there is none, cargo compiles it from crates.io, once.

Usage: scripts/book.py OUTPUT           build the site in OUTPUT
       scripts/book.py --check OUTPUT   only check the links of a site
"""

import html.parser
import os
import posixpath
import re
import shutil
import subprocess
import sys
import urllib.parse

sys.dont_write_bytecode = True

from links import LINK, ROOT, is_external, prose_lines, read

CHAPTER = re.compile(r"\]\(([^)]+\.md)\)")
REFERENCE = re.compile(r"^\[[^\]]+\]: *(\S+)", re.MULTILINE)
SUMMARY = "docs/SUMMARY.md"
# The version that the settings in docs/book.toml are for.
MDBOOK_VERSION = "0.5.4"


def resolve(page, target):
    """The path in the repository to which a link of a page leads; an empty path is the page itself."""
    name = urllib.parse.unquote(target.partition("#")[0])
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), name)) if name else page


def targets_of(page):
    text = "\n".join(line for _, line in prose_lines(read(page)))
    found = LINK.findall(text) + REFERENCE.findall(text)
    return [resolve(page, target) for target in found if not is_external(target)]


def copy(path, folder):
    to = os.path.join(folder, path)
    os.makedirs(os.path.dirname(to), exist_ok=True)
    shutil.copyfile(os.path.join(ROOT, path), to)


def stage(folder):
    """Copies pages, linked files and settings. Returns the links for which the site has no place."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = [resolve(SUMMARY, name) for name in CHAPTER.findall(read(SUMMARY))]
    problems = []
    for page in pages:
        copy(page, f"{folder}/src")
        for target in targets_of(page):
            if target in pages:
                continue
            if not os.path.isfile(os.path.join(ROOT, target)):
                problems.append(f"{page}: {target} is not a file: link to a file in it")
            elif target.endswith(".md"):
                problems.append(f"{page}: {target} is not in {SUMMARY}")
            else:
                copy(target, f"{folder}/src")
    with open(f"{folder}/src/SUMMARY.md", "w", encoding="utf-8") as summary:
        summary.write(CHAPTER.sub(lambda found: f"]({resolve(SUMMARY, found[1])})", read(SUMMARY)))
    for settings in ("book.toml", "site.css"):
        shutil.copyfile(f"{ROOT}/docs/{settings}", f"{folder}/{settings}")
    return problems


class Page(html.parser.HTMLParser):
    """The anchors of a page, and the addresses that it names."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.addresses = set(), []
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("id", "name"):
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.addresses.append(value)


def check(site):
    """Yields each link of the site that leads nowhere, or to another machine's file that a page would load."""
    pages = {}
    for folder, _, names in os.walk(site):
        for name in names:
            if name.endswith(".html"):
                path = os.path.relpath(os.path.join(folder, name), site)
                pages[path] = Page(os.path.join(site, path))
    for path, page in sorted(pages.items()):
        # The page for missing addresses has links from the root of a server.
        if path == "404.html":
            continue
        for address in page.addresses:
            if is_external(address):
                continue
            target = resolve(path, address)
            anchor = urllib.parse.unquote(address.partition("#")[2])
            if not os.path.isfile(os.path.join(site, target)):
                yield f"{path}: {address}: no file {target}"
            elif anchor and target in pages and anchor not in pages[target].anchors:
                yield f"{path}: {address}: {target} has no such heading"


def find_mdbook():
    """The path of mdbook, which is installed if it is missing."""
    own = os.path.join(os.environ.get("CARGO_TARGET_DIR", f"{ROOT}/target"), "tools")
    if found := shutil.which("mdbook", path=os.pathsep.join([os.environ["PATH"], f"{own}/bin"])):
        return found
    print("book: compiling mdbook, once; this takes 2 to 10 minutes", file=sys.stderr)
    features = ["--no-default-features", "--features", "search"]
    subprocess.run(
        [f"{ROOT}/scripts/cargo.sh", "install", "--quiet", "--locked", f"mdbook@{MDBOOK_VERSION}", *features, "--root", own],
        cwd=ROOT, check=True,
    )
    return f"{own}/bin/mdbook"


def report(problems):
    for problem in problems:
        print(f"book: {problem}", file=sys.stderr)
    return 1 if problems else 0


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "--check":
        return report(list(check(arguments[1])))
    if len(arguments) != 1:
        print("usage: scripts/book.py [--check] OUTPUT", file=sys.stderr)
        return 2
    site = os.path.abspath(arguments[0])
    if problems := stage(f"{site}.src"):
        return report(problems)
    shutil.rmtree(site, ignore_errors=True)
    built = subprocess.run([find_mdbook(), "build", f"{site}.src", "--dest-dir", site], check=False)
    if built.returncode:
        print(f"book: mdbook failed with status {built.returncode}", file=sys.stderr)
        return 1
    if status := report(list(check(site))):
        return status
    print(f"the site is in {os.path.relpath(site)}: open {os.path.relpath(site)}/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
