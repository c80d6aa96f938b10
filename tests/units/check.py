#!/usr/bin/env python3
"""Checks that the services of packaging/ do not share what must be their own.

systemd removes the runtime directory of a service when the service stops, with all files in it. So no file of another
unit may be in it, nor a folder that tmpfiles.d makes.

The user of a service may do what the service may, and control it. So no two services have the same user, none is root,
and the group that may open a service's socket is not the group of another service.

Usage: tests/units/check.py     (scripts/units.sh runs it)
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"
# Groups of every Debian system.
SYSTEM_GROUPS = {"disk"}
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


def user_of(name, settings):
    """The user of a service; root without one. A dynamic user has the name of the unit."""
    users = words(settings, "User")
    is_dynamic = words(settings, "DynamicUser") == ["yes"]
    return users[-1] if users else name.removesuffix(".service") if is_dynamic else "root"


def declared(folder):
    """The users and groups that sysusers.d makes: the package of each. A user has a group of its name."""
    names = {}
    for path in folder.glob("*.sysusers"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                names[line.split()[1]] = path.stem
    return names


def check_users(units, names, where):
    services = {name: settings for name, settings in units.items() if name.endswith(".service")}
    owners = {}
    for name, settings in services.items():
        user = user_of(name, settings)
        expect(user not in ("root", "0"), f"{where}: {name} runs as root")
        expect(user not in owners, f"{where}: {name} has the user {user} of {owners.get(user)}")
        owners[user] = name
        for key in ("StateDirectory", "CacheDirectory", "LogsDirectory"):
            for folder in words(settings, key):
                others = [other for other in services if other != name and folder in words(services[other], key)]
                expect(not others, f"{where}: {name} takes {key}={folder} from {others}")
        if words(settings, "DynamicUser") != ["yes"]:
            for group in {user, *words(settings, "Group"), *words(settings, "SupplementaryGroups")}:
                expect(group in names, f"{where}: nothing makes {group} of {name}")
    for name, settings in units.items():
        for group in words(settings, "SocketGroup"):
            expect(group in names or group in SYSTEM_GROUPS, f"{where}: nothing makes {group} of {name}")
            for other, of_other in services.items():
                groups = words(of_other, "Group") + words(of_other, "SupplementaryGroups")
                is_own = other.removesuffix(".service") == name.removesuffix(".socket")
                expect(is_own or group not in groups, f"{where}: {other} may open the socket of {name}")


def check_packages(folder, names):
    """A purge removes every user and group; folders belong to users that exist."""
    for name, package in names.items():
        postrm = folder / f"{package}.postrm"
        text = postrm.read_text(encoding="utf-8") if postrm.exists() else ""
        removed = {word.rstrip(";") for line in text.splitlines() if re.search(r"\b(userdel|groupdel|for user in)\b", line)
                   for word in line.split()}
        expect(name in removed, f"packages: a purge of {package} leaves {name}")
    for path in folder.glob("*.tmpfiles"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                for owner in line.split()[3:5]:
                    expect(owner in names or owner == "root", f"packages: {path.name}: nothing makes {owner}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([PACKAGING / "debian-units.sh", folder], check=True)
        sets = {"packaging/systemd": read_units(PACKAGING / "systemd"), "packages": read_units(Path(folder))}
    made, names = made_by_tmpfiles(PACKAGING / "debian"), declared(PACKAGING / "debian")
    for where, units in sets.items():
        check_runtime_directories(units, made, where)
        check_users(units, names, where)
    check_packages(PACKAGING / "debian", names)
    for fault in faults:
        print(f"units: {fault}", file=sys.stderr)
    print(f"units: {sum(map(len, sets.values()))} units share nothing that must be their own, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
