"""The commands that act or write. A scenario starts one, waits for a random moment, kills it, and checks
what it left behind."""
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import nbd_client
from machine import (CHECKOUT, DEADLINE, Target, Violation, end_session, is_mounted, leftovers, mounts_below, notes_of, require,
                     session_of, undo, wait_until)


class Scenario:
    """One kind of command. `starting` and `acting`: the longest time until the kill, from the start of the
    command and from the moment it acts. A third of all kills happens while the command starts."""
    share, starting, acting = 0, 0.5, 2.0

    def __init__(self, tools, folder, choice):
        self.tools, self.thermo, self.folder, self.choice = tools, tools["thermo"], folder, choice
        self.target, self.pids = None, set()
        os.mkdir(folder)

    def command(self):
        raise NotImplementedError

    def acts(self, process):
        """Whether the command acts by now. The second thread of a command is the one that monitors."""
        return len(os.listdir(f"/proc/{process.pid}/task")) > 1

    def tracker(self):
        """Most kills use the tracker without BPF: to load a program can take seconds, and kills meet it
        rarely."""
        return [] if self.choice.random() < 0.2 else ["--tracker", "smaps"]

    def start(self, command, **options):
        process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=open(f"{self.folder}/log", "w"), start_new_session=True, **options)
        self.pids.add(process.pid)
        return process

    def needs_target(self):
        if self.target is None:
            self.target = Target(self.folder)
        return self.target

    def log(self):
        with open(f"{self.folder}/log") as file:
            return file.read()[-1000:]

    def wait_for_action(self, process):
        def ready():
            require(process.poll() is None, f"the command ended with {process.returncode}: {self.log()}")
            return self.acts(process)
        wait_until(ready, "the command does not act")

    def sleep_until_kill(self, process):
        """Returns whether the command was acting."""
        acting = self.choice.random() > 1 / 3
        if acting:
            self.wait_for_action(process)
        try:
            process.wait(self.choice.uniform(0, self.acting if acting else self.starting))
        except subprocess.TimeoutExpired:
            pass
        return acting

    def kill(self, process):
        process.send_signal(signal.SIGKILL)
        require(process.wait(DEADLINE) == -signal.SIGKILL or process.returncode in self.own_ends, f"ended with {process.returncode}: {self.log()}")

    own_ends = (0, 130)

    def once(self):
        """One kill. Returns a word for what was found."""
        process = self.start(self.command())
        acting = self.sleep_until_kill(process)
        self.kill(process)
        self.check_session(process.pid)
        found = self.check() or ("acting" if acting else "starting")
        if self.target:
            self.target.check()
        undo(self.thermo, self.pids)
        require(not notes_of(self.pids), f"notes are left: {notes_of(self.pids)}")
        return found

    def check_session(self, session):
        wait_until(lambda: not session_of(session), "processes of the killed command go on")

    def check(self):
        """Checks what is special about this command."""

    def finish(self):
        if self.target:
            self.target.end_well()

    def remove(self):
        for pid in self.pids:
            end_session(pid)
        if self.target:
            self.target.remove()

    def check_recording(self, path):
        if not os.path.exists(path):
            return "no recording yet"
        done = subprocess.run([self.thermo, "report", "info", path, "--json"], capture_output=True, text=True, timeout=DEADLINE)
        if done.returncode == 2 and re.search("is empty|before its first record", done.stderr):
            return "nothing recorded yet"
        require(done.returncode in (0, 1), f"the recording cannot be read ({done.returncode}): {done.stderr}")
        json.loads(done.stdout)
        return "complete" if done.returncode == 0 else "readable up to the kill"


class Record(Scenario):
    share = 170

    def command(self):
        for name in ("r.arrow", "r.arrow.old"):
            if os.path.exists(f"{self.folder}/{name}"):
                os.remove(f"{self.folder}/{name}")
        return [self.thermo, "record", "--pid", str(self.needs_target().pid), "-o", "r.arrow", *self.tracker()]

    def check(self):
        return self.check_recording(f"{self.folder}/r.arrow")


