"""The tables of outcomes: of each command, and of each system call and error."""
import collections

OUTCOMES = ["unaffected", "warning", "sentence", "out of memory", "not reached", "VIOLATION"]
# Errors with a column of their own: how a machine is short of something. All others share the last column.
COLUMNS = ["ENOMEM", "EMFILE", "EIO", "ENOSPC", "EINTR", "EAGAIN", "EACCES", "EPERM", "short"]


def text_of(outcomes):
    """For example `12 sentence, 3 warning`."""
    return ", ".join(f"{outcomes[name]} {name}" for name in reversed(OUTCOMES) if outcomes[name])


def print_calls(tried):
    """`tried`: outcomes of each call (with its file, if that is /dev/fuse) and error, over all commands.
    Prints a table in Markdown. An error that stays from then on counts with that of a single call."""
    rows = collections.defaultdict(lambda: collections.defaultdict(list))
    for (call, error), outcomes in sorted(tried.items()):
        if error in COLUMNS:
            rows[call][error].append(text_of(outcomes))
        else:
            rows[call]["others"].append(f"{error}: {text_of(outcomes)}")
    columns = [*COLUMNS, "others"]
    total = sum((outcomes for outcomes in tried.values()), collections.Counter())
    print(f"\n{total.total()} faults: {text_of(total)}\n")
    print("| call | " + " | ".join(columns) + " |\n" + "| --- " * (len(columns) + 1) + "|")
    for call, cells in sorted(rows.items()):
        print(f"| {call} | " + " | ".join("; ".join(cells[column]) for column in columns) + " |", flush=True)
