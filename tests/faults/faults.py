#!/usr/bin/env python3
"""Makes system calls of each command fail, one in each run, once or from then on (a full disk, no descriptors),
and checks what the command does then: no panic, no hang, no spinning, a sentence or a warning, no half-written
file under a final name, nothing left switched on.

usage: faults.py [--runs N] [--seed SEED] [--only NAME,...] [--call NAME --when N --fault NAME] THERMO THERMO_NBD INJECT

--runs   faults to try for each command (150): at each call first, then at random
--call   one fault in one command, to look at it: prints what the command printed
"""
import argparse
import collections
import concurrent.futures
import errno
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from commands import COMMANDS, DEADLINE, Command, errors_of
from errors import NAMES, NUMBERS, SHORT
from machine import Target, Violation, is_mounted, notes_of, require, undo
from table import OUTCOMES, print_calls

# How Rust's runtime ends a program that gets no memory: for an allocation, or for the start of a thread. The
# library tokio ends the connection that needs a thread.
NO_MEMORY = "memory allocation of|an alternative stack: Cannot allocate|alternative stack guard page: Cannot|can't spawn worker"


class Run:
    """One run with at most one fault."""

    def __init__(self, tools, kind, call, when, fault):
        self.tools, self.kind, self.call, self.when, self.fault = tools, kind, call, when, fault
        self.counts, self.hit, self.signal = {}, None, None

    def go(self):
        """Returns the class of the outcome. Raises Violation."""
        folder = tempfile.mkdtemp(prefix=f"thermo-faults-{self.kind.__name__}-")
        command = self.kind(self.tools, folder)
        try:
            if command.needs_target:
                command.target = Target(folder)
                os.rename(f"{folder}/target.file", f"{self.tools['folder']}/{os.path.basename(folder)}.file")
            return self.judge(command, *self.execute(command))
        finally:
            if command.target:
                command.target.remove()
            if is_mounted(command.path("damon")):
                subprocess.run(["umount", "--lazy", command.path("damon")], check=False)
            shutil.rmtree(folder, ignore_errors=True)

    def execute(self, command):
        name, *arguments = command.arguments()
        fault = 0 if self.fault == SHORT else getattr(errno, (self.fault or "EIO").rstrip("+"))
        command.lasting = (self.fault or "").endswith("+")
        inject = [self.tools["inject"], command.path("calls"), str(NUMBERS.get(self.call, -1)),
                  f"{self.when}{'+' if command.lasting else ''}", str(fault), "--"]
        with open(command.path("log"), "w") as log, open(command.path("out"), "w") as out:
            process = subprocess.Popen(inject + [self.tools[name], *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=log,
                                       start_new_session=True, env={**os.environ, "RUST_BACKTRACE": "0"})
            try:
                command.use(process)
                if type(command).use is not Command.use and process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                code = process.wait(DEADLINE)
                with open(command.path("calls")) as file:
                    cpu = re.search(r"^cpu (\d+) ms$", file.read(), re.M)
                require(int(cpu[1]) < 3000, f"spins: {cpu[0]}: {self.read(command, 'log')[-300:]}")
            except (subprocess.TimeoutExpired, TimeoutError):
                raise Violation("hangs: " + self.read(command, "log")[-300:]) from None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        return code, self.read(command, "log")

    @staticmethod
    def read(command, name):
        with open(command.path(name), errors="replace") as file:
            return file.read()

    def judge(self, command, code, log):
        calls = self.read(command, "calls")
        self.counts = {int(number): int(times) for number, times in re.findall(r"^count (\d+) (\d+)$", calls, re.M)}
        self.hit = re.search(r"^hit \d+ \d+ (.*)$", calls, re.M)
        if self.hit and self.call == "write" and "[eventfd]" in self.hit[1]:
            # The kernel never refuses to count an event, and the libraries rely on that.
            self.hit = None
            return "unaffected"
        self.log = log
        command.pid = int(re.search(r"^pid (\d+)$", calls, re.M)[1])
        ended_by = re.search(r"^end signal (\d+)$", calls, re.M)
        if ended_by:
            require(int(ended_by[1]) == signal.SIGABRT and re.search(NO_MEMORY, log), f"ended by signal {ended_by[1]}: {log[-300:]}")
        else:
            require("panicked at" not in log or re.search(NO_MEMORY, log), "panics: " + log[-400:])
        command.said, command.ended_by = bool(log.strip()), ended_by
        if command.target:
            command.target.check()
        command.check(code)
        # After a kill, and where it cannot be removed, the next server replaces it. A folder that cannot be
        # opened is not among those where the server may remove files, and it says so. A server that cannot
        # read whose socket it is removes none.
        is_unknown = self.call == "statx" and command.lasting
        may_leave = ended_by or self.call == "unlink" or is_unknown or re.search(f"confinement: cannot open|{NO_MEMORY}", log)
        require(may_leave or not os.path.exists(command.path("s")), "the socket is left")
        undo(self.tools["thermo"], {command.pid})
        require(not notes_of({command.pid}), f"notes are left: {notes_of({command.pid})}")
        if ended_by:
            return "out of memory"
        if code in (1, 2):
            require(log.strip() or command.result().strip(), f"ended with {code} without a word")
            return "sentence"
        require(code in (0, 130), f"ended with {code}: {log[-300:]}")
        return "warning" if re.search(r"warning|cannot|could not|failed|error", log) else "unaffected"


def choose(kind, counts, runs, random_source):
    """The faults to try: each call with each of its errors at its first time, then others at random."""
    known = [(NAMES[number], times) for number, times in counts.items() if errors_of(kind, NAMES.get(number))]
    first = [(name, 1, fault) for name, _ in known for fault in errors_of(kind, name)]
    random_source.shuffle(first)
    chosen = dict.fromkeys(first[:runs])
    for _ in range(100 * runs):
        if len(chosen) >= runs or not known:
            break
        name, times = random_source.choice(known)
        # Half of them among the first calls, which set things up.
        when = random_source.randint(1, times if random_source.random() < 0.5 else min(times, 20))
        chosen[(name, when, random_source.choice(errors_of(kind, name)))] = None
    return list(chosen)


def try_one(tools, kind, call, when, fault):
    run = Run(tools, kind, call, when, fault)
    try:
        return run, run.go(), None
    except Violation as violation:
        return run, "VIOLATION", str(violation)


def call_of(run):
    """The call of a fault, with its file if that is /dev/fuse."""
    is_fuse = run.hit and run.hit[1].endswith(" /dev/fuse")
    return f"{run.call}, /dev/fuse" if is_fuse else run.call


def test_command(tools, kind, options, tried):
    """Adds to `tried` the outcomes of each call and error. Returns the number of violations."""
    base = Run(tools, kind, None, 0, None)
    base.go()
    faults = choose(kind, base.counts, options.runs, random.Random(f"{options.seed} {kind.__name__}"))
    outcomes, violations = collections.Counter(), []
    with concurrent.futures.ThreadPoolExecutor(options.parallel) as pool:
        for run, outcome, why in pool.map(lambda fault: try_one(tools, kind, *fault), faults):
            reached = bool(run.hit) or outcome == "VIOLATION"
            outcome = outcome if reached else "not reached"
            outcomes[outcome] += 1
            tried[call_of(run), run.fault.rstrip("+")][outcome] += 1
            if why:
                at = f" ({run.hit[1].strip()})" if run.hit else ""
                violations.append(f"{kind.__name__}: {run.call} #{run.when} {run.fault}{at}: {why}")
                print(violations[-1][:700], file=sys.stderr, flush=True)
    print(f"{kind.__name__:14} {len(base.counts):5} {sum(base.counts.values()):8} {len(faults):6} "
          + " ".join(f"{outcomes[name]:13}" for name in OUTCOMES))
    print("".join(f"    {line}\n" for line in violations), end="", flush=True)
    return len(violations)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--call")
    parser.add_argument("--when", type=int, default=1)
    parser.add_argument("--fault", default="EIO", help="the name of an error, lasting with +; short")
    parser.add_argument("thermo")
    parser.add_argument("thermo_nbd")
    parser.add_argument("inject")
    options = parser.parse_args()
    kinds = [kind for kind in COMMANDS if not options.only or kind.__name__ in options.only.split(",")]
    with tempfile.TemporaryDirectory(prefix="thermo-faults-") as folder:
        tools = {"thermo": options.thermo, "thermo-nbd": options.thermo_nbd, "inject": options.inject, "folder": folder,
                 "recording": f"{folder}/base.arrow"}
        target = Target(folder)
        try:
            subprocess.run([options.thermo, "record", "--pid", str(target.pid), "-o", tools["recording"], "--duration", "4s"],
                           check=True, capture_output=True, timeout=DEADLINE)
        finally:
            target.remove()
        if options.call:
            for kind in kinds:
                run, outcome, why = try_one(tools, kind, options.call, options.when, options.fault)
                print(f"{outcome} {why or ''}\n{run.hit and run.hit[0]}\n{getattr(run, 'log', '')}")
            return 0
        print(f"seed {options.seed}; columns: kinds of calls, calls in a run, faults tried, outcomes")
        print(f"{'command':14} {'kinds':>5} {'calls':>8} {'faults':>6} " + " ".join(f"{name:>13}" for name in OUTCOMES))
        tried = collections.defaultdict(collections.Counter)
        violations = sum(test_command(tools, kind, options, tried) for kind in kinds)
        print_calls(tried)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
