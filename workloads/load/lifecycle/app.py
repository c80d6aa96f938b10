"""An interpreter with heavy imports and data; answers each line by going through a part of them."""
import asyncio, decimal, email.message, http.server, json, sqlite3, sys, unittest, urllib.request, xml.dom.minidom  # noqa: F401

data = {n: f"item {n} of the list that somebody made " * 5 for n in range(220_000)}
print("ready", flush=True)
for line in sys.stdin:
    print("done", sum(len(json.dumps(data[n])) for n in range(0, 40_000)), flush=True)
