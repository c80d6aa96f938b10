"""The commands whose calls fail, what a client does while each runs, and how its files are checked."""
import os
import re
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "kills"))
import nbd_client  # noqa: E402
from errors import ERRORS  # noqa: E402
from machine import Violation, is_mounted, leftovers, require  # noqa: E402

# Marks the targets, by their environment, for the agent.
MARK = "THERMO_FAULTS"
os.environ[MARK] = str(os.getpid())
# A command that is traced on a busy machine takes seconds; one that hangs takes for ever.
DEADLINE = 40


class Command:
    """A command in a folder of its own. `use` is what a client does while it runs."""
    needs_target = True
    # Calls whose errors of the table cannot occur, and errors that only calls of this command return.
    impossible, own_errors = (), {}
    # If set, no others fail.
    only = None

    def __init__(self, tools, folder):
        self.tools, self.folder, self.target = tools, folder, None

    def arguments(self):
        raise NotImplementedError

    def use(self, process):
        """Returns when the command should end."""

    def check(self, code):
        """Checks the files that the command writes."""

    def result(self):
        """What says why nothing was done, besides the messages."""
        return ""

    def path(self, name):
        return os.path.join(self.folder, name)

    def report(self, name, code):
        """A recording under its name must be readable, as far as it goes."""
        if not os.path.exists(self.path(name)):
            return
        done = subprocess.run([self.tools["thermo"], "report", "info", self.path(name), "--json"], capture_output=True,
                              text=True, timeout=DEADLINE)
        nothing = re.search("is empty|before its first record", done.stderr)
        require(done.returncode in (0, 1) or nothing, f"the recording cannot be read: {done.stderr}")
        require(code != 0 or done.returncode == 0, f"ended with 0, but the recording is cut: {done.stderr}")


class Record(Command):
    def arguments(self):
        return ["thermo", "record", "--pid", str(self.target.pid), "-o", self.path("r.arrow"), "--duration", "1500ms"]

    def check(self, code):
        self.report("r.arrow", code)
        require(code != 0 or os.path.exists(self.path("r.arrow")), "ended with 0 without a recording")
        more = set(os.listdir(self.folder)) - {"r.arrow", "log", "out", "calls"}
        require(not more, f"left in the folder: {more}")


class Report(Command):
    """`what` and the end of a whole output."""
    needs_target, output, ending = False, "o.html", "</html>"
    words = ["report", "heatmap", "RECORDING", "--html", "OUTPUT"]

    def arguments(self):
        places = {"RECORDING": self.tools["recording"], "OUTPUT": self.path(self.output)}
        return ["thermo"] + [places.get(word, word) for word in self.words]

    def check(self, code):
        whole = self.tools.setdefault("whole", {}).get(type(self))
        if os.path.exists(self.path(self.output)):
            with open(self.path(self.output), "rb") as file:
                content = file.read()
            if whole is None:
                self.tools["whole"][type(self)] = content
            require(whole in (None, content), f"{self.output} differs from that of a run without a fault")
            require(code == 0, f"ended with {code}, but {self.output} was written")
        elif code == 0:
            raise Violation(f"ended with 0 without {self.output}")
        more = set(os.listdir(self.folder)) - {self.output, "log", "out", "calls"}
        require(not more, f"left in the folder: {more}")


class ReportOut(Report):
    """To standard output."""
    output, words = "out", ["report", "summary", "RECORDING", "--json"]

    def check(self, code):
        with open(self.path("out"), "rb") as file:
            content = file.read()
        whole = self.tools.setdefault("whole", {}).setdefault(type(self), content)
        require(code != 0 or content == whole, "ended with 0 with other output than without a fault")


class ReportCsv(ReportOut):
    words = ["report", "regions", "RECORDING", "--csv"]


class ReportSvg(Report):
    output, words = "o.svg", ["report", "heatmap", "RECORDING", "--svg", "OUTPUT"]


class ReportPng(Report):
    output, words = "o.png", ["report", "heatmap", "RECORDING", "--png", "OUTPUT"]


class ExportJson(Report):
    output, words = "o.json", ["export", "RECORDING", "--format", "damo-json-plain", "-o", "OUTPUT"]


class ExportCsv(Report):
    output, words = "o.csv", ["export", "RECORDING", "--format", "csv", "-o", "OUTPUT"]


class ExportParquet(Report):
    output, words = "o.parquet", ["export", "RECORDING", "--format", "parquet", "-o", "OUTPUT"]


class Schemes(Command):
    def arguments(self):
        with open(self.path("s.damos"), "w") as file:
            file.write("4K max 0 0 100ms max pageout\n4K max 0 0 0 max stat\n4K max 5 max 0 max willneed\n")
        return ["thermo", "schemes", "apply", self.path("s.damos"), "--pid", str(self.target.pid), "--duration", "1500ms"]


