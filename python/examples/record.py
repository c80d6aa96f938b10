#!/usr/bin/env python3
"""Makes recording.arrow: a program of 96 MiB whose hot memory moves every 8 seconds.

A scheme only counts what it would act on (`stat`), so nothing is changed. As root: PYTHONPATH=src python
examples/record.py
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import thermocline

HERE = Path(__file__).parent
COLD_FOR_3_S = "min max 0% 0% 3s max stat\n"
# Three parts of 32 MiB. Every 8 seconds another one is written over and over.
PROGRAM = """
import time
parts = [bytearray(b"x" * (32 << 20)) for _ in range(3)]
print("ready", flush=True)
begin = time.monotonic()
while True:
    part = parts[int((time.monotonic() - begin) // 8) % 3]
    part[::4096] = bytes(len(part) // 4096)
    time.sleep(0.02)
"""


def main() -> None:
    schemes = HERE / "cold.damos"
    schemes.write_text(COLD_FOR_3_S)
    arguments = ["--schemes", str(schemes), "--max-regions", "100", "--cpu", "10%"]
    output = HERE / "recording.arrow"
    with subprocess.Popen(["/usr/bin/python3", "-IS", "-c", PROGRAM], stdout=subprocess.PIPE) as program:
        try:
            assert program.stdout is not None
            program.stdout.readline()
            with thermocline.record(program.pid, 24, output=output, arguments=arguments) as recording:
                pass
        finally:
            program.terminate()
    schemes.unlink()
    print(recording, *recording.messages, sep="\n")


if __name__ == "__main__":
    main()
