"""Starts many small processes with a low CPU load. Usage: many_processes.py COUNT MIB

Each touches all of its memory once, then an eighth of it twenty times a second. Prints one pid per line, then
"all". The processes end with this process, or when its standard input is closed.
"""
import os
import subprocess
import sys

PROGRAM = """
import ctypes, os, time
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
memory = bytearray({bytes})
for page in range(0, len(memory), 4096):
    memory[page] = 1
print(os.getpid(), flush=True)
while os.getppid() == {parent}:
    for page in range(len(memory) * 7 // 8, len(memory), 4096):
        memory[page] = 1
    time.sleep(0.05)
"""


def main():
    count, mib = int(sys.argv[1]), int(sys.argv[2])
    program = PROGRAM.format(bytes=mib << 20, parent=os.getpid())
    command = [sys.executable, "-SE", "-c", program]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    for process in processes:
        print(process.stdout.readline().strip(), flush=True)
    print("all", flush=True)
    sys.stdin.read()
    for process in processes:
        process.kill()


main()
