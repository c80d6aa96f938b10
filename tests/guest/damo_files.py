"""Collects the files that damo needs in a guest: Python with its library, damo, test scripts, and the magic
of `file`.

Usage: damo_files.py DAMO FOLDER

DAMO is the program in a virtual environment, whose Python is copied. FOLDER becomes part of the guest's root.
Python files are compiled here once, because compiling takes seconds at each start in the emulated machine.
"""

import compileall
import json
import os
import pathlib
import py_compile
import shutil
import subprocess
import sys

NOT_NEEDED = shutil.ignore_patterns(
    "__pycache__", "site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip",
    "lib2to3", "pydoc_data", "config-*", "_test*", "_tkinter*", "_sqlite3*", "_curses*", "readline*",
)
MAGIC = "/usr/share/misc/magic.mgc"
PATHS_SCRIPT = """
import damo, json, os, sys, sysconfig
extensions = next(path for path in sys.path if path.endswith("lib-dynload"))
print(json.dumps([os.path.realpath(sys._base_executable), sysconfig.get_path("stdlib"), extensions, damo.__path__[0]]))
"""


def libraries(program):
    """Paths of the shared libraries of a program."""
    output = subprocess.run(["ldd", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return {word for line in output.splitlines() for word in line.split() if word.startswith("/")}


def main():
    damo, root = sys.argv[1], pathlib.Path(sys.argv[2])
    python = pathlib.Path(damo).resolve().parent / "python3"
    executable, library, extensions, package = json.loads(subprocess.check_output([python, "-c", PATHS_SCRIPT]))
    # Python finds its library relative to its program.
    to = root / "usr/lib" / os.path.basename(library)
    shutil.copytree(library, to, ignore=NOT_NEEDED, ignore_dangling_symlinks=True)
    shutil.copytree(extensions, to / "lib-dynload", ignore=NOT_NEEDED, dirs_exist_ok=True)
    shutil.copytree(package, to / "damo", ignore=NOT_NEEDED)
    # Modification times may be lost when files are packed.
    compileall.compile_dir(to, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    for folder in ("bin", "usr/bin", "damo"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    shutil.copy(executable, root / "usr/bin/python3")
    (root / "bin/python3").symlink_to("/usr/bin/python3")
    (root / "bin/damo").write_text("#!/bin/python3\nimport sys\nfrom damo.damo import main\nsys.exit(main())\n")
    (root / "bin/damo").chmod(0o755)
    # The less of busybox lacks options that damo uses. No pager is needed here.
    (root / "bin/less").write_text('#!/bin/sh\nfor last; do :; done\nexec cat "$last"\n')
    (root / "bin/less").chmod(0o755)
    if os.path.exists(MAGIC):
        (root / MAGIC[1:]).parent.mkdir(parents=True)
        shutil.copy(MAGIC, root / MAGIC[1:])
    tests = pathlib.Path(__file__).parent.parent
    for script in (tests / "damo/check.py", tests / "damo/tree.py", tests.parent / "benches/damonfs.py"):
        shutil.copy(script, root / "damo")
    for path in {name for each in (executable, *to.rglob("*.so")) for name in libraries(each)}:
        target = root / path[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
        subprocess.run(["strip", "--strip-unneeded", target], check=False)


main()
