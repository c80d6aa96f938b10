"""Measures the life-cycle daemon; started by lifecycle.sh. Usage: lifecycle.py THERMO FOLDER SECONDS"""
import json, os, random, signal, socket, statistics, subprocess, sys, time

thermo, work, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
STATES = ["foreground", "perceptible", "background", "cached"]
TARGET = """
import sys, time
memory = bytearray(%d << 20)
for n in range(0, len(memory), 4096): memory[n:n+2048] = (b"%%d of some text " %% n * 200)[:2048]
part = len(memory) // 8
print("ready", flush=True)
for line in sys.stdin:
    end = len(memory) if line == "all\\n" else part
    begin = time.monotonic(); first = memory[0]; first_page = time.monotonic()
    for n in range(0, end, 4096): first += memory[n]
    print((first_page - begin) * 1e3, (time.monotonic() - begin) * 1e3, flush=True)
"""


class Daemon:
    def __init__(self, name, config):
        path = f"{work}/{name}.toml"
        open(path, "w").write(config)
        self.socket = f"{work}/{name}.sock"
        self.process = subprocess.Popen([thermo, "lifecycle", "run", path, "--socket", self.socket, "--json"],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            try:
                self.stream = socket.socket(socket.AF_UNIX)
                self.stream.connect(self.socket)
                break
            except OSError:
                if self.process.poll() is not None:
                    sys.exit(f"the daemon ended with {self.process.returncode} before it accepted a connection")
                time.sleep(0.05)
        self.lines = self.stream.makefile()

    def ask(self, **request):
        self.stream.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(self.lines.readline())
        assert answer["ok"], answer
        return answer

    def set(self, app, state):
        return self.ask(verb="set", app=app, state=state)

    def reclaim(self, app):
        """Waits for the end of the last reclaim of an application and returns its cost."""
        while True:
            done = [d for d in self.ask(verb="why", app=app)["decisions"] if d["decision"] == "reclaim"]
            if done and done[-1]["cost"]:
                return done[-1]["cost"]
            time.sleep(0.02)

    def end(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


class Target:
    def __init__(self, mib):
        self.process = subprocess.Popen([sys.executable, "-c", TARGET % mib], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)
        self.process.stdout.readline()
        self.pid = self.process.pid

    def use(self, part):
        """Touches all of the memory, or an eighth ("part"). Returns the milliseconds of the first page and of the whole."""
        self.process.stdin.write(part + "\n")
        return [float(word) for word in self.process.stdout.readline().split()]

    def end(self):
        self.process.kill()
        self.process.wait()


def many():
    apps = [subprocess.Popen(["sleep", "100000"]) for _ in range(500)]
    config = 'poll = "2s"\n' + "".join(f'[[app]]\nname = "a{n}"\npid = {app.pid}\nmin_anon_rss = "0"\n'
                                       f'min_change = "0"\nprofile = "some"\n' for n, app in enumerate(apps))
    daemon = Daemon("many", config)
    before = daemon.ask(verb="status")
    rng, times, begin, sent = random.Random(1), [], time.monotonic(), 0
    changes = {}
    while time.monotonic() - begin < seconds:
        name, state = f"a{rng.randrange(500)}", rng.choice(STATES)
        if changes.get(name, ["background"])[-1] != state:
            changes.setdefault(name, ["background"]).append(state)
        sent_at = time.monotonic()
        assert daemon.set(name, state)["state"] == state
        times.append((time.monotonic() - sent_at) * 1e3)
        sent += 1
        time.sleep(max(0, begin + sent / 50 - time.monotonic()))
    span = time.monotonic() - begin
    after = daemon.ask(verb="status")
    counted = {app["name"]: (app["changes"], app["state"]) for app in after["apps"]}
    lost = sum(counted[name] != (len(states) - 1, states[-1]) for name, states in changes.items())
    times.sort()
    cpu = (after["cpu_us"] - before["cpu_us"]) / 1e6
    print(f"500 applications, {sent} state changes in {span:.0f} s ({sent / span:.0f} per second)")
    print(f"  response time: median {statistics.median(times):.2f} ms, 99 % {times[int(len(times) * .99)]:.2f} ms, "
          f"max {times[-1]:.2f} ms; max inside the daemon {after['longest_request_us'] / 1e3:.2f} ms")
    print(f"  applications with a wrong state or number of changes: {lost}")
    print(f"  daemon: {cpu / span * 100:.2f} % of a CPU, {after['rss_kb'] / 1024:.1f} MiB resident")
    daemon.end()
    for app in apps:
        app.kill()
        app.wait()


RULES = 'min_anon_rss = "0"\nmin_change = "0"\nfull_full = "0s"\nsome_full = "0s"\nswap_low = "0%"\n'


def reaction():
    target = Target(64)
    daemon = Daemon("reaction", f'duty = "100%"\n[[app]]\nname = "a"\npid = {target.pid}\n{RULES}')
    reactions, longest, cpu = [], [], []
    for _ in range(20):
        daemon.set("a", "cached")
        cost = daemon.reclaim("a")
        reactions.append(cost["reaction_us"] / 1e3)
        longest.append(cost["longest_call_us"] / 1e3)
        cpu.append(cost["cpu_ms_per_mb"])
        daemon.set("a", "foreground")
        target.use("all")
    print("time from `set cached` to the first freed bytes, application of 64 MiB, 20 times")
    print(f"  median {statistics.median(reactions):.2f} ms, max {max(reactions):.2f} ms; longest call of each "
          f"reclaim: median {statistics.median(longest):.2f} ms, max {max(longest):.2f} ms; "
          f"{statistics.median(cpu):.2f} ms of CPU per MiB")
    daemon.end()
    target.end()


def resume():
    print("time to resume, application of 128 MiB that uses an eighth; medians of 15: first page, then the eighth")
    for name, prefetch, interrupt in [("without reclaim", "false", None), ("during reclaim", "false", True),
                                      ("after reclaim, no prefetch", "false", False), ("after reclaim, prefetch", "true", False)]:
        target = Target(128)
        daemon = Daemon(f"resume{len(name)}", f'duty = "50%"\n[[app]]\nname = "a"\npid = {target.pid}\n{RULES}prefetch = {prefetch}\n')
        firsts, parts, ends = [], [], []
        for turn in range(17):
            if interrupt is not None:
                daemon.set("a", "cached")
                if interrupt:
                    time.sleep(0.05)
                else:
                    daemon.reclaim("a")
                daemon.set("a", "foreground")
            first, part = target.use("part")
            if interrupt:
                ends.append(daemon.reclaim("a")["end"])
            # The first two times, the daemon does not know the working set yet.
            if turn >= 2:
                firsts.append(first)
                parts.append(part)
            if interrupt:
                target.use("all")
        cancelled = f"; {ends.count('cancelled')} of {len(ends)} reclaims were cancelled" if interrupt else ""
        print(f"  {name:<28} {statistics.median(firsts):8.3f} ms {statistics.median(parts):9.2f} ms{cancelled}")
        daemon.end()
        target.end()


many()
reaction()
resume()
