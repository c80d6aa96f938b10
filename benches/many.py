"""Many small processes that go on without using up the machine. Usage: many.py COUNT MIB

Each touches all of its memory once, then an eighth of it twenty times a second. Prints their numbers, a line each, when
all are at it; they end with this process, or with its standard input.
"""
import os
import subprocess
import sys

LIFE = """
import ctypes, os, time
ctypes.CDLL(None).prctl(1, 9)
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
    life = LIFE.format(bytes=mib << 20, parent=os.getpid())
    command = [sys.executable, "-SE", "-c", life]
    living = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    for one in living:
        print(one.stdout.readline().strip(), flush=True)
    print("all", flush=True)
    sys.stdin.read()
    for one in living:
        one.kill()


main()
