"""Pipes, FIFOs, slow and absent readers, signals."""
import fcntl
import os
import select
import signal
import subprocess
import threading
import time
import unittest

from support import MODELS, SKALD, TEXT, Case, Wav, environment, say, start, wav

LONG = " ".join(f"This is sentence number {i} of a text that is long enough." for i in range(60))
SAY = ["say", "--voice", "anna", "--language", "english", "--seed", "7"]
# Never ends by itself and would take minutes: for everything that must end it from outside.
ENDLESS = ["say", "--model", str(MODELS / "tiny-endless"), "--voice", "anna", "--seed", "7", "--stall-frames", "0",
           "--cache-capacity", "32000", "--max-frames", "30000", LONG]


def read_for(pipe, seconds):
    """What comes within some time."""
    out, end = b"", time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and select.select([pipe], [], [], left)[0]:
        part = os.read(pipe.fileno(), 1 << 16)
        if not part:
            break
        out += part
    return out


class Pipes(Case):
    def test_b060_lines_to_a_pipe_a_file_and_a_fifo(self):
        for count in (1, 2, 100):
            text = "".join(f"This is line {i} of a text whose lines are not too short.\n" for i in range(count)).encode()
            piped = Wav(self.assert_status(say("-o", "-", stdin=text), 0).out)
            self.assert_status(say("-o", self.dir / "a.wav", stdin=text), 0)
            self.assertEqual(piped.data, wav(self.dir / "a.wav").data)
            fifo = self.dir / "fifo"
            os.mkfifo(fifo)
            received = []
            reader = threading.Thread(target=lambda: received.append(fifo.read_bytes()))
            reader.start()
            self.assert_status(say("-o", fifo, stdin=text), 0)
            reader.join(10)
            self.assertEqual(Wav(received[0]).data, piped.data)
            fifo.unlink()
            self.assert_nothing_left("a.wav")

    def test_b060_a_closed_pipe_is_quiet(self):
        for words in ([*ENDLESS, "-o", "-"], [*ENDLESS, "--raw"], ["--version"]):
            reader, writer = os.pipe()
            os.close(reader)
            done = subprocess.run([SKALD, *words], env=environment(), stdout=writer, stderr=subprocess.PIPE, timeout=60)
            os.close(writer)
            self.assertEqual((done.returncode, done.stderr), (141, b""))

    def test_a_reader_that_has_enough(self):
        process = start(*ENDLESS, "-o", "-", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.read(10000)
        process.stdout.close()
        self.assertEqual(process.wait(30), 141)
        self.assertEqual(process.stderr.read(), b"")
        process.stderr.close()

    def test_b054_a_redirected_file_gets_exact_sizes(self):
        for flags in ("wb", "ab"):
            with open(self.dir / "a.wav", flags) as out:
                subprocess.run([SKALD, *SAY, "-o", "-", TEXT], env=environment(), stdout=out, stderr=subprocess.DEVNULL, check=True)
            # An appending descriptor cannot be patched.
            audio = wav(self.dir / "a.wav")
            self.assertEqual(audio.placeholder, flags == "ab")
            (self.dir / "a.wav").unlink()

    def test_standard_output_by_its_name(self):
        self.assertEqual(self.assert_status(say("-o", "/dev/stdout", TEXT), 0).out, say("-o", "-", TEXT).out)

    def test_text_that_arrives_at_once_is_the_whole_text(self):
        whole = Wav(say("-o", "-", LONG).out)
        piped = Wav(say("-o", "-", stdin=LONG.encode()).out)
        self.assertEqual(piped.data, whole.data)

    def test_audio_comes_before_the_text_is_complete(self):
        for words in ([], ["--text-layout", "ahead"], ["--text-layout", "ahead", "--no-split"]):
            process = start(*SAY, *words, "-o", "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            process.stdin.write(b"This is the first of some sentences, with quite a few words in it.\nAnd")
            process.stdin.flush()
            early = read_for(process.stdout, 3)
            self.assertGreater(len(early), 44 + 3840, words)
            process.stdin.write(b" this is the second.\n")
            process.stdin.close()
            rest = process.stdout.read()
            process.stdout.close()
            self.assertIn(process.wait(30), (0, 5))
            self.assertGreater(len(rest), 0)

    def test_ahead_does_not_depend_on_the_writer(self):
        text = b"This is a sentence that comes in pieces. Here is another one of them."
        outputs = []
        for cut in (len(text), 40, 7):
            process = start(*SAY, "--text-layout", "ahead", "--raw", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL)
            received = []
            reader = threading.Thread(target=lambda: received.append(process.stdout.read()))
            reader.start()
            for at in range(0, len(text), cut):
                process.stdin.write(text[at:at + cut])
                process.stdin.flush()
                time.sleep(0.02)
            process.stdin.close()
            reader.join(30)
            process.stdout.close()
            outputs.append((process.wait(30), received[0]))
        self.assertEqual(outputs[0], outputs[1])
        self.assertEqual(outputs[0], outputs[2])

    def test_b058_a_slow_reader_holds_the_work_back(self):
        process = start(*ENDLESS, "-o", "-", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertGreater(len(process.stdout.read(4096)), 0)  # the first bytes come while it works

        def cpu_seconds():
            with open(f"/proc/{process.pid}/stat") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        deadline, last = time.monotonic() + 60, -1.0
        while (now := cpu_seconds()) != last and time.monotonic() < deadline:
            last = now
            time.sleep(1)
        self.assertEqual(cpu_seconds(), last, "the work goes on although nobody reads")
        self.assertIsNone(process.poll())
        # What was computed meanwhile comes at once: about 30 s of audio.
        waiting = read_for(process.stdout, 1.0)
        self.assertGreater(len(waiting), 20 * 48000)

    def test_b089_a_full_standard_error_stalls_nothing(self):
        reader, writer = os.pipe()
        flags = fcntl.fcntl(writer, fcntl.F_GETFL)
        fcntl.fcntl(writer, fcntl.F_SETFL, flags | os.O_NONBLOCK)
        try:
            while True:
                os.write(writer, b"x" * 4096)
        except BlockingIOError:
            pass
        fcntl.fcntl(writer, fcntl.F_SETFL, flags)
        process = start(*SAY, "--instruct", "calm", "-o", self.dir / "a.wav", TEXT, stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL, stderr=writer)
        self.assertEqual(process.wait(30), 0)
        wav(self.dir / "a.wav")
        os.close(reader)
        os.close(writer)

    def test_progress_is_for_terminals_only(self):
        result = self.assert_status(say("-o", self.dir / "a.wav", LONG), 0)
        self.assertNotIn("\r", result.err)
        primary, secondary = os.openpty()
        process = start(*SAY, "-o", self.dir / "a.wav", LONG, stdin=subprocess.DEVNULL, stderr=secondary)
        os.close(secondary)
        seen = b""
        try:
            while part := os.read(primary, 4096):
                seen += part
        except OSError:  # the other end has gone
            pass
        os.close(primary)
        self.assertEqual(process.wait(30), 0)
        self.assertIn(b"of speech", seen)
        self.assertIn(b"\r", seen)

    def test_nobody_types_audio_into_a_terminal(self):
        primary, secondary = os.openpty()
        done = subprocess.run([SKALD, *SAY, "-o", "-", TEXT], env=environment(), stdout=secondary, stderr=subprocess.PIPE, timeout=30)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"terminal", done.stderr)
        os.close(primary)
        os.close(secondary)


class Signals(Case):
    def interrupted(self, number, *words, **more):
        process = start(*ENDLESS, *words, stderr=subprocess.PIPE, **more)
        time.sleep(1)
        self.assertIsNone(process.poll())
        begin = time.monotonic()
        process.send_signal(number)
        status = process.wait(10)
        self.assertLess(time.monotonic() - begin, 2)
        err = process.stderr.read()
        process.stderr.close()
        return status, err

    def test_statuses_and_no_file(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            got, err = self.interrupted(number, "-o", self.dir / "a.wav")
            self.assertEqual((got, err), (status, b"skald: interrupted\n"))
            self.assert_nothing_left()

    def test_b054_an_interrupted_redirection_is_a_true_wav(self):
        with open(self.dir / "a.wav", "wb") as out:
            self.assertEqual(self.interrupted(signal.SIGINT, "-o", "-", stdout=out)[0], 130)
        audio = wav(self.dir / "a.wav")
        self.assertFalse(audio.placeholder)
        self.assertGreater(audio.samples, 0)

    def test_while_the_reader_is_stuck(self):
        reader, writer = os.pipe()
        self.assertEqual(self.interrupted(signal.SIGINT, "-o", "-", stdout=writer)[0], 130)
        os.close(reader)
        os.close(writer)

    def test_while_waiting_for_text(self):
        for words in (["-o", "-"], ["-o", self.dir / "a.wav"], ["-o", "-", "--text-layout", "ahead"]):
            process = start(*SAY, *words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(10), 130)
            process.stdin.close()
            self.assert_nothing_left()


if __name__ == "__main__":
    unittest.main()
