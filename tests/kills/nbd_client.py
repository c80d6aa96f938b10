"""A client of a block server that writes, and remembers what the server acknowledged."""
import random
import socket
import struct

BLOCK, BLOCKS, DEPTH = 16384, 512, 8
FUA, WRITE, FLUSH = 1, 1, 3


def receive(stream, count):
    data = b""
    while len(data) < count:
        part = stream.recv(count - len(data))
        if not part:
            raise ConnectionError("the server closed the connection")
        data += part
    return data


def attach(path, export, timeout=120):
    """Connects and chooses an export. Returns the stream and the size of the export."""
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(timeout)
    stream.connect(path)
    return stream, choose_export(stream, export)


def choose_export(stream, export):
    receive(stream, 18)
    name = export.encode()
    stream.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, len(name)) + name)
    return struct.unpack(">QH", receive(stream, 10))[0]


def request(command, cookie, offset, length, flags=0, data=b""):
    return struct.pack(">IHHQQI", 0x25609513, flags, command, cookie, offset, length) + data


def reply(stream):
    magic, error, cookie = struct.unpack(">IIQ", receive(stream, 16))
    assert magic == 0x67446698, hex(magic)
    return cookie, error


class Writes:
    """All writes to one disk, over any number of servers."""

    def __init__(self, disk):
        self.disk, self.version = disk, 0
        # durable: the newest version of each block that must be in the file. written: all versions ever
        # written.
        self.durable, self.written = {}, {}
        with open(disk, "wb") as file:
            file.truncate(BLOCK * BLOCKS)

    def run(self, stream, choice=random):
        """Writes until the server is gone."""
        pending, unflushed, cookie = {}, {}, 0
        while True:
            cookie += 1
            if choice.random() < 0.05 and unflushed:
                pending[cookie] = (FLUSH, dict(unflushed))
                stream.sendall(request(FLUSH, cookie, 0, 0))
            else:
                busy = {value[1] for value in pending.values() if value[0] == WRITE}
                number = choice.choice([number for number in range(BLOCKS) if number not in busy])
                self.version += 1
                self.written.setdefault(number, set()).add(self.version)
                flags = FUA if choice.random() < 0.3 else 0
                pending[cookie] = (WRITE, number, self.version, flags)
                data = struct.pack(">QQ", number, self.version) * (BLOCK // 16)
                stream.sendall(request(WRITE, cookie, number * BLOCK, BLOCK, flags, data))
            while len(pending) >= DEPTH:
                self.acknowledge(pending, unflushed, *reply(stream))

    def acknowledge(self, pending, unflushed, cookie, error):
        assert error == 0, f"the server reported error {error}"
        done = pending.pop(cookie)
        if done[0] == FLUSH:
            for number, version in done[1].items():
                self.durable[number] = max(version, self.durable.get(number, 0))
        else:
            _, number, version, flags = done
            (self.durable if flags else unflushed)[number] = version

    def lost(self):
        """A sentence about the first acknowledged write that is not in the file; None without."""
        with open(self.disk, "rb") as file:
            for number, acknowledged in self.durable.items():
                file.seek(number * BLOCK)
                pairs = set(struct.iter_unpack(">QQ", file.read(BLOCK)))
                # A write that was not acknowledged may be in the file in part.
                valid = {(number, version) for version in self.written[number] if version >= acknowledged}
                if not pairs <= valid:
                    return f"block {number}: version {acknowledged} was acknowledged, the file has {pairs - valid}"
        return None