class Hint(Command):
    """Every error of advice: the result says which, and nothing done is exit 1."""
    own_errors = {"process_madvise": "EPERM EBUSY ENOSYS EACCES EINVAL EIO EFAULT EBADF EAGAIN ENOMEM EINTR short EPERM+ ENOSYS+ EBUSY+"}

    def arguments(self):
        return ["thermo", "hint", "cold", "--pid", str(self.target.pid)]

    def result(self):
        with open(self.path("out")) as file:
            return file.read()

    def check(self, code):
        said = self.result()
        require(code != 0 or re.search(r" cold: .* advised", said), f"ended with 0, but the result is {said!r}")
        require(code != 0 or " 0 B advised" not in said, f"ended with 0, but advised nothing: {said}")
        # If nothing of /proc can be read any more, there are no processes.
        require("no process to advise" not in said or self.said or self.lasting, f"a wrong reason: {said}")


class HugeFlags(Command):
    def arguments(self):
        with open(self.path("s.damos"), "w") as file:
            file.write("2M max 0 max 0 max hugepage\n")
        return ["thermo", "schemes", "apply", self.path("s.damos"), "--pid", str(self.target.pid), "--duration", "1500ms",
                "--huge-flags", "--sample", "10ms", "--aggr", "100ms"]

    def check(self, code):
        # Flags cannot be removed: at the end the opposite is set, in mode `madvise` the same as none.
        with open(f"/proc/{self.target.pid}/smaps") as file:
            is_set = re.search("^VmFlags:.* hg( |$)", file.read(), re.M)
        if is_set:
            listed = leftovers(self.tools["thermo"], {self.pid})
            require(listed, "huge-page flags are left set, and doctor --leftovers does not list them")
            require(self.said, "huge-page flags are left set without a word")
        # What is listed ends with the target.
        self.target.remove()


class Lifecycle(Command):
    def arguments(self):
        with open(self.path("apps.toml"), "w") as file:
            file.write(f'[[app]]\nname = "a"\npid = {self.target.pid}\nmin_anon_rss = "1M"\nmin_change = "0"\n'
                       'prefetch = true\nfull_full = "0s"\nsome_some = "0s"\nsome_full = "0s"\nfull_some = "0s"\n')
        return ["thermo", "lifecycle", "run", self.path("apps.toml"), "--socket", self.path("s")]

    def use(self, process):
        wait_while_runs(process, lambda: os.path.exists(self.path("s")))
        for state in ("cached", "foreground"):
            if process.poll() is None:
                done = subprocess.run([self.tools["thermo"], "lifecycle", "set", "a", state, "--socket", self.path("s")],
                                      capture_output=True, text=True, timeout=DEADLINE)
                require(done.returncode in (0, 1, 2) and "panicked" not in done.stderr, f"the client: {done.stderr}")
        if process.poll() is None and not self.lasting:
            # The fault may meet the first of two clients.
            done = [subprocess.run([self.tools["thermo"], "lifecycle", "status", "--socket", self.path("s")],
                                   capture_output=True, text=True, timeout=DEADLINE) for _ in range(2)]
            answered = any(client.returncode == 0 for client in done)
            require(answered or process.poll() is not None, f"the daemon answers nobody: {done[1].stderr}")


class Agent(Command):
    """Watches the target for some seconds, keeps a history, and writes files for a fleet."""

    def arguments(self):
        with open(self.path("agent.toml"), "w") as file:
            file.write(f'state_dir = "{self.path("state")}"\n[http]\nsocket = "{self.path("s")}"\n'
                       '[history]\nevery = "1s"\n[export]\nevery = "1s"\nwindow = "2s"\n'
                       f'[[policy]]\nname = "target"\nmatch = {{ env = "{MARK}={os.environ[MARK]}" }}\n')
        return ["thermo", "agent", "--config", self.path("agent.toml")]

    def use(self, process):
        wait_while_runs(process, lambda: os.path.exists(self.path("s")))
        end, done = time.monotonic() + 5, None
        while process.poll() is None and time.monotonic() < end:
            # An agent that accepts no connection is given up after 40 s.
            done = subprocess.run([self.tools["thermo"], "agent", "status", "--agent", self.path("s")], capture_output=True,
                                  text=True, timeout=2 * DEADLINE)
            require(done.returncode in (0, 1, 2) and "panicked" not in done.stderr, f"the client: {done.stderr}")
            time.sleep(0.2)
        answered = done and done.returncode == 0
        require(answered or self.lasting or process.poll() is not None, f"the agent answers nobody: {done and done.stderr}")


