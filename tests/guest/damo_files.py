"""Puts together what damo takes in a guest: Python with its library, damo, our scripts, and the magic of `file`.

Usage: damo_files.py DAMO FOLDER

DAMO is the program in a virtual environment, whose Python is taken. FOLDER becomes part of the guest's root. Everything is
compiled here once, for the emulated machine would take seconds for it each time.
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
QUESTION = """
import damo, json, os, sys, sysconfig
extensions = next(path for path in sys.path if path.endswith("lib-dynload"))
print(json.dumps([os.path.realpath(sys._base_executable), sysconfig.get_path("stdlib"), extensions, damo.__path__[0]]))
"""


def libraries(program):
    """What it is linked with, as far as that is told by path."""
    told = subprocess.run(["ldd", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return {word for line in told.splitlines() for word in line.split() if word.startswith("/")}


def main():
    damo, root = sys.argv[1], pathlib.Path(sys.argv[2])
    python = pathlib.Path(damo).resolve().parent / "python3"
    executable, library, extensions, package = json.loads(subprocess.check_output([python, "-c", QUESTION]))
    # Python looks for its library beside the folder of its program, wherever it was built to be.
    to = root / "usr/lib" / os.path.basename(library)
    shutil.copytree(library, to, ignore=NOT_NEEDED, ignore_dangling_symlinks=True)
    shutil.copytree(extensions, to / "lib-dynload", ignore=NOT_NEEDED, dirs_exist_ok=True)
    shutil.copytree(package, to / "damo", ignore=NOT_NEEDED)
    # Times of files may be lost on the way.
    compileall.compile_dir(to, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    for folder in ("bin", "usr/bin", "damo"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    shutil.copy(executable, root / "usr/bin/python3")
    (root / "bin/python3").symlink_to("/usr/bin/python3")
    (root / "bin/damo").write_text("#!/bin/python3\nimport sys\nfrom damo.damo import main\nsys.exit(main())\n")
    (root / "bin/damo").chmod(0o755)
    # Busybox's does not know the options that damo shows long texts with, and nobody turns pages here.
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
