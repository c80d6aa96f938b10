"""Prints what importing the Python module takes, and reading a recording. Usage: python_module.py RECORDING"""
import importlib.metadata
import statistics
import subprocess
import sys
import time

REPEATS = 21
IMPORT = """
import time
begin, cpu_begin = time.perf_counter(), time.process_time()
import thermocline
print(time.perf_counter() - begin, time.process_time() - cpu_begin)
"""


def show(what, seconds):
    low, middle, high = min(seconds), statistics.median(seconds), max(seconds)
    print(f"  {what:<44} {1000 * middle:7.1f} ms ({1000 * low:.1f} to {1000 * high:.1f})", flush=True)


def imports():
    """Wall-clock and CPU seconds of the import in new interpreters."""
    runs = (subprocess.run([sys.executable, "-c", IMPORT], check=True, capture_output=True) for _ in range(REPEATS))
    return zip(*(map(float, run.stdout.split()) for run in runs))


def reads(path):
    """Wall-clock and CPU seconds of opening a recording and making a data frame of its regions."""
    import thermocline

    wall, cpu = [], []
    for _ in range(REPEATS):
        begin, cpu_begin = time.perf_counter(), time.process_time()
        frame = thermocline.open(path).to_pandas()
        wall.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - cpu_begin)
    return len(frame), wall, cpu


def main():
    versions = (f"{name} {importlib.metadata.version(name)}" for name in ("pyarrow", "pandas"))
    print(f"Python {sys.version.split()[0]}, {', '.join(versions)}; median of {REPEATS} (min to max)")
    wall, cpu = imports()
    show("import thermocline, in a new interpreter", wall)
    show("  its CPU time", cpu)
    rows, wall, cpu = reads(sys.argv[1])
    print(f"  {rows} regions; the first read, which imports pyarrow and pandas: {wall[0]:.2f} s")
    show("open().to_pandas(), each time again", wall[1:])
    show("  its CPU time", cpu[1:])


main()
