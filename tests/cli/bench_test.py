"""skald bench: the object's members and their arithmetic, the table, and misuse."""
import json
import os
import subprocess
import time
import unittest

from support import MODELS, SKALD, Case, environment, skald

STAGES = ("load", "prefill", "talker", "predictor", "sampling", "codec")


class Bench(Case):
    @classmethod
    def setUpClass(cls):
        begin = time.monotonic()
        result = skald("bench", "--frames", 40, "--weights", "f32", "--threads", 1, "--warm-runs", 2, "--json")
        cls.seconds = time.monotonic() - begin
        assert result.status == 0, result.err
        cls.object = result.json()

    def test_what_the_run_was(self):
        o = self.object
        self.assertEqual((o["weights"], o["frames"], o["threads"], o["codec_chunk"]), ("f32", 40, 1, 16))
        self.assertEqual(o["model"], {"path": str(MODELS / "tiny-cv"), "type": "custom_voice", "size": "0b6"})
        for name in ("device", "build", "text", "voice", "language", "threads_reason"):
            self.assertTrue(o[name], name)
        self.assertIsInstance(o["seed"], int)
        self.assertAlmostEqual(o["audio_seconds"], 40 * 0.08)

    def test_the_factor_agrees_with_the_clock(self):
        o = self.object
        self.assertAlmostEqual(o["rtf"] * o["audio_seconds"], o["compute_ms"] / 1000, delta=1e-3)
        self.assertLessEqual(o["compute_ms"], o["wall_ms"] + 1e-3)
        self.assertLess(o["wall_ms"], self.seconds * 1000)

    def test_first_audio_cold_and_warm_and_loading_are_apart(self):
        o = self.object
        self.assertEqual(o["first_audio_ms"], o["warm_first_audio_ms"]["median"])
        self.assertEqual(o["warm_first_audio_ms"]["samples"], 2)
        self.assertGreater(o["cold_first_audio_ms"], 0)
        self.assertGreater(o["load_ms"], 0)
        self.assertEqual(o["load_ms"], o["stages"]["load"]["ms"])

    def test_stages(self):
        o = self.object
        bandwidth = o["read_bandwidth_gb_per_s"]
        self.assertGreater(bandwidth, 0.1)
        self.assertEqual(set(STAGES) | {"other"}, set(o["stages"]))
        for name in STAGES:
            stage = o["stages"][name]
            self.assertGreater(stage["ms_per_frame"], 0, name)
            self.assertIsInstance(stage["bytes_per_frame"], int)
            self.assertGreaterEqual(stage["gb_per_s"], 0)
        for name in ("talker", "predictor", "sampling"):
            stage = o["stages"][name]
            self.assertAlmostEqual(stage["gb_per_s"], stage["bytes_per_frame"] / stage["ms_per_frame"] / 1e6,
                                   delta=0.05 + 0.02 * stage["gb_per_s"])
            self.assertAlmostEqual(stage["share_of_read_bandwidth"], stage["gb_per_s"] / bandwidth, delta=0.01)
            self.assertLessEqual(stage["spread_ms"]["q1"], stage["ms_per_frame"])
            self.assertLessEqual(stage["ms_per_frame"], stage["spread_ms"]["q3"])
        language = sum(o["stages"][s]["bytes_per_frame"] for s in ("talker", "predictor", "sampling"))
        self.assertAlmostEqual(o["language_model"]["bytes_per_frame"], language, delta=0.01 * language)
        self.assertGreater(o["stages"]["predictor"]["weight_bytes_per_frame"], 1_000_000)

    def test_lengths_machine_and_memory(self):
        o = self.object
        self.assertEqual([row["frames"] for row in o["lengths"]], [40])
        row = o["lengths"][0]
        parts = sum(row[s + "_ms"] for s in ("talker", "attention", "predictor", "sampling", "codec"))
        self.assertAlmostEqual(row["ms_per_frame"], parts, delta=1e-3)
        self.assertGreater(o["peak_rss_bytes"], 1 << 20)
        self.assertIsInstance(o["machine"]["loaded"], bool)
        self.assertGreater(o["machine"]["cpu_seconds"], 0)


    def test_what_only_a_device_behind_the_host_has(self):
        self.assertEqual((self.object["frame_ms"], self.object["idle_share"], self.object["kernels"]), (None, None, []))


