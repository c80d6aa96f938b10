"""The command lines in the documentation's code blocks, and what stands for the names in them."""

import re
import shlex
import sys

sys.dont_write_bytecode = True

PROGRAMS = ("thermo", "thermo-nbd", "thermo-lab", "nbdinfo", "curl")
SHELL = ("", "console", "sh")


def blocks_of(text):
    """Yields the line number, the language and the lines of each code block."""
    begin = language = lines = None
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.strip()
        if lines is None:
            if bare.startswith("```"):
                begin, language, lines = number, bare[3:].strip(), []
        elif bare.startswith("```"):
            yield begin, language, lines
            lines = None
        else:
            lines.append(bare)


def lines_of(text):
    """Yields the number of a block, a command line in it without prompt and explanation, and its output.

    A block in which a line has a prompt also has output; in others each line is a command.
    """
    for begin, language, lines in blocks_of(text):
        if language not in SHELL:
            continue
        joined = "\n".join(lines).replace("\\\n", " ").split("\n")
        has_prompt = any(re.match(r"\$ |# thermo", line) for line in joined)
        is_command = [bool(re.match(r"[$#] ", line)) or not has_prompt for line in joined]
        for nth, line in enumerate(joined):
            if not is_command[nth]:
                continue
            end = next((n for n in range(nth + 1, len(joined)) if is_command[n]), len(joined))
            output = "\n".join(joined[nth + 1 : end])
            line = re.split(r"  | # ", re.sub(r"^[$#] ", "", line))[0].strip()
            line = re.sub(r"\bsudo ", "", line)
            if any(word in PROGRAMS for word in line.split(" ")):
                yield begin, line, output


def why_not(line):
    """The reason why a command line is not run on any machine, or None."""
    words = shlex.split(line)
    if "…" in line:
        return "not written out"
    if "--system" in words:
        return "machine-wide"
    if words[0] == "thermo-lab" and words[1] != "workload":
        return "an experiment: it takes minutes to hours, and sets up swap"
    if words[:2] == ["thermo", "top"]:
        return "it needs a terminal: tests/top.sh"
    if words[:2] == ["thermo", "agent"] and (len(words) == 2 or words[2] in ("reload", "--config")):
        return "the agent runs already"
    if words[:3] == ["thermo", "lifecycle", "run"]:
        return "the daemon runs already"
    return None


def substitute(line, names):
    """The command line with the names of this machine in place of those of the documentation.

    `names` has pid, comm, cgroup, unit, work (a folder), agent and lifecycle (sockets), port (of the agent), free
    (a free port) and state (the agent's state directory), and policy and target (of the agent).
    """
    work = names["work"]
    table = [
        (r"\$\(pidof [^)]*\)", names["pid"]),
        (r"(?<=--pid )\d+|(?<=damo record )\d+", names["pid"]),
        (r"(?<=--name )\S+", names["comm"]),
        (r"(?<=--cgroup )\S+", names["cgroup"]),
        (r"(?<=--unit )(?!/)\S+", names["unit"]),
        (r"(?<=--(?:target) )\S+|(?<=target=)[\w.-]+", names["target"]),
        (r"(?<=--policy )\S+|(?<=policies/)\w+", names["policy"]),
        (r"(?<=agent mode )\w+", names["policy"]),
        (r"(?<=agent check)$", " guide.toml"),
        (r"(?<=schemes check )my.damos", "guide.damos"),
        (r"/run/thermo/agent.sock", names["agent"]),
        (r"127\.0\.0\.1:9\d+", f"127.0.0.1:{names['port']}"),
        (r"127\.0\.0\.1:10809", f"127.0.0.1:{names['free']}"),
        (r"/run/nbd\.ctl", names["nbd_control"] if " --" not in line.split("--control")[0] else f"{work}/other.ctl"),
        (r"(?<=[ =])/(?:run|srv|etc/thermo)/", f"{work}/"),
        (r"(?<=--duration )\S+|(?<=--idle-for )\S+", "3s"),
        (r"(?<=--min-age )\S+", "1s"),
        (r"(?<=--since )(?:\"[^\"]*\"|\S+)", "-10m"),
        (r" --until \S+", ""),
        (r"\bcurl ", "curl --silent --show-error --fail-with-body "),
        (r"(?<=-- )redis-server$", "redis-server --port 0"),
    ]
    for pattern, text in table:
        line = re.sub(pattern, text.replace("\\", r"\\"), line)
    return line + suffix(line, names)


def suffix(line, names):
    """Flags that make a command line end, or find the services of the test."""
    words = shlex.split(line)
    if words[:2] == ["thermo", "lifecycle"]:
        return f" --socket {names['lifecycle']}"
    if words[:2] == ["thermo", "agent"] and words[2] != "check":
        return f" --agent {names['agent']}"
    if "--since" in words:
        return f" --state-dir {names['state']}"
    acts = ("reclaim", "lru-sort", "schemes", "advise", "record")
    is_file = "schemes check" in line or words[:2] == ["thermo", "advise"] and words[2].endswith(".arrow")
    if words[0] == "thermo" and words[1] in acts and "--duration" not in words and not is_file:
        return " --duration 3s"
    return ""


def has_fixed_output(line):
    """True if the output depends on nothing but a file that the page shows."""
    return re.match(r"thermo (schemes|agent) check", line) is not None


def may_be_negative(line):
    """True if the documentation says that exit code 1 is an answer to this command."""
    return re.match(r"thermo (advise|forecast|report wss|report --since|doctor|pagein)|nbdinfo ", line) is not None


def needs_history(line):
    """True for what reads the history that the agent keeps."""
    return "--since" in line or "/history?" in line


def ends_by_signal(line):
    """True for servers, which are ended with SIGINT as soon as they print that they are ready."""
    return re.search(r"^thermo-nbd --|thermo fs --mount|thermo run ", line) is not None
