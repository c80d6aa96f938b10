"""What a killed command can leave on the machine, and a target that notices any harm."""
import json
import os
import re
import select
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CHECKOUT = os.path.dirname(os.path.dirname(HERE))
DEADLINE = 120.0


class Violation(Exception):
    """Something that must not happen after a kill."""


def require(condition, message):
    if not condition:
        raise Violation(message)


def wait_until(condition, what, seconds=DEADLINE):
    """Waits for a condition that no descriptor reports."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        require(time.monotonic() < end, f"{what}: not within {seconds:.0f} s")
        time.sleep(0.005)
    return found


def read_line(stream, what):
    require(select.select([stream], [], [], DEADLINE)[0], f"{what}: no answer within {DEADLINE:.0f} s")
    return stream.readline().strip()


class Target:
    def __init__(self, folder):
        self.process = subprocess.Popen([sys.executable, f"{HERE}/target.py", f"{folder}/target.file"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        word, start, end = read_line(self.process.stdout, "the target").split()
        assert word == "ready"
        self.pid, self.start, self.end = self.process.pid, int(start, 16), int(end, 16)

    def check(self):
        """Raises if the target has ended, stands still, or finds a changed byte."""
        require(self.process.poll() is None, f"the target ended with {self.process.returncode}")
        try:
            self.process.stdin.write("check\n")
            answer = read_line(self.process.stdout, "the target")
        except BrokenPipeError as error:
            raise Violation("the target ended") from error
        require(answer == "same", f"the memory of the target: {answer or 'the target ended'}")

    def has_huge_flags(self):
        """Whether a mapping of the anonymous memory is advised for or against huge pages."""
        inside = False
        with open(f"/proc/{self.pid}/smaps") as file:
            for line in file:
                if head := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
                    inside = int(head[1], 16) < self.end and int(head[2], 16) > self.start
                elif inside and line.startswith("VmFlags:") and {"hg", "nh"} & set(line.split()):
                    return True
        return False

    def end_well(self):
        self.process.stdin.close()
        code = self.process.wait(DEADLINE)
        require(code == 0, f"the target ended with {code}")

    def remove(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def session_of(session):
    """The processes of a session that have not ended."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    state, *rest = file.read().rpartition(") ")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(rest[2]) == session and state not in "ZX":
                found.append(int(name))
    return found


def end_session(session):
    for pid in session_of(session):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def is_mounted(folder):
    with open("/proc/self/mountinfo") as file:
        return any(line.split()[4] == folder for line in file)


def mounts_below(folder):
    with open("/proc/self/mountinfo") as file:
        return [line.split()[4] for line in file if line.split()[4].startswith(folder)]


def leftovers(thermo, pids):
    """The entries of `doctor --leftovers` that processes `pids` wrote."""
    done = subprocess.run([thermo, "doctor", "--leftovers", "--json"], capture_output=True, text=True, timeout=DEADLINE)
    require(done.returncode in (0, 1), f"doctor --leftovers ended with {done.returncode}: {done.stderr}")
    return [note for note in json.loads(done.stdout)["leftovers"] if note["pid"] in pids]


def undo(thermo, pids):
    """Runs the commands that `doctor --leftovers` prints. Nothing may be left afterwards."""
    for note in leftovers(thermo, pids):
        for sentence in note["left"]:
            command = re.search(r"`([^`]+)`", sentence)
            require(command, f"doctor --leftovers prints no command: {sentence}")
            done = subprocess.run(["sh", "-c", command[1]], capture_output=True, text=True, timeout=DEADLINE)
            require(done.returncode == 0, f"{command[1]}: {done.stderr}")
        if os.path.exists(note["note"]):
            os.remove(note["note"])  # As the command says: the note of a change that is undone.
    left = leftovers(thermo, pids)
    require(not left, f"left although it was undone: {left}")


def notes_of(pids):
    """Files of notes by processes `pids`, complete or not."""
    folder = "/run/thermocline"
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return [name for name in names if set(re.findall(r"-(\d+)-", name)) & {str(pid) for pid in pids}]


class Swap:
    """Swap on zram while the kills last, so that anonymous memory is paged out; noted in case this is
    killed."""

    def __init__(self):
        self.process = None
        with open("/proc/swaps") as file:
            has_swap = len(file.readlines()) > 1
        if has_swap or not os.path.exists("/sys/class/zram-control"):
            return
        script = ". scripts/zram.sh; trap remove_zram EXIT; make_zram 256M >&2; echo ready; read -r _ || true"
        self.process = subprocess.Popen(["bash", "-euc", script], cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert read_line(self.process.stdout, "swap on zram") == "ready", "cannot create swap on zram"

    def remove(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait(DEADLINE)