class Limited(Case):
    @unittest.skipIf(os.environ.get("SKALD_SANITIZE"), "sanitizers need the addresses")
    def test_an_address_space_below_the_yardstick(self):
        for limit, known in ((600_000, True), (350_000, None)):
            done = subprocess.run(["sh", "-c", f'ulimit -v {limit}; exec "$0" bench --frames 8 --threads 1 --warm-runs 1 --json', SKALD],
                                  env=environment(), capture_output=True, timeout=60)
            if known or done.returncode == 0:
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertGreater(json.loads(done.stdout)["rtf"], 0)
            else:
                self.assertEqual(done.returncode, 4, done.stderr)
                self.assertIn(b"[out_of_memory]", done.stderr)


class Reduced(Case):
    def test_int8_moves_fewer_bytes_and_a_table_is_for_people(self):
        result = self.assert_status(skald("bench", "--frames", 8, "--weights", "int8", "--warm-runs", 1), 0)
        text = result.out.decode()
        for word in ("weights int8", "per frame", "predictor", "codec", "rtf", "first audio", "GB/s", "threads:"):
            self.assertIn(word, text)
        int8 = self.assert_status(skald("bench", "--frames", 8, "--weights", "int8", "--warm-runs", 1, "--json"), 0).json()
        f32 = self.assert_status(skald("bench", "--frames", 8, "--weights", "f32", "--warm-runs", 1, "--json"), 0).json()
        weight_bytes = [o["stages"]["predictor"]["weight_bytes_per_frame"] for o in (int8, f32)]
        self.assertLess(weight_bytes[0], 0.6 * weight_bytes[1])


    def test_fast_holds_convolutions_in_half_the_bytes(self):
        exact, fast = (self.assert_status(skald("bench", "--frames", 8, "--compute", mode, "--warm-runs", 1, "--json"), 0).json()
                       for mode in ("exact", "fast"))
        self.assertEqual((exact["compute"], fast["compute"]), ("exact", "fast"))
        weight_bytes = [o["stages"]["codec"]["weight_bytes_per_frame"] for o in (fast, exact)]
        self.assertLess(weight_bytes[0], 0.75 * weight_bytes[1])


class Misuse(Case):
    def test_refused(self):
        for words, named in ((["--frames", "1"], "--frames"), (["--frames", "many"], "--frames"), (["--chunk", "0"], "--chunk"),
                             (["--warm-runs", "0"], "--warm-runs"), (["--framse", "10"], "'--frames'"),
                             (["Hello"], "bench takes no text")):
            result = self.assert_status(skald("bench", *words), 2)
            self.assertIn(named, result.err)
            self.assertEqual(result.out, b"")

    def test_a_model_that_is_not_there(self):
        result = self.assert_status(skald("bench", "--model", self.dir / "none", "--json"), 3)
        self.assertEqual(result.json()["error"]["code"], "model_not_found")

    def test_weights_of_no_kind(self):
        result = self.assert_status(skald("bench", "--weights", "int3", "--json"), 2)
        self.assertIn("int3", result.err)

    def test_compute_of_no_kind(self):
        result = self.assert_status(skald("bench", "--compute", "quick", "--json"), 2)
        self.assertIn("quick", result.err)

    def test_a_cache_too_small(self):
        result = self.assert_status(skald("bench", "--frames", 100, "--cache-capacity", 128), 2)
        self.assertIn("--cache-capacity is 128", result.err)

    def test_definitions_are_in_the_help(self):
        text = skald("bench", "--help").out.decode()
        for word in ("rtf", "first audio", "Cold", "Warm", "read bandwidth", "warm-up"):
            self.assertIn(word, text)


if __name__ == "__main__":
    unittest.main()
