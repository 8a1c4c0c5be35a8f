"""What the process tests of the server share: starting it, raw sockets, a WebSocket client, strict readers."""
import base64
import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest

ROOT = pathlib.Path(os.environ.get("SKALD_ROOT", pathlib.Path(__file__).parents[2]))
SKALD = os.environ.get("SKALD", str(ROOT / "build/release/bin/skald"))
MODELS = ROOT / "tests/fixtures/models"
FRAME = 1920
SLOW = bool(os.environ.get("SKALD_SANITIZE"))
PATIENCE = 180 if SLOW else 60

sys.path.insert(0, str(ROOT / "tests/cli"))


class Answer:
    def __init__(self, status, headers, body, chunks=None):
        self.status, self.headers, self.body, self.chunks = status, headers, body, chunks

    def json(self):
        return json.loads(self.body)

    def error(self):
        return self.json()["error"]


class Server:
    """`skald serve` on a free port of this machine."""

    def __init__(self, *options, model="tiny-cv", env=None, key=None):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SKALD_")}
        environment.update(env or {})
        self.key = key
        self.process = subprocess.Popen(
            [SKALD, "serve", "--model", str(MODELS / model), "--port", "0", "--threads", "1", *map(str, options)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        line = self.process.stdout.readline().decode().strip()
        if not line:
            raise AssertionError("no address: " + self.process.stderr.read().decode())
        self.address = line
        self.port = int(line.rsplit(":", 1)[1])

    def request(self, method, path, body=None, headers=None, timeout=PATIENCE):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            sent = dict(headers or {})
            if self.key and "Authorization" not in sent:
                sent["Authorization"] = f"Bearer {self.key}"
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
                sent.setdefault("Content-Type", "application/json")
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body, **more):
        return self.request("POST", path, body, **more)

    def speech(self, headers=None, timeout=PATIENCE, **fields):
        return self.post("/v1/audio/speech", speech_body(**fields), headers=headers, timeout=timeout)

    def connect(self, timeout=PATIENCE):
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def raw(self, data, timeout=PATIENCE):
        """Sends bytes, reads until the server closes."""
        with self.connect(timeout) as s:
            s.sendall(data)
            return read_all(s)

    def metric(self, name, absent=None):
        """A series by its whole name, or the first one with labels. Some begin to exist with the first event only."""
        page = self.get("/metrics")
        if page.status != 200:
            raise AssertionError(f"no metrics: {page.status} {page.body[:300]}")
        for line in page.body.decode().splitlines():
            if line.startswith(name + " ") or line.startswith(name + "{"):
                return float(line.rsplit(" ", 1)[1])
        if absent is None:
            raise AssertionError(f"there is no series {name}")
        return absent

    def wait_idle(self, seconds=10):
        end = time.monotonic() + seconds * (6 if SLOW else 1)
        while time.monotonic() < end:
            # A worker that is being replaced says nothing, which is not idle.
            if self.metric("skald_slots_active", 1) == 0 and self.metric("skald_requests_running", 1) == 0:
                return
            time.sleep(0.02)
        raise AssertionError("slots are still taken")

    def memory(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) * 1024
        return 0

    def stop(self, number=signal.SIGTERM, timeout=PATIENCE):
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            _, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, err = self.process.communicate()
            raise AssertionError("the server did not end: " + err.decode())
        self.log = err.decode()
        return self.process.returncode


def children(pid):
    """Processes that this one started."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rsplit(")", 1)[1].split()
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append(int(stat.parent.name))
    return sorted(found)


def speech_body(**fields):
    body = {"model": "tts-1", "input": "Hello there.", "voice": "alloy", "response_format": "pcm", "seed": 7,
            "language": "english", "max_frames": 20}
    body.update(fields)
    return {k: v for k, v in body.items() if v is not ...}


def read_all(s):
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := s.recv(65536):
            data += part
    return data


def read_chunks(s):
    """Status line, headers, chunks of a chunked answer, and whether it ended as it should."""
    file = s.makefile("rb")
    status = int(file.readline().split()[1])
    headers = {}
    while (line := file.readline().strip()):
        name, value = line.decode().split(": ", 1)
        headers[name.lower()] = value
    chunks = []
    with contextlib.suppress(ConnectionResetError, ValueError):
        while size := int(file.readline(), 16):
            chunks.append(file.read(size))
            file.readline()
        while file.readline().strip():
            pass
        return status, headers, chunks, True
    return status, headers, chunks, False


def post_bytes(path, body, extra=""):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n{extra}\r\n").encode() + data


def events(body):
    out = []
    for block in body.decode().split("\n\n"):
        if block:
            assert block.startswith("data: "), block[:40]
            out.append(json.loads(block[6:]))
    return out


class WebSocket:
    """A client of RFC 6455, as far as the tests need one."""

    def __init__(self, server, path="/v1/audio/speech/stream", headers=""):
        self.socket = server.connect()
        self.socket.sendall((f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
                             f"{headers}\r\n").encode())
        self.file = self.socket.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        while self.file.readline().strip():
            pass

    def send(self, message, opcode=1):
        data = json.dumps(message).encode() if not isinstance(message, bytes) else message
        head = bytes([0x80 | opcode])
        size = len(data)
        head += bytes([0x80 | size]) if size < 126 else bytes([0x80 | 126]) + struct.pack(">H", size)
        mask = os.urandom(4)
        self.socket.sendall(head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def receive(self):
        """A dict, bytes of audio, or None at the end."""
        while True:
            head = self.file.read(2)
            if len(head) < 2:
                return None
            opcode, size = head[0] & 15, head[1] & 127
            if size == 126:
                size = struct.unpack(">H", self.file.read(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", self.file.read(8))[0]
            data = self.file.read(size)
            if opcode == 1:
                return json.loads(data)
            if opcode == 2:
                return data
            if opcode == 8:
                return None
            if opcode == 9:
                self.send(data, opcode=10)

    def until(self, kind):
        """Messages up to one of this type; audio as one piece of bytes under "audio"."""
        messages, audio = [], b""
        while True:
            message = self.receive()
            if message is None:
                raise AssertionError(f"closed before {kind}: {messages}")
            if isinstance(message, bytes):
                assert len(message) % 2 == 0
                audio += message
                continue
            messages.append(message)
            if message["type"] == kind:
                message["audio"] = audio
                return message, messages

    def close(self):
        self.file.close()  # or the descriptor stays open
        self.socket.close()


class Case(unittest.TestCase):
    options, model, key = (), "tiny-cv", None

    @classmethod
    def setUpClass(cls):
        extra = {"SKALD_API_KEY": cls.key} if cls.key else None
        cls.server = Server(*cls.options, model=cls.model, env=extra, key=cls.key)

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        assert status == 0, (status, cls.server.log)

    def assert_error(self, answer, status, code, param=None):
        self.assertEqual(answer.status, status, answer.body[:300])
        self.assertEqual(answer.headers["Content-Type"], "application/json")
        error = answer.error()
        self.assertEqual(error["code"], code)
        self.assertEqual(error["param"], param)
        self.assertEqual(set(error), {"message", "type", "param", "code", "request_id"})
        self.assertEqual(answer.headers["X-Request-Id"], error["request_id"])


__all__ = [name for name in dir() if not name.startswith("_")]