class StartsCommand(Scenario):
    """The command that thermo started runs on: it is the user's."""

    def check_session(self, session):
        end_session(session)
        super().check_session(session)


class Run(StartsCommand, Record):
    share = 50

    def command(self):
        self.needs_target()
        super().command()
        return [self.thermo, "run", "-o", "r.arrow", *self.tracker(), "--", "sleep", "300"]


class Reclaim(Scenario):
    share = 100

    def command(self):
        return [self.thermo, "reclaim", "--pid", str(self.needs_target().pid), "--min-age", "100ms", "--quota-ms", "0",
                "--quota-sz", "0", "--wmarks-high", "1000", "--wmarks-mid", "1000", "--wmarks-low", "0", *self.tracker()]


class Schemes(Scenario):
    share = 50
    schemes = "4K max 0 0 100ms max pageout\n4K max 0 0 0 max cold\n4K max 5 max 0 max willneed\n"

    def command(self):
        with open(f"{self.folder}/s.damos", "w") as file:
            file.write(self.schemes)
        return [self.thermo, "schemes", "apply", "s.damos", "--pid", str(self.needs_target().pid), *self.tracker()]


class LruSort(Scenario):
    share = 40

    def command(self):
        return [self.thermo, "lru-sort", "--pid", str(self.needs_target().pid), "--cold-min-age", "200ms",
                "--wmarks-high", "1000", "--wmarks-mid", "1000", "--wmarks-low", "0", *self.tracker()]


class Hint(Scenario):
    """A command that acts at once, and is done soon."""
    share, starting = 50, 0.4

    def command(self):
        action = self.choice.choice(["pageout", "cold", "willneed", "collapse", "nohugepage", "lru_prio"])
        return [self.thermo, "hint", action, "--pid", str(self.needs_target().pid)]

    def sleep_until_kill(self, process):
        try:
            process.wait(self.choice.uniform(0, self.starting))
        except subprocess.TimeoutExpired:
            return True
        return False

    def check(self):
        return None


class Injection(Schemes):
    """Calls that the target makes itself: it must neither stay stopped nor lose a register, and the flags
    that stay are listed until it ends."""
    share, acting, schemes = 80, 0.3, "2M max 0 max 0 max hugepage\n"

    def command(self):
        return super().command() + ["--huge-flags", "--sample", "10ms", "--aggr", "100ms"]

    def acts(self, process):
        """The note is written before the first call."""
        return notes_of({process.pid})

    def check(self):
        self.target.check()
        state = open(f"/proc/{self.target.pid}/status").read()
        require(re.search(r"^TracerPid:\t0$", state, re.M) and not re.search(r"^State:\t[tT]", state, re.M), "the target is stopped")
        listed = [note for note in leftovers(self.thermo, self.pids) if note["kind"] == "huge-page-flags"]
        flagged = self.target.has_huge_flags()
        require(bool(listed) or not flagged, "huge-page flags are set, and doctor --leftovers does not list them")
        if listed or flagged:
            # As the sentence says, they end with the process.
            self.target.end_well()
            self.target = None
        return "flags listed" if flagged else "no flag set"


class Export(Scenario):
    """Files that are made from a recording: complete under their name, or not there; nothing beside them."""
    share, starting = 50, 0.6

    def command(self):
        if not os.path.exists(f"{self.folder}/r.arrow"):
            target = self.needs_target()
            subprocess.run([self.thermo, "record", "--pid", str(target.pid), "-o", f"{self.folder}/r.arrow", "--duration", "4s"],
                           check=True, capture_output=True, timeout=DEADLINE)
        self.before = set(os.listdir(self.folder))
        self.output = self.choice.choice(["o.json", "o.svg"])
        if self.output == "o.svg":
            return [self.thermo, "report", "heatmap", "r.arrow", "--svg", "o.svg"]
        return [self.thermo, "export", "r.arrow", "-f", "damo-json-plain", "-o", "o.json"]

    sleep_until_kill = Hint.sleep_until_kill

    def check(self):
        new = set(os.listdir(self.folder)) - self.before - {self.output, "log"}
        require(not new, f"left in the folder: {new}")
        path = f"{self.folder}/{self.output}"
        if not os.path.exists(path):
            return "no file"
        with open(path) as file:
            text = file.read()
        if self.output == "o.json":
            json.loads(text)
        else:
            require(text.rstrip().endswith("</svg>"), "the picture is not complete")
        os.remove(path)
        return "whole file"


