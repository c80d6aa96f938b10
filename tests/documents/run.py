#!/usr/bin/env python3
"""Runs the command lines in the code blocks of README.md, docs/guide/ and docs/reference/.

Names in them, such as process IDs, control groups and sockets, are replaced by those of services that the test
starts: a redis-server of 64 MiB in a control group of its own, the agent, the daemon for applications, and a
block server (tests/documents/services.py). Durations become a few seconds. Without swap, nothing can be paged
out, so commands that would are given --dry-run.

A command line must exit with 0, or with 1 where that is a documented answer. Where its output depends only on a
file that the page shows, it must be the output that the page shows. A command line that cannot run is printed with
the reason, and counted; the unit tests of the commands still give it to the parser.

Usage: tests/documents/run.py [PATTERN]      only command lines that match a regular expression
Environment: BIN (folder of the commands; default: target/release, else target/debug)
"""

import glob
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

from command_lines import ends_by_signal, has_fixed_output, lines_of, may_be_negative, needs_history, substitute, why_not
from services import PATIENCE, ROOT, Failure, Services


def skip_all(reason):
    print(f"SKIP: {reason}")
    sys.exit(0)


def find_commands():
    target = os.environ.get("CARGO_TARGET_DIR", f"{ROOT}/target")
    for folder in filter(None, [os.environ.get("BIN"), f"{target}/release", f"{target}/debug"]):
        paths = {name: os.path.join(folder, name) for name in ("thermo", "thermo-nbd", "thermo-lab")}
        if all(os.access(path, os.X_OK) for path in paths.values()):
            return paths
    return skip_all("the commands are not built: run  make build")


def all_lines(pattern):
    pages = ["README.md", *sorted(glob.glob("docs/guide/*.md", root_dir=ROOT) + glob.glob("docs/reference/*.md", root_dir=ROOT))]
    for page in pages:
        with open(f"{ROOT}/{page}", encoding="utf-8") as file:
            for begin, line, output in lines_of(file.read()):
                if re.search(pattern, line):
                    yield f"{page}:{begin}", line, output


def missing_here(line):
    """The reason why a command line cannot run on this machine, or None."""
    for program in ("damo", "nbdinfo", "curl"):
        if program in shlex.split(line) and not shutil.which(program):
            return f"{program} is not installed"
    if "--tls-cert" in line and not shutil.which("openssl"):
        return "openssl is not installed"
    return None


def has_swap():
    with open("/proc/swaps") as areas:
        return len(areas.readlines()) > 1


def without_swap(line):
    """Adds --dry-run to what would page out."""
    pages_out = re.match(r"thermo (reclaim|schemes apply|hint pageout)", line) and "--dry-run" not in line
    return line + " --dry-run" if pages_out and not has_swap() else line


def end(process):
    """Ends a command line that did not end: first with Ctrl-C, so that it restores what it changed."""
    for number in (signal.SIGINT, signal.SIGKILL):
        os.killpg(process.pid, number)
        try:
            return process.communicate(timeout=PATIENCE)[0]
        except subprocess.TimeoutExpired:
            pass
    return ""


def run_line(line, work, path):
    """Runs a command line. Returns the exit code and the output."""
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    process = subprocess.Popen(
        ["bash", "-c", line], cwd=work, env=environment, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )
    first = ""
    try:
        if ends_by_signal(line):
            # A server is ready when it has printed its address.
            first = process.stdout.readline()
            os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        output = end(process)
        return "no", f"{first}{output}\nstill running after {PATIENCE} s"
    return process.returncode, first + output


def bare(text):
    return "\n".join(line.strip() for line in text.strip().split("\n"))


def check_line(place, line, expected, services):
    """Runs a command line, prints the result, and returns "passed", "failed" or "skipped"."""
    if reason := why_not(line) or missing_here(line):
        print(f"SKIP: {place}: {line}: {reason}")
        return "skipped"
    if needs_history(line):
        services.wait_for_history()
    real = without_swap(substitute(line, services.names))
    services.restore_recording()
    code, output = run_line(real, services.work, os.path.dirname(services.commands["thermo"]))
    allowed = {0} | ({1} if may_be_negative(line) else set()) | ({130} if ends_by_signal(line) else set())
    differs = has_fixed_output(line) and expected and bare(output) != bare(expected)
    if code in allowed and not differs:
        print(f"ok ({code}): {place}: {line}")
        return "passed"
    print(f"FAILED: {place}: {line}\n    run as: {real}\n    exit code {code}, allowed {sorted(allowed)}")
    print("    the page has another output" if differs else "    output:")
    print("\n".join(f"    {text}" for text in output.rstrip().split("\n")[-15:]))
    return "failed"


def main(arguments):
    commands = find_commands()
    if os.geteuid() != 0:
        skip_all("only root may make the control group and monitor")
    if absent := [name for name in ("redis-server", "redis-cli") if not shutil.which(name)]:
        skip_all(f"{absent[0]} is not installed: run  scripts/deps.sh demo")
    # Those that need the history come last, because the agent takes its time to write it.
    lines = sorted(all_lines(arguments[0] if arguments else ""), key=lambda found: needs_history(found[1]))
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    with tempfile.TemporaryDirectory(prefix="docs-test-") as work:
        services = Services(commands, work)
        try:
            services.start()
            for place, line, expected in lines:
                counts[check_line(place, line, expected, services)] += 1
                sys.stdout.flush()
        except (Failure, subprocess.CalledProcessError) as error:
            print(f"FAILED: {error}\n{getattr(error, 'stderr', b'') or b''}")
            counts["failed"] += 1
        finally:
            services.stop()
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
    return 1 if counts["failed"] or not lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
