"""Tells what a tree of DAMON's control files is like, and how two of them differ.

Usage: tree.py list >FILE
       tree.py compare NAME FILE NAME FILE

`list` makes one of everything that can be made, and tells of each file its mode, what it shows at first, and what it answers
to the same writes; then which commands `state` takes. It only works on a tree that nobody uses. `compare` prints what
is not the same, in Markdown.
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
# How long a command may find the tree busy: it is by design, for as long as another one is at work.
PATIENCE = 60


def read(path):
    with open(path) as file:
        return file.read()


def write(path, text):
    """Nothing, or the name of the error."""
    try:
        # One write, and with what the text ends in.
        descriptor = os.open(path, os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
    except OSError as why:
        return errno.errorcode[why.errno]


def must_write(path, text):
    why = write(path, text)
    if why:
        sys.exit(f"{path} does not take {text!r}: {why}")


def is_count(path):
    return os.path.basename(path).startswith("nr_") and writable(path)


def writable(path):
    return os.stat(path).st_mode & 0o200


def files(folder):
    """All of them, with one of each thing that is counted; counts after what they count."""
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


def answers(path):
    """To each text, what the file shows after it was written, or the error."""
    first = read(path)
    if os.path.basename(path) == "state":
        return {}
    probes = COUNTS if is_count(path) else NUMBERS if first.strip().lstrip("-").isdigit() else WORDS
    told = {}
    for probe in probes:
        told[probe] = write(path, probe) or read(path).strip()
        write(path, first)
    return told


def patiently(path, text):
    deadline = time.monotonic() + PATIENCE
    while (why := write(path, text)) == "EBUSY" and time.monotonic() < deadline:
        time.sleep(0.1)
    return why or "taken"


def prepare():
    """A kdamond with one context, one target, and two schemes for whatever there is."""
    must_write(f"{TREE}/nr_kdamonds", "1")
    must_write(f"{TREE}/0/contexts/nr_contexts", "1")
    must_write(f"{CONTEXT}/targets/nr_targets", "1")
    must_write(f"{CONTEXT}/schemes/nr_schemes", "2")
    for scheme in "01":
        for pattern in ("sz", "nr_accesses", "age"):
            must_write(f"{CONTEXT}/schemes/{scheme}/access_pattern/{pattern}/max", str((1 << 64) - 1))


def names_of_tried():
    """Of the second scheme, from the first to the last."""
    told = patiently(f"{TREE}/0/state", "update_schemes_tried_regions")
    names = sorted(int(name) for name in os.listdir(f"{CONTEXT}/schemes/1/tried_regions") if name.isdigit())
    return "none, " + told if not names else "from 0" if names[0] == 0 else "not from 0"


def commands():
    """What `state` answers before anything ran, while it runs, and when it was switched off."""
    prepare()
    state = f"{TREE}/0/state"
    told = {f"{word}, never on": patiently(state, word) for word in ("off", *COMMANDS)}
    target = subprocess.Popen(["sleep", "3600"])
    try:
        must_write(f"{CONTEXT}/targets/0/pid_target", str(target.pid))
        told["on"] = patiently(state, "on")
        told["what state shows, while on"] = read(state).strip()
        told["nr_kdamonds, while on"] = write(f"{TREE}/nr_kdamonds", "1") or "taken"
        told.update({f"{word}, while on": patiently(state, word) for word in ("on", *COMMANDS)})
        told["tried_regions of a second scheme are numbered"] = names_of_tried()
        told["off"] = patiently(state, "off")
        told["what state shows, after off"] = read(state).strip()
        told.update({f"{word}, after off": patiently(state, word) for word in ("off", *COMMANDS)})
    finally:
        target.kill()
        target.wait()
    return told


def listed():
    if int(read(f"{TREE}/nr_kdamonds")):
        sys.exit("the control files are in use")
    found = {}
    for path in files(TREE):
        shown = read(path)
        told = answers(path) if writable(path) else {}
        if is_count(path):
            shown = "(1)"
        found[os.path.relpath(path, TREE)] = {
            "mode": f"{os.stat(path).st_mode & 0o7777:04o}", "shown": shown.strip(), "answers": told,
        }  # fmt: skip
    told = commands()
    must_write(f"{TREE}/nr_kdamonds", "0")
    return {"files": found, "commands": told}


def differing(one, other):
    """Of what both have, what is not the same."""
    return {key: (one[key], other[key]) for key in one if key in other and one[key] != other[key]}


def of_files(one, other, what):
    pairs = {path: (one[path][what], other[path][what]) for path in one if path in other}
    return {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}


def only(have, lack):
    """Files of the one alone; a folder that the other lacks is told once, with how many files are in it."""
    folders = {path[: at + 1] for path in lack for at, letter in enumerate(path) if letter == "/"}
    found = collections.Counter()
    for path in have:
        if path not in lack:
            ends = (path[: at + 1] for at, letter in enumerate(path) if letter == "/")
            found[next((folder for folder in ends if folder not in folders), path)] += 1
    for path, count in sorted(found.items()):
        yield f"`{short(path)}`" + (f" ({count} files)" if path.endswith("/") else "")


def several(paths):
    """A row's file, and how many more are like it."""
    return f"`{paths[0]}`" + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")


def short(path):
    return path.removeprefix("0/contexts/0/")


def table(title, names, rows):
    print(f"\n{title}:" + ("" if rows else " none"))
    if rows:
        print(f"\n| | {names[0]} | {names[1]} |\n| --- | --- | --- |")
    for what, one, other in rows:
        print(f"| {what} | {one} | {other} |")


def compare(name, one, other_name, other):
    ours, theirs = one["files"], other["files"]
    names = (name, other_name)
    print(f"{len(ours)} files of {name}, {len(theirs)} of {other_name}.")
    for who, have, lack in ((name, ours, theirs), (other_name, theirs, ours)):
        print(f"\nOnly of {who}: " + (", ".join(only(have, lack)) or "none"))
    for what, title in (("mode", "Modes"), ("shown", "Shown at first")):
        rows = [(f"`{short(path)}`", f"{a!r}", f"{b!r}") for path, (a, b) in of_files(ours, theirs, what).items()]
        table(title, names, rows)
    alike = collections.defaultdict(list)
    for path, (a, b) in of_files(ours, theirs, "answers").items():
        for probe, (answer, another) in differing(a, b).items():
            alike[probe, answer, another].append(short(path))
    rows = [(f"`{probe!r}` to {several(paths)}", a, b) for (probe, a, b), paths in alike.items()]
    table("Answers to writes", names, rows)
    rows = [(f"`{what}`", a, b) for what, (a, b) in differing(one["commands"], other["commands"]).items()]
    table("Commands of `state`", names, rows)


def main():
    match sys.argv[1:]:
        case ["list"]:
            json.dump(listed(), sys.stdout, indent=1)
        case ["compare", name, path, other_name, other_path]:
            compare(name, json.loads(read(path)), other_name, json.loads(read(other_path)))
        case _:
            sys.exit(__doc__)


main()
