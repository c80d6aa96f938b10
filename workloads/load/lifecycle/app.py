"""A Python program with large imports and a dictionary of texts. Reads a part of the data for each line of
input."""
import asyncio, decimal, email.message, http.server, json, sqlite3, sys, unittest, urllib.request, xml.dom.minidom  # noqa: F401

data = {n: f"item {n} of the list that somebody made " * 5 for n in range(220_000)}
print("ready", flush=True)
for line in sys.stdin:
    print("done", sum(len(json.dumps(data[n])) for n in range(0, 40_000)), flush=True)
