"""A kubelet that knows one pod: GET /pods over TLS, for who has the token. Each request adds a line to `requests`.

Usage: kubelet.py FOLDER with kubelet.crt, kubelet.key, token and pods.json
"""

import http.server
import os
import ssl
import sys

os.chdir(sys.argv[1])
with open("token", encoding="utf-8") as token_file:
    TOKEN = token_file.read().strip()


class Kubelet(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        is_known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        with open("requests", "a", encoding="utf-8") as log:
            log.write(f"{self.path} {'with' if is_known else 'without'} token\n")
        with open("pods.json", "rb") as pods:
            body = pods.read()
        self.send_response(200 if is_known and self.path == "/pods" else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("kubelet.crt", "kubelet.key")
server = http.server.HTTPServer(("127.0.0.1", 10250), Kubelet)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