class FsMount(Command):
    # writev: replies to the kernel, tried in `FuseReplies`.
    # The library fuser panics where poll(2) gets no memory at the unmount: known, not ours.
    impossible = ("writev", "poll")

    def arguments(self):
        os.mkdir(self.path("damon"))
        return ["thermo", "fs", "--mount", self.path("damon")]

    def use(self, process):
        wait_while_runs(process, lambda: is_mounted(self.path("damon")))
        top = self.path("damon/admin/kdamonds")
        script = (f"echo 1 >{top}/nr_kdamonds; cd {top}/0/contexts || exit; echo 1 >nr_contexts; cd 0; echo vaddr >operations;"
                  f"echo 1 >targets/nr_targets; echo {self.target.pid} >targets/0/pid_target; echo 1 >schemes/nr_schemes; cd {top}/0;"
                  "echo on >state; cat state pid; sleep 0.3; echo update_schemes_stats >state; echo update_schemes_tried_regions >state;"
                  "cat contexts/0/schemes/0/stats/*; find . -type f >/dev/null; echo off >state; cat state")
        client = subprocess.Popen(["sh", "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            client.wait(20)
        except subprocess.TimeoutExpired:
            # Ends the waiting of the client, which not even a signal would.
            process.send_signal(signal.SIGTERM)
            try:
                client.wait(20)
            except subprocess.TimeoutExpired:
                subprocess.run(["umount", "--force", "--lazy", self.path("damon")], check=False)
                os.killpg(process.pid, signal.SIGKILL)
            raise Violation("a file operation waits for ever") from None

    def check(self, code):
        if is_mounted(self.path("damon")):
            listed = [note for note in leftovers(self.tools["thermo"], {self.pid})]
            require(listed, "the mount is left, and doctor --leftovers does not list it")
            require(self.ended_by or self.said, "the mount is left without a word")


class FuseReplies(FsMount):
    """Requests and replies only. The kernel does not refuse a reply for lack of space. It returns ENOENT if
    the request was interrupted, and ENODEV after the end of the mount."""
    impossible, only = (), ("read", "writev")
    own_errors = {"read": "ENOENT EINTR EAGAIN", "writev": "ENOENT ENODEV EIO ENOMEM EINTR"}


class Nbd(Command):
    needs_target = False

    def arguments(self):
        with open(self.path("disk"), "wb") as file:
            file.truncate(1 << 20)
        return ["thermo-nbd", "--unix", self.path("s"), "--export", f"d={self.path('disk')}"]

    def use(self, process):
        wait_while_runs(process, lambda: os.path.exists(self.path("s")))
        self.acknowledged = False
        try:
            stream, size = nbd_client.attach(self.path("s"), "d", 5)
            stream.sendall(nbd_client.request(nbd_client.WRITE, 1, 0, 4096, 0, b"w" * 4096))
            written = nbd_client.reply(stream)[1] == 0
            stream.sendall(nbd_client.request(nbd_client.FLUSH, 2, 0, 0))
            flushed = nbd_client.reply(stream)[1] == 0
            self.acknowledged = written and flushed
            stream.sendall(nbd_client.request(0, 3, 0, 4096))
            if nbd_client.reply(stream)[1] == 0 and written:
                require(nbd_client.receive(stream, 4096) == b"w" * 4096, "the server returned other data")
            stream.close()
        except (ConnectionError, FileNotFoundError, TimeoutError):
            # The fault met this client. The next one is served, or the server has ended.
            self.attach_again(process)

    def attach_again(self, process):
        end = time.monotonic() + 10
        while process.poll() is None and not self.lasting:
            try:
                return nbd_client.attach(self.path("s"), "d", 5)[0].close()
            except (ConnectionError, FileNotFoundError, TimeoutError) as error:
                # The path is there before the server listens.
                require(time.monotonic() < end, f"the server runs and serves nobody: {error}")
                time.sleep(0.005)

    def check(self, code):
        if getattr(self, "acknowledged", False):
            with open(self.path("disk"), "rb") as file:
                require(file.read(4096) == b"w" * 4096, "an acknowledged write is lost")


COMMANDS = [Record, Report, ReportSvg, ReportPng, ReportOut, ReportCsv, ExportJson, ExportCsv, ExportParquet, Schemes, Hint, HugeFlags, Agent,
            Lifecycle, FsMount, FuseReplies, Nbd]


def wait_while_runs(process, condition):
    """Waits for something that no descriptor reports, or the end of the process."""
    end = time.monotonic() + DEADLINE
    while process.poll() is None and not condition():
        require(time.monotonic() < end, "the command does not become ready")
        time.sleep(0.005)


def errors_of(kind, call):
    """The errors to try for a call of a command."""
    if call in kind.impossible or kind.only and call not in kind.only:
        return []
    return (kind.own_errors.get(call) or ERRORS.get(call, "")).split()
