"""Many streams at once against a running server: none lost, codes as alone, slots and memory as before.

usage: load.py ADDRESS [--streams 64] [--seconds 60] [--pid PID] [--seeds 16]

Takes every stream as it comes, notes when a listener would have run dry, and prints one JSON object.
"""
import argparse
import asyncio
import hashlib
import json
import pathlib
import random
import time

FRAME_BYTES, FRAME_SECONDS = 3840, 0.08
LEAST_FRAMES = 40


def body(seed):
    return {"model": "tts-1", "voice": "alloy", "input": f"This is stream number {seed} of many, speaking.",
            "response_format": "pcm", "seed": seed, "language": "english", "max_frames": LEAST_FRAMES + 7 * (seed % 9)}


async def speak(host, fields):
    """Digest of the audio, time to first audio, longest wait of a listener; or status and body of a refusal."""
    name, port = host.rsplit(":", 1)
    data = json.dumps(fields).encode()
    began = time.monotonic()
    reader, writer = await asyncio.open_connection(name, int(port))
    try:
        writer.write((f"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                      f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n").encode() + data)
        status = int((await reader.readline()).split()[1])
        while (await reader.readline()).strip():
            pass
        if status != 200:
            return status, await reader.read()
        digest, heard, first, late = hashlib.sha256(), 0, None, 0.0
        while size := int(await reader.readline(), 16):  # a stream that breaks off ends in a ValueError
            part = await reader.readexactly(size)
            await reader.readexactly(2)
            now = time.monotonic()
            if first is None:
                first = now
            late = max(late, now - first - heard / FRAME_BYTES * FRAME_SECONDS)
            digest.update(part)
            heard += len(part)
        return digest.hexdigest(), first - began, late
    finally:
        writer.close()


def spread(values):
    ordered = sorted(values)
    at = lambda share: round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 4)
    return {"p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": round(ordered[-1], 4)}


def histogram(values, bounds=(0.02, 0.05, 0.1, 0.2, 0.5, 1.0)):
    """How many values are at most each bound; the last entry counts all."""
    return {**{f"<={bound}": sum(v <= bound for v in values) for bound in bounds}, "all": len(values)}


def resident(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0


async def run(options, host, results, wrong, refused, memory):
    alone = {seed: (await speak(host, body(seed)))[0] for seed in range(options.seeds)}
    end = time.monotonic() + options.seconds

    async def client(number):
        choose = random.Random(number)
        while time.monotonic() < end:
            seed = choose.randrange(options.seeds)
            try:
                got = await speak(host, body(seed))
            except Exception as error:
                wrong.append(f"seed {seed}: {error!r}")
                continue
            if len(got) == 2:
                refused.append(got[0])
                await asyncio.sleep(0.2)
            elif got[0] != alone[seed]:
                wrong.append(f"seed {seed}: other audio than alone")
            else:
                results.append(got[1:])

    async def watch():
        while options.pid:
            memory.append(resident(options.pid))
            await asyncio.sleep(min(1.0, options.seconds / 20))

    watcher = asyncio.create_task(watch())
    await asyncio.gather(*(client(i) for i in range(options.streams)))
    watcher.cancel()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--pid", type=int)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--frames", type=int, default=40, help="least frames of a speech; others have up to 56 more")
    options = parser.parse_args()
    global LEAST_FRAMES
    LEAST_FRAMES = options.frames
    host = options.address.removeprefix("http://").rstrip("/")
    results, wrong, refused, memory = [], [], [], []
    asyncio.run(run(options, host, results, wrong, refused, memory))
    report = {"streams": options.streams, "seconds": options.seconds, "spoken": len(results), "refused": len(refused),
              "wrong": wrong[:5], "wrong_count": len(wrong),
              "first_audio_s": spread([r[0] for r in results]) if results else None,
              "lateness_s": spread([r[1] for r in results]) if results else None,
              "first_audio_histogram": histogram([r[0] for r in results]),
              "lateness_histogram": histogram([r[1] for r in results])}
    if memory:
        third = max(1, len(memory) // 3)
        report["memory_mb"] = {"after_first_third": max(memory[:third]) // 2**20, "at_end": max(memory[-third:]) // 2**20}
    print(json.dumps(report))
    return 1 if wrong or not results else 0


if __name__ == "__main__":
    raise SystemExit(main())
