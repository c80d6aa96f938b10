"""Folders and files in a local folder or an object store, through pyarrow.fs.

The driver lists days and clusters only. Executors list the files of a folder and read them. An error of the
store ends the job: what cannot be listed or read must not look like memory that is not there.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.fs as pafs

from ._errors import BadInput, Error

MARK = "thermocline-fleet: "
"""Prefix of the sentence in an error of an executor. The driver finds the sentence by it."""


@dataclass(frozen=True)
class Folder:
    """The folder of a day and a cluster. `path` is a path of the store's file system."""

    path: str
    date: str
    cluster: str


class StoreError(Error):
    """The store refused, or failed, in an executor."""

    def __init__(self, sentence: str) -> None:
        super().__init__(MARK + sentence)


def shown(uri: str) -> str:
    """The location without user names, passwords and keys, for messages."""
    parts = urlsplit(uri)
    if not parts.scheme:
        return uri
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@functools.lru_cache(maxsize=4)
def open_store(uri: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a location, and the location's path in it. One for each process and location.

    Raises `BadInput` if the location has no sense.
    """
    if "://" not in uri:
        return pafs.LocalFileSystem(), str(Path(uri).resolve())
    try:
        system, path = pafs.FileSystem.from_uri(uri)
    except (OSError, ValueError, NotImplementedError) as error:
        raise BadInput(
            f"cannot use {shown(uri)}: {reason(error)}; give a folder, or a URI of pyarrow.fs"
        ) from error
    return system, path.rstrip("/")


def find_folders(uri: str) -> list[Folder]:
    """The folders `date=…/cluster=…` of a location, in order.

    Raises `BadInput` if the location does not exist, and `Error` if the store refuses.
    """
    system, base = open_store(uri)
    folders = []
    try:
        if system.get_file_info(base).type != pafs.FileType.Directory:
            raise BadInput(f"there is no folder {shown(uri)}: give the folder that holds the folders date=…")
        for date, day_path in _children(system, base, "date"):
            folders += [Folder(path, date, name) for name, path in _children(system, day_path, "cluster")]
    except OSError as error:
        raise Error(
            f"cannot list {shown(uri)}: {reason(error)}; check the address and the credentials"
        ) from error
    return folders


def _children(system: pafs.FileSystem, path: str, key: str) -> list[tuple[str, str]]:
    found = system.get_file_info(pafs.FileSelector(path))
    folders = [info for info in found if info.type == pafs.FileType.Directory]
    named = [
        (info.base_name.removeprefix(f"{key}="), info.path) for info in folders if f"{key}=" in info.base_name
    ]
    return sorted(named)


def list_files(uri: str, folder: str) -> Iterator[tuple[str, int]]:
    """Path and size of each Parquet file below a folder. Names that begin with a dot or an underscore are
    ignored, as Spark does. Raises `StoreError`."""
    try:
        found = open_store(uri)[0].get_file_info(pafs.FileSelector(folder, recursive=True))
    except OSError as error:
        raise StoreError(
            f"cannot list {folder}: {reason(error)}; check the credentials, and run again"
        ) from error
    for info in found:
        if (
            info.type == pafs.FileType.File
            and info.base_name.endswith(".parquet")
            and info.base_name[0] not in "._"
        ):
            yield info.path, info.size or 0


def read_bytes(uri: str, path: str) -> bytes:
    """A whole file. Raises `StoreError`."""
    try:
        with open_store(uri)[0].open_input_file(path) as file:
            data: bytes = file.readall()
            return data
    except FileNotFoundError as error:
        raise StoreError(f"{path} disappeared while the report was made; run again") from error
    except OSError as error:
        raise StoreError(f"cannot read {path}: {reason(error)}; check permissions, and run again") from error


def reason(error: BaseException) -> str:
    """The text of an error of a store, in one line of readable length, without keys."""
    text = " ".join(str(error).split())
    text = re.sub(r"://[^/@\s]*@", "://", text)
    text = re.sub(r"(?i)(secret_key|access_key|session_token|AWSAccessKeyId)=[^&\s'\"]*", r"\1=…", text)
    text = re.sub(r"\. Detail: .*", "", text)
    return text[:300].rstrip(".")


def sentence_of(text: str) -> str | None:
    """The sentence in the text of a Spark error that an executor's `StoreError` caused."""
    found = re.search(re.escape(MARK) + r"([^\n]*)", text)
    return found[1].strip() if found else None
