#!/usr/bin/env python3
"""Checks that the services of packaging/ do not share what must be their own.

systemd removes the runtime directory of a service when the service stops, with all files in it. So no file of another
unit may be in it, nor a folder that tmpfiles.d makes.

Usage: tests/units/check.py     (scripts/units.sh runs it)
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"
faults = []


def expect(holds, text):
    if not holds:
        faults.append(text)


def read_units(folder):
    """The settings of the units of a folder, each with all of its values. debhelper's names begin with the package."""
    units = {}
    for path in sorted([*folder.glob("*.service"), *folder.glob("*.socket")]):
        settings = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            if setting := re.fullmatch(r"([A-Za-z]+)=(.*)", line):
                settings.setdefault(setting[1], []).append(setting[2])
        units[path.name.split(".", path.name.count(".") - 1)[-1]] = settings
    return units


def words(settings, key):
    return [word for value in settings.get(key, []) for word in value.split()]


def socket_paths(settings):
    """The sockets that a unit opens, or names on its command line."""
    paths = [path for path in words(settings, "ListenStream") if path.startswith("/")]
    command = " ".join(settings.get("ExecStart", []))
    return paths + re.findall(r"--socket (\S+)", command)


def made_by_tmpfiles(folder):
    lines = [line.split() for path in folder.glob("*.tmpfiles") for line in path.read_text(encoding="utf-8").splitlines()]
    return [line[1] for line in lines if line and not line[0].startswith("#")]


def is_in(path, folder):
    return path == folder or path.startswith(folder + "/")


def check_runtime_directories(units, made, where):
    """Nothing of another unit is removed when a service stops."""
    removed = {(name, f"/run/{folder}") for name, settings in units.items() for folder in words(settings, "RuntimeDirectory")}
    expect(len(removed) > 1, f"{where}: no runtime directories were found")
    for owner, folder in removed:
        for other, path in removed:
            expect(owner == other or not is_in(path, folder), f"{where}: {owner} removes {path} of {other}")
        for other, settings in units.items():
            for path in socket_paths(settings):
                expect(owner == other or not is_in(path, folder), f"{where}: {owner} removes {path} of {other}")
        for path in made:
            expect(not is_in(path, folder), f"{where}: {owner} removes {path} of tmpfiles.d")


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([PACKAGING / "debian-units.sh", folder], check=True)
        sets = {"packaging/systemd": read_units(PACKAGING / "systemd"), "packages": read_units(Path(folder))}
    made = made_by_tmpfiles(PACKAGING / "debian")
    for where, units in sets.items():
        check_runtime_directories(units, made, where)
    for fault in faults:
        print(f"units: {fault}", file=sys.stderr)
    print(f"units: {sum(map(len, sets.values()))} units share nothing that must be their own, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
