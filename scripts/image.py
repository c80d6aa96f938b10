#!/usr/bin/env python3
"""Writes a container image of one layer in the OCI layout, as a tar file that podman, skopeo and containerd read.

The layer has those files of the given archives that a command needs to run. The time of everything is
SOURCE_DATE_EPOCH, and nothing depends on the machine: the same archives give the same bytes.

Usage: scripts/image.py --architecture amd64 --version VERSION OUTPUT ARCHIVE.tar...
"""

import argparse
import datetime
import gzip
import hashlib
import io
import json
import os
import re
import tarfile

MEDIA = "application/vnd.oci.image"
# Libraries with their loader, the command, what scanners of images identify Debian by, and licences.
KEPT = re.compile(r"lib|(usr/)?lib64(/.*)?|(usr/)?lib/(x86_64|aarch64)-linux-gnu/[^/]*\.so[^/]*|usr/bin/thermo(-upload)?"
                  r"|(usr/lib|etc)/os-release|etc/debian_version|etc/ld\.so\.conf\.d/.*|usr/share/doc/[^/]*/copyright")
# Folders that volumes and the runtime mount to.
FOLDERS = ["dev", "etc/thermo", "proc", "run/thermo", "sys", "tmp", "var/lib/thermo"]


def encode(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def describe(media_type, data, **more):
    return {"mediaType": f"{MEDIA}.{media_type}", "digest": sha256(data), "size": len(data), **more}


def make_layer(archives, epoch):
    """The layer as a tar file, of the kept files and the folders that lead to them."""
    entries = {}
    for path in archives:
        with tarfile.open(path) as archive:
            for entry in archive:
                name = entry.name.removeprefix("./").rstrip("/")
                if KEPT.fullmatch(name) and (entry.isreg() or entry.issym() or entry.isdir()):
                    data = archive.extractfile(entry).read() if entry.isreg() else b""
                    entries[name] = (entry.type, entry.mode, entry.linkname, data)
    for name in [*entries, *FOLDERS]:
        parts = name.split("/")
        for length in range(1, len(parts) + (name in FOLDERS)):
            entries.setdefault("/".join(parts[:length]), (tarfile.DIRTYPE, 0o755, "", b""))
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.GNU_FORMAT) as layer:
        for name, (kind, mode, link, data) in sorted(entries.items()):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode, entry.linkname, entry.mtime, entry.size = kind, mode, link, epoch, len(data)
            layer.addfile(entry, io.BytesIO(data))
    return output.getvalue()


def make_files(layer, architecture, version, epoch):
    """The files of the layout by name."""
    created = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    packed = gzip.compress(layer, compresslevel=9, mtime=0)
    config = encode({
        "architecture": architecture,
        "os": "linux",
        "created": created,
        "config": {
            "Entrypoint": ["/usr/bin/thermo"],
            "Cmd": ["agent"],
            "Env": ["PATH=/usr/bin"],
            "WorkingDir": "/",
            "Labels": {"org.opencontainers.image.title": "thermocline",
                       "org.opencontainers.image.version": version,
                       "org.opencontainers.image.licenses": "MIT OR Apache-2.0"},
        },
        "rootfs": {"type": "layers", "diff_ids": [sha256(layer)]},
        "history": [{"created": created, "created_by": "scripts/image.sh"}],
    })
    manifest = encode({
        "schemaVersion": 2,
        "mediaType": f"{MEDIA}.manifest.v1+json",
        "config": describe("config.v1+json", config),
        "layers": [describe("layer.v1.tar+gzip", packed)],
    })
    index = encode({
        "schemaVersion": 2,
        "mediaType": f"{MEDIA}.index.v1+json",
        "manifests": [describe("manifest.v1+json", manifest,
                               platform={"architecture": architecture, "os": "linux"},
                               annotations={"org.opencontainers.image.ref.name": f"thermocline:{version}"})],
    })
    blobs = {"blobs/sha256/" + sha256(data)[7:]: data for data in (packed, config, manifest)}
    return {"oci-layout": encode({"imageLayoutVersion": "1.0.0"}), "index.json": index, **blobs}


def write(files, output, epoch):
    with tarfile.open(output, "w", format=tarfile.USTAR_FORMAT) as archive:
        for folder in ("blobs", "blobs/sha256"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, epoch
            archive.addfile(entry)
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(data), 0o644, epoch
            archive.addfile(entry, io.BytesIO(data))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--architecture", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("output")
    parser.add_argument("archives", nargs="+")
    arguments = parser.parse_args()
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    layer = make_layer(arguments.archives, epoch)
    write(make_files(layer, arguments.architecture, arguments.version, epoch), arguments.output, epoch)


if __name__ == "__main__":
    main()
