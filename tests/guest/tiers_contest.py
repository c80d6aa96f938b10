"""Prints the table of the comparison of memory tiering. Usage: tiers_contest.py [--fast-ns 90] [--slow-ns 250] CONSOLE...

Each CONSOLE is the output of a guest, with a line for each arm (tests/guest/inside/tiers_contest.sh). A figure
is the mean over these files, with the smallest and the largest. Memory speed is the expected number of accesses in a time, compared with fast
memory only, as `thermo advise --tiers` has it.
"""
import argparse
import collections

ARMS = {
    "alone": "nothing moves",
    "thermo": "`thermo tier`",
    "thermo_default": "`thermo tier`, 1 % of a CPU",
    "damon": "in-kernel DAMON",
    "damon_fast": "in-kernel DAMON, 5 ms",
    "numa": "NUMA balancing",
    "memtierd": "memtierd",
}


def read(files):
    """The figures of each arm by program and arm, in the order of the files."""
    runs = collections.defaultdict(list)
    for name in files:
        with open(name, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if not line.startswith("# arm "):
                    continue
                head, figures = line.removeprefix("# arm ").split(":")
                program, arm = head.split()
                words = figures.split()
                values = [None if word == "-" else float(word) for word in words[1::2]]
                runs[program, arm].append(dict(zip(words[::2], values, strict=True)))
    return runs


def text(values, digits=0):
    values = [value for value in values if value is not None]
    if not values:
        return "-"
    mean, low, high = sum(values) / len(values), min(values), max(values)
    spread = f" ({low:,.{digits}f} to {high:,.{digits}f})" if f"{low:.{digits}f}" != f"{high:.{digits}f}" else ""
    return f"{mean:,.{digits}f}{spread}"


def speed(share, fast, slow):
    return None if share is None else 100 * fast / (share / 100 * fast + (1 - share / 100) * slow)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast-ns", type=float, default=90)
    parser.add_argument("--slow-ns", type=float, default=250)
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    print("| program | arm | runs | hot bytes fast, % | accesses fast, % | mean over the time, % | expected memory speed, % | MiB moved | CPU, %: tool | kernel's threads | program in the kernel |")
    print("|" + " --- |" * 11)
    for (program, arm), runs in read(args.files).items():
        of = lambda field: [run[field] for run in runs]
        cpu = lambda field: text([100 * run[field] / run["ms"] for run in runs], 1)
        print("| " + " | ".join([
            program,
            ARMS.get(arm, arm),
            str(len(runs)),
            text(of("hot"), 1),
            text(of("accesses"), 1),
            text(of("mean"), 1),
            text([speed(run["accesses"], args.fast_ns, args.slow_ns) for run in runs], 1),
            text([run["moved"] / 256 for run in runs]),
            cpu("tool"),
            cpu("kernel"),
            cpu("system"),
        ]) + " |")


main()
