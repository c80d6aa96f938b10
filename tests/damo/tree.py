"""Describes a tree of DAMON's control files, and compares two such descriptions.

Usage: tree.py list >FILE
       tree.py compare NAME FILE NAME FILE

`list` creates one of each numbered directory. For each file it prints mode, initial value and the results of
a fixed set of writes, then the results of the commands of `state`. The tree must not be in use. `compare`
prints the differences in Markdown.
"""

import collections
import errno
import json
import os
import subprocess
import sys
import time

TREE = "/sys/kernel/mm/damon/admin/kdamonds"
CONTEXT = f"{TREE}/0/contexts/0"
NUMBERS = (
    "7", "7\n", "7\n\n", "+7", "0x10", "010", "08", " 7", "7 ", "-1", "x", "1.5", "2147483648", "4294967296",
    "18446744073709551615", "18446744073709551616",
)
WORDS = (
    "vaddr fvaddr paddr stat willneed cold pageout hugepage nohugepage lru_prio lru_deprio migrate_hot migrate_cold collapse "
    "anon active memcg young addr target hugepage_size unmapped none free_mem_rate user_input some_mem_psi_us "
    "node_mem_used_bp node_mem_free_bp Y N yes on off 1 0 nonsense STAT"
).split()
COUNTS = ("-1", "x", " 1", "0x1", "1\n", "2", "4294967296")
COMMANDS = (
    "commit commit_schemes_quota_goals update_schemes_stats update_schemes_tried_bytes update_schemes_tried_regions "
    "clear_schemes_tried_regions update_schemes_effective_quotas update_tuned_intervals nonsense"
).split()
# Timeout in seconds for EBUSY, which a command returns while another one runs.
BUSY_TIMEOUT = 60


def read(path):
    with open(path) as file:
        return file.read()


