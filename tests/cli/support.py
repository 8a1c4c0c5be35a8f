"""What the process tests share: running the program, reading WAV and .npy files strictly."""
import ast
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("SKALD_ROOT", pathlib.Path(__file__).parents[2]))
SKALD = os.environ.get("SKALD", str(ROOT / "build/release/bin/skald"))
MODELS = ROOT / "tests/fixtures/models"
CASES = ROOT / "tests/fixtures/cases"
TEXT = "Hello there, world."
FRAME = 1920


def environment():
    env = {k: v for k, v in os.environ.items() if not k.startswith("SKALD_")}
    env["SKALD_MODEL"] = str(MODELS / "tiny-cv")
    return env


class Result:
    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err.decode()

    def json(self):
        return json.loads(self.out)


def skald(*words, stdin=b"", timeout=60, env=None):
    done = subprocess.run([SKALD, *map(str, words)], input=stdin, capture_output=True, timeout=timeout,
                          env={**environment(), **(env or {})})
    return Result(done.returncode, done.stdout, done.stderr)


def say(*words, **more):
    """`skald say` with a voice; a fixed seed unless one is given."""
    seed = [] if {"--seed", "--greedy"} & set(map(str, words)) else ["--seed", "7"]
    return skald("say", "--voice", "anna", "--language", "english", *seed, *words, **more)


def start(*words, **more):
    return subprocess.Popen([SKALD, *map(str, words)], env=environment(), **more)


class Wav:
    """Accepts nothing it would have to guess."""

    def __init__(self, data):
        assert data[:4] == b"RIFF" and data[8:16] == b"WAVEfmt ", data[:16]
        riff, fmt_size = struct.unpack_from("<I", data, 4)[0], struct.unpack_from("<I", data, 16)[0]
        self.format, channels, self.rate, byte_rate, align, self.bits = struct.unpack_from("<HHIIHH", data, 20)
        assert channels == 1 and align == self.bits // 8 and byte_rate == self.rate * align
        at = 20 + fmt_size
        fact = None
        if data[at:at + 4] == b"fact":
            fact = struct.unpack_from("<I", data, at + 8)[0]
            at += 12
        assert data[at:at + 4] == b"data", data[at:at + 4]
        size = struct.unpack_from("<I", data, at + 4)[0]
        self.data = data[at + 8:]
        self.placeholder = riff == 0xFFFFFFFF
        assert len(self.data) % align == 0
        self.samples = len(self.data) // align
        if self.placeholder:
            assert size == 0xFFFFFFFF and fact in (None, 0xFFFFFFFF)
        else:
            assert riff + 8 == len(data) and size == len(self.data), (riff, size, len(data))
            assert fact in (None, self.samples)
        assert (self.format == 3) == (fact is not None)


def wav(path):
    return Wav(pathlib.Path(path).read_bytes())


class Npy:
    def __init__(self, path):
        data = pathlib.Path(path).read_bytes()
        assert data[:8] == b"\x93NUMPY\x01\x00"
        length = struct.unpack_from("<H", data, 8)[0]
        head = ast.literal_eval(data[10:10 + length].decode())
        self.shape, self.type, self.data = head["shape"], head["descr"], data[10 + length:]
        assert not head["fortran_order"]
        count = 1
        for dimension in self.shape:
            count *= dimension
        assert count * int(self.type[2:]) == len(self.data)
        assert (10 + length) % 64 == 0

    def values(self):
        code = {"<f4": "f", "<i2": "h", "<i4": "i", "<i8": "q"}[self.type]
        return struct.unpack(f"<{len(self.data) // int(self.type[2:])}{code}", self.data)


def spoil(path, tensor):
    """A NaN in a float32 tensor of a safetensors file."""
    data = bytearray(path.read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    begin = json.loads(data[8:8 + size])[tensor]["data_offsets"][0]
    struct.pack_into("<f", data, 8 + size + begin + 4, float("nan"))
    path.write_bytes(data)


def write_npy(path, type_name, shape, values):
    head = f"{{'descr': '{type_name}', 'fortran_order': False, 'shape': {tuple(shape)}, }}\n".encode()
    code = {"<f4": "f", "<i2": "h", "<i4": "i", "<i8": "q", "|u1": "B"}[type_name]
    with open(path, "wb") as out:
        out.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head)
        out.write(struct.pack(f"<{len(values)}{code}", *values))


class Case(unittest.TestCase):
    """A test with a folder of its own that must hold no leftovers of the program."""

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="skald-cli-"))
        self.addCleanup(shutil.rmtree, self.dir)

    def assert_status(self, result, status):
        self.assertEqual(result.status, status, result.err)
        return result

    def assert_nothing_left(self, *allowed):
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), sorted(allowed))
