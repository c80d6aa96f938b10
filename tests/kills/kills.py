#!/usr/bin/env python3
"""Kills every command that acts or writes at random moments (kill -9), and checks what each kill left
behind: no residue that `doctor --leftovers` does not find and undo, no unreadable recording, no harmed
target, no lost write that was acknowledged. Prints a table. Exit code 1: a violation. Needs root.

usage: kills.py [--count N] [--seed SEED] [--only NAME,...] THERMO THERMO_NBD
"""
import argparse
import collections
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback

from machine import Swap
from scenarios import SCENARIOS, Violation


def kills_of(scenario, count, seed, tools, folder):
    """Returns the outcomes with their numbers, and the violations."""
    choice = random.Random(f"{seed} {scenario.__name__}")
    outcomes, violations, one = collections.Counter(), [], None
    try:
        for nth in range(count):
            try:
                # The target, the socket and the disk serve many kills.
                if one is None:
                    one = scenario(tools, f"{folder}/{scenario.__name__}-{nth}", choice)
                outcomes[one.once()] += 1
                if nth % 25 == 24:
                    one.finish()
                    one.remove()
                    one = None
            except Exception as error:  # every failure is a result
                if not isinstance(error, Violation):
                    traceback.print_exc()
                violations.append(f"{scenario.__name__}, kill {nth + 1}: {error!r}")
                print(f"not ok - {violations[-1]}", flush=True)
                one.remove()
                one = None
    finally:
        if one:
            one.remove()
    return outcomes, violations


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "little"))
    parser.add_argument("--only", default="")
    parser.add_argument("thermo")
    parser.add_argument("thermo_nbd")
    options = parser.parse_args()
    if os.geteuid() != 0:
        return print("SKIP: only root can mount control files, add swap and act on processes")
    chosen = [one for one in SCENARIOS if not options.only or one.__name__ in options.only.split(",")]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    total = sum(one.share for one in chosen)
    tools = {"thermo": os.path.realpath(options.thermo), "thermo-nbd": os.path.realpath(options.thermo_nbd)}
    folder = tempfile.mkdtemp(prefix="thermo-kills-")
    print(f"seed {options.seed}, about {options.count} kills", flush=True)
    swap, violations, kills = None, [], 0
    try:
        for scenario in chosen:
            # The demonstration brings its own swap.
            if scenario.__name__ == "MakeRun" and swap:
                swap.remove()
            elif swap is None:
                swap = Swap()
            count, begin = max(1, round(options.count * scenario.share / total)), time.monotonic()
            outcomes, found = kills_of(scenario, count, options.seed, tools, folder)
            violations += found
            kills += count
            text = ", ".join(f"{number} {outcome}" for outcome, number in outcomes.most_common())
            print(f"{scenario.__name__:<10} {count:>4} kills {time.monotonic() - begin:>5.0f} s   {text}", flush=True)
    finally:
        if swap:
            swap.remove()
        shutil.rmtree(folder)
    print(f"{kills} kills, {len(violations)} violations, seed {options.seed}")
    return 1 if violations else 0


sys.exit(main())