def write(path, text):
    """Writes `text`. Returns None, or the name of the errno."""
    try:
        # A single write call, with the line end of the text.
        descriptor = os.open(path, os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        return errno.errorcode[error.errno]


def must_write(path, text):
    error = write(path, text)
    if error:
        sys.exit(f"cannot write {text!r} to {path}: {error}")


def is_count(path):
    return os.path.basename(path).startswith("nr_") and writable(path)


def writable(path):
    return os.stat(path).st_mode & 0o200


def files(folder):
    """Yields all files, with one of each numbered directory. Counts come after the files that depend on them."""
    names = sorted(os.listdir(folder))
    counts = [name for name in names if os.path.isfile(f"{folder}/{name}") and is_count(f"{folder}/{name}")]
    for name in counts:
        must_write(f"{folder}/{name}", "1")
    for name in sorted(os.listdir(folder)):
        path = f"{folder}/{name}"
        if os.path.isdir(path):
            yield from files(path)
        elif name not in counts:
            yield path
    for name in counts:
        yield f"{folder}/{name}"


def write_results(path):
    """For each text: the value that the file shows after the write, or the errno."""
    initial = read(path)
    if os.path.basename(path) == "state":
        return {}
    texts = COUNTS if is_count(path) else NUMBERS if initial.strip().lstrip("-").isdigit() else WORDS
    results = {}
    for text in texts:
        results[text] = write(path, text) or read(path).strip()
        write(path, initial)
    return results


def write_when_free(path, text):
    """Writes `text`, and waits while the file is busy. Returns "accepted" or the errno."""
    deadline = time.monotonic() + BUSY_TIMEOUT
    while (error := write(path, text)) == "EBUSY" and time.monotonic() < deadline:
        time.sleep(0.1)
    return error or "accepted"


def prepare():
    """Stages a kdamond with one context, one target, and two schemes that match everything."""
    must_write(f"{TREE}/nr_kdamonds", "1")
    must_write(f"{TREE}/0/contexts/nr_contexts", "1")
    must_write(f"{CONTEXT}/targets/nr_targets", "1")
    must_write(f"{CONTEXT}/schemes/nr_schemes", "2")
    for scheme in "01":
        for pattern in ("sz", "nr_accesses", "age"):
            must_write(f"{CONTEXT}/schemes/{scheme}/access_pattern/{pattern}/max", str((1 << 64) - 1))


def tried_region_numbers():
    """The numbering of the tried regions of the second scheme."""
    result = write_when_free(f"{TREE}/0/state", "update_schemes_tried_regions")
    names = sorted(int(name) for name in os.listdir(f"{CONTEXT}/schemes/1/tried_regions") if name.isdigit())
    return "none, " + result if not names else "from 0" if names[0] == 0 else "not from 0"


def command_results():
    """Results of the commands of `state` before the first start, while the kdamond runs, and after it was stopped."""
    prepare()
    state = f"{TREE}/0/state"
    results = {f"{word}, never on": write_when_free(state, word) for word in ("off", *COMMANDS)}
    target = subprocess.Popen(["sleep", "3600"])
    try:
        must_write(f"{CONTEXT}/targets/0/pid_target", str(target.pid))
        results["on"] = write_when_free(state, "on")
        results["value of state, while on"] = read(state).strip()
        results["nr_kdamonds, while on"] = write(f"{TREE}/nr_kdamonds", "1") or "accepted"
        results.update({f"{word}, while on": write_when_free(state, word) for word in ("on", *COMMANDS)})
        results["numbers of the tried_regions of a second scheme"] = tried_region_numbers()
        results["off"] = write_when_free(state, "off")
        results["value of state, after off"] = read(state).strip()
        results.update({f"{word}, after off": write_when_free(state, word) for word in ("off", *COMMANDS)})
    finally:
        target.kill()
        target.wait()
    return results


def describe_tree():
    if int(read(f"{TREE}/nr_kdamonds")):
        sys.exit("the control files are in use: nr_kdamonds is not 0")
    described = {}
    for path in files(TREE):
        value = read(path)
        results = write_results(path) if writable(path) else {}
        if is_count(path):
            value = "(1)"
        described[os.path.relpath(path, TREE)] = {
            "mode": f"{os.stat(path).st_mode & 0o7777:04o}", "value": value.strip(), "results": results,
        }  # fmt: skip
    results = command_results()
    must_write(f"{TREE}/nr_kdamonds", "0")
    return {"files": described, "commands": results}


def differences(one, other):
    """Pairs of different values, for keys that both have."""
    return {key: (one[key], other[key]) for key in one if key in other and one[key] != other[key]}


def file_differences(one, other, field):
    """Pairs of different values of a field, for files that both have."""
    pairs = {path: (one[path][field], other[path][field]) for path in one if path in other}
    return {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}


def only_in(have, lack):
    """Yields files that exist in `have` only. A missing folder is one entry with its number of files."""
    folders = {path[: at + 1] for path in lack for at, letter in enumerate(path) if letter == "/"}
    counts = collections.Counter()
    for path in have:
        if path not in lack:
            parents = (path[: at + 1] for at, letter in enumerate(path) if letter == "/")
            counts[next((folder for folder in parents if folder not in folders), path)] += 1
    for path, count in sorted(counts.items()):
        yield f"`{short(path)}`" + (f" ({count} files)" if path.endswith("/") else "")


def first_of(paths):
    """The first path, and the number of further ones."""
    return f"`{paths[0]}`" + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")


def short(path):
    return path.removeprefix("0/contexts/0/")


def table(title, names, rows):
    print(f"\n{title}:" + ("" if rows else " none"))
    if rows:
        print(f"\n| | {names[0]} | {names[1]} |\n| --- | --- | --- |")
    for label, one, other in rows:
        print(f"| {label} | {one} | {other} |")


def compare(first_name, first, second_name, second):
    first_files, second_files = first["files"], second["files"]
    names = (first_name, second_name)
    print(f"{first_name}: {len(first_files)} files. {second_name}: {len(second_files)} files.")
    for name, have, lack in ((first_name, first_files, second_files), (second_name, second_files, first_files)):
        print(f"\nOnly in {name}: " + (", ".join(only_in(have, lack)) or "none"))
    for field, title in (("mode", "Modes"), ("value", "Initial values")):
        different = file_differences(first_files, second_files, field)
        table(title, names, [(f"`{short(path)}`", f"{a!r}", f"{b!r}") for path, (a, b) in different.items()])
    paths_by_difference = collections.defaultdict(list)
    for path, (a, b) in file_differences(first_files, second_files, "results").items():
        for text, pair in differences(a, b).items():
            paths_by_difference[text, *pair].append(short(path))
    rows = [(f"`{text!r}` to {first_of(paths)}", a, b) for (text, a, b), paths in paths_by_difference.items()]
    table("Results of writes", names, rows)
    different = differences(first["commands"], second["commands"])
    table("Commands of `state`", names, [(f"`{label}`", a, b) for label, (a, b) in different.items()])


def main():
    match sys.argv[1:]:
        case ["list"]:
            json.dump(describe_tree(), sys.stdout, indent=1)
        case ["compare", name, path, other_name, other_path]:
            compare(name, json.loads(read(path)), other_name, json.loads(read(other_path)))
        case _:
            sys.exit(__doc__)


main()
