"""Prints time and peak memory of reports. Usage: report.py THERMO DAMO RECORDING.arrow RECORDING.damo"""
import os
import statistics
import subprocess
import sys
import tempfile
import time


def peak(pid):
    """Peak resident memory of a process in bytes. 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/status") as file:
            lines = [line for line in file if line.startswith("VmHWM:")]
    except OSError:
        return 0
    return 1024 * int(lines[0].split()[1]) if lines else 0


def cost(command):
    """Elapsed seconds, CPU seconds and peak bytes of a command. None if it failed."""
    began = time.monotonic()
    with open(os.devnull, "w") as null, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=null, stderr=errors)
        # The peak of wait4() also includes the memory of this process at the fork.
        peak_bytes, pid = 0, 0
        while pid == 0:
            peak_bytes = max(peak_bytes, peak(process.pid))
            time.sleep(0.0005)
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        elapsed = time.monotonic() - began
        process.returncode = status
        if status != 0:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines()
            print(f"  failed: {' '.join(command)}: {lines[-1] if lines else status}")
            return None
    return elapsed, usage.ru_utime + usage.ru_stime, peak_bytes


def median(command, times):
    costs = [result for result in (cost(command) for _ in range(times)) if result]
    return [statistics.median(column) for column in zip(*costs)] if costs else None


def show(name, result):
    print(f"  {name:<34} {result[0]:9.3f} s {result[1]:9.3f} s {result[2] / 2**20:9.1f} MiB", flush=True)


def main():
    thermo, damo, arrow, compressed = sys.argv[1:]
    thermo_commands = {
        "heatmap": [thermo, "report", "heatmap", arrow],
        "wss": [thermo, "report", "wss", arrow],
        "regions": [thermo, "report", "regions", arrow],
    }
    damo_commands = {
        "heatmap": [damo, "report", "heatmap", "--input", compressed, "--output", "stdout"],
        "wss": [damo, "report", "wss", "--input", compressed],
        "regions": [damo, "report", "access", "--input", compressed, "--raw_form"],
    }
    print(f"  {'':<34} {'time':>11} {'CPU':>11} {'peak':>13}   (thermo: medians of 5 runs; damo: one run)")
    for kind in thermo_commands:
        ours = median(thermo_commands[kind], 5)
        if ours:
            show(f"thermo report {kind}", ours)
        theirs = cost(damo_commands[kind]) if os.access(damo, os.X_OK) else None
        if theirs:
            show(f"damo {' '.join(damo_commands[kind][1:3])}", theirs)
        if ours and theirs:
            print(
                f"  {'ratio damo / thermo':<34} {'':11} {theirs[1] / max(ours[1], 1e-3):9.0f}   {theirs[2] / ours[2]:9.1f}"
            )


main()
