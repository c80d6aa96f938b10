"""CPU time and peak memory of reports. Usage: report.py THERMO DAMO RECORDING.arrow RECORDING.damo"""
import os
import statistics
import subprocess
import sys
import tempfile
import time


def peak(pid):
    """The most memory it had so far, in bytes; 0 when it has ended."""
    try:
        with open(f"/proc/{pid}/status") as file:
            lines = [line for line in file if line.startswith("VmHWM:")]
    except OSError:
        return 0
    return 1024 * int(lines[0].split()[1]) if lines else 0


def cost(command):
    """Seconds of wall clock, seconds of CPU, peak bytes; None when it failed."""
    began = time.monotonic()
    with open(os.devnull, "w") as nowhere, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=nowhere, stderr=errors)
        # wait4() has a peak too, but one that begins with what we had when we forked.
        most, pid = 0, 0
        while pid == 0:
            most = max(most, peak(process.pid))
            time.sleep(0.0005)
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
        took = time.monotonic() - began
        process.returncode = status
        if status != 0:
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines()
            print(f"  failed: {' '.join(command)}: {said[-1] if said else status}")
            return None
    return took, used.ru_utime + used.ru_stime, most


def median(command, times):
    costs = [one for one in (cost(command) for _ in range(times)) if one]
    return [statistics.median(column) for column in zip(*costs)] if costs else None


def show(name, one):
    print(f"  {name:<34} {one[0]:9.3f} s {one[1]:9.3f} s {one[2] / 2**20:9.1f} MiB", flush=True)


def main():
    thermo, damo, arrow, compressed = sys.argv[1:]
    ours = {
        "heatmap": [thermo, "report", "heatmap", arrow],
        "wss": [thermo, "report", "wss", arrow],
        "regions": [thermo, "report", "regions", arrow],
    }
    theirs = {
        "heatmap": [damo, "report", "heatmap", "--input", compressed, "--output", "stdout"],
        "wss": [damo, "report", "wss", "--input", compressed],
        "regions": [damo, "report", "access", "--input", compressed, "--raw_form"],
    }
    print(f"  {'':<34} {'time':>11} {'CPU':>11} {'peak':>13}   (thermo: medians of 5 runs; damo: one)")
    for kind in ours:
        us = median(ours[kind], 5)
        if us:
            show(f"thermo report {kind}", us)
        them = cost(theirs[kind]) if os.access(damo, os.X_OK) else None
        if them:
            show(f"damo {' '.join(theirs[kind][1:3])}", them)
        if us and them:
            print(f"  {'':<20} {them[1] / max(us[1], 1e-3):7.0f} times less CPU time, {them[2] / us[2]:6.1f} times less memory")


main()