class Lifecycle(Scenario):
    """The daemon in the midst of a reclaim, started again on the same socket."""
    share, starting, acting = 200, 0.3, 0.3

    def command(self):
        with open(f"{self.folder}/apps.toml", "w") as file:
            file.write(f"[[app]]\nname = \"a\"\npid = {self.needs_target().pid}\nmin_anon_rss = \"1M\"\nmin_change = \"0\"\n"
                       "prefetch = true\nfull_full = \"0s\"\nsome_some = \"0s\"\nsome_full = \"0s\"\nfull_some = \"0s\"\n")
        return [self.thermo, "lifecycle", "run", "apps.toml", "--socket", "s"]

    def connect(self):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(DEADLINE)
        try:
            client.connect(f"{self.folder}/s")
        except OSError:
            client.close()
            return None
        return client

    def acts(self, process):
        self.client = self.connect()
        return self.client is not None

    def sleep_until_kill(self, process):
        self.client = None
        if self.choice.random() < 1 / 4:
            try:
                process.wait(self.choice.uniform(0, self.starting))
            except subprocess.TimeoutExpired:
                pass
            return False
        self.wait_for_action(process)
        for state in self.choice.choice([["cached"], ["cached", "foreground"], ["cached", "foreground", "cached"]]):
            self.client.sendall(json.dumps({"verb": "set", "app": "a", "state": state}).encode() + b"\n")
            answer = nbd_client.receive(self.client, 1)
            while not answer.endswith(b"\n"):
                answer += self.client.recv(65536)
            require(json.loads(answer)["ok"], f"refused: {answer}")
            time.sleep(self.choice.uniform(0, self.acting))
        return True

    def check(self):
        if self.client is None:
            return None
        # A client learns of the end; it does not wait for ever.
        self.client.settimeout(DEADLINE)
        try:
            require(self.client.recv(1) == b"", "an answer after the end")
        except ConnectionResetError:
            pass
        self.client.close()
        return None


