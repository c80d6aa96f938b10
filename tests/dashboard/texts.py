"""Numbers as text, as the commands print them. Written apart from the dashboard's own code, to check it."""

import datetime

UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]


def three_digits(value):
    return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"


def size(amount):
    if amount < 0:
        return "−" + size(-amount)
    value, unit = float(amount), 0
    while value >= 999.5:
        value, unit = value / 1024, unit + 1
    return f"{round(amount)} B" if unit == 0 else f"{three_digits(value)} {UNITS[unit]}"


def percent(share):
    value = share * 100
    decimals = 0 if value == 0 or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{decimals}f} %"


def age(seconds):
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds > 0 and seconds % length == 0:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def gib_hours(value):
    if value < 0:
        return "−" + gib_hours(-value)
    return f"{'0' if value == 0 else three_digits(value)} GiB·h"


def duration(seconds):
    if seconds < 60:
        return f"{three_digits(seconds).rstrip('0').rstrip('.')} s"
    rest, parts = round(seconds), []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, length)
        if count > 0:
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2])


def time(ms):
    at = datetime.datetime.fromtimestamp(ms // 1000)
    return f"{at:%H:%M:%S}" if at.date() == datetime.date.today() else f"{at:%Y-%m-%d %H:%M:%S}"
