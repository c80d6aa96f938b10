"""A process with 64 MiB, of which it uses 8 MiB all the time."""

import time

memory = bytearray(64 << 20)
for page in range(0, len(memory), 4096):
    memory[page] = 1
while True:
    for page in range(0, 8 << 20, 4096):
        memory[page] = 2
    time.sleep(0.5)