class FsMount(Scenario):
    """A mount that stays is listed until it is undone, by hand or by the next service."""
    share, starting, acting = 80, 0.4, 0.5

    def command(self):
        self.point = f"{self.folder}/damon"
        os.makedirs(self.point, exist_ok=True)
        return [self.thermo, "fs", "--mount", self.point]

    def acts(self, process):
        return is_mounted(self.point)

    def sleep_until_kill(self, process):
        user = None
        if self.choice.random() < 0.7:
            self.wait_for_action(process)
            # A monitoring tool at work. It must not hang when the files are gone.
            k = f"{self.point}/admin/kdamonds"
            script = (f"echo 1 >{k}/nr_kdamonds; echo 1 >{k}/0/contexts/nr_contexts; c={k}/0/contexts/0; echo vaddr >$c/operations;"
                      f"echo 1 >$c/targets/nr_targets; echo {self.needs_target().pid} >$c/targets/0/pid_target; echo on >{k}/0/state;"
                      f"while cat {k}/0/state; do :; done")
            user = subprocess.Popen(["sh", "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(self.choice.uniform(0, self.acting if user else self.starting))
        except subprocess.TimeoutExpired:
            pass
        self.user = user
        return user is not None

    def check(self):
        if self.user:
            self.user.wait(DEADLINE)
        mounted = is_mounted(self.point)
        listed = [note for note in leftovers(self.thermo, self.pids) if note["kind"] == "fs-mount"]
        require(mounted == bool(listed), f"mounted: {mounted}, listed: {listed}")
        if mounted and self.choice.random() < 0.3:
            # The next service at the same folder removes the mount, and works.
            process = self.start([self.thermo, "fs", "--mount", self.point])
            # Names below the dead mount can still be cached, so its files say nothing.
            wait_until(lambda: "are mounted at" in self.log() or process.poll() is not None, "no second mount")
            require(process.poll() is None, f"the second service ended: {self.log()}")
            process.send_signal(signal.SIGINT)
            require(process.wait(DEADLINE) == 130, f"the second service ended with {process.returncode}: {self.log()}")
            require(not is_mounted(self.point), "mounted after the end of the second service")
            return "replaced"
        undo(self.thermo, self.pids)
        require(not mounts_below(self.folder), f"mounted: {mounts_below(self.folder)}")
        return "mount listed and undone" if mounted else "not mounted"

    def remove(self):
        super().remove()
        for point in mounts_below(self.folder):
            subprocess.run(["umount", "-l", point], check=False)


class FsCommand(StartsCommand):
    """Control files for one command, in a mount namespace: nothing is left outside."""
    share, starting, acting = 30, 0.6, 0.5

    def command(self):
        return [self.thermo, "fs", "--", "sleep", "300"]

    def acts(self, process):
        return len(session_of(process.pid)) > 1

    def check(self):
        for folder in ("/sys/kernel/mm/", "/sys/module"):
            require(not mounts_below(folder), f"mounted outside: {mounts_below(folder)}")


class Nbd(Scenario):
    """Every acknowledged write is in the file; clients can connect to the next server at the same socket."""
    share, acting = 110, 0.5

    def command(self):
        if not hasattr(self, "writes"):
            self.writes = nbd_client.Writes(f"{self.folder}/disk")
        self.thread, self.failures = None, []
        return [self.tools["thermo-nbd"], "--unix", "s", "--export", "disk=disk", "--control", "c", "--budget", "16M"]

    def acts(self, process):
        try:
            self.stream, _ = nbd_client.attach(f"{self.folder}/s", "disk")
        except (FileNotFoundError, ConnectionError):
            return False
        self.thread = threading.Thread(target=self.write, daemon=True)
        self.thread.start()
        return True

    def write(self):
        try:
            self.writes.run(self.stream, self.choice)
        except (ConnectionError, BrokenPipeError):
            pass
        except Exception as error:  # any other end is a result
            self.failures.append(repr(error))

    def check(self):
        if self.thread is None:
            return None
        self.thread.join(DEADLINE)
        require(not self.thread.is_alive(), "the client waits for a server that is gone")
        require(not self.failures, f"the client failed: {self.failures}")
        lost = self.writes.lost()
        require(lost is None, f"a lost write: {lost}")
        return "all acknowledged writes found"


class MakeRun(Scenario):
    """The demonstration: a script with redis-server, a client, swap on zram and thermo."""
    share, starting = 12, 60.0
    own_ends = (0,)

    def command(self):
        self.environment = dict(os.environ, THERMO=self.thermo, RUN_KEYS="20000")
        return [f"{CHECKOUT}/scripts/run.sh", "5"]

    def start(self, command, **options):
        return super().start(command, env=self.environment, **options)

    sleep_until_kill = Hint.sleep_until_kill

    def check_session(self, session):
        # With redis-server ends what monitors it.
        self.pids.update(session_of(session))
        super().check_session(session)

    def check(self):
        swaps = open("/proc/swaps").read()
        listed = leftovers(self.thermo, self.pids)
        undo(self.thermo, self.pids)
        recording = self.check_recording(f"{CHECKOUT}/thermo.arrow")
        return ("swap listed and undone" if listed else "no swap") + ", " + recording if "zram" in swaps or listed else recording


SCENARIOS = [Record, Run, Reclaim, Schemes, LruSort, Hint, Injection, Export, Lifecycle, FsMount, FsCommand, Nbd, MakeRun]
__all__ = ["SCENARIOS", "Violation"]
