"""quickstart.sh refuses what `skald say` would refuse before it installs and builds anything."""
import os
import shutil
import subprocess
import unittest

from support import ROOT, Case


class Quickstart(Case):
    def setUp(self):
        super().setUp()
        shutil.copy(ROOT / "quickstart.sh", self.dir)
        for name in ("src", "models"):
            (self.dir / name).symlink_to(ROOT / name)
        (self.dir / "tools").mkdir()
        installs = self.dir / "tools/install_packages"
        installs.write_text(f"#!/bin/sh\ntouch '{self.dir}/reached'\nexit 1\n")
        installs.chmod(0o755)

    def run_it(self, *words):
        env = {k: v for k, v in os.environ.items() if k != "SKALD_MODEL"}
        done = subprocess.run([self.dir / "quickstart.sh", *words], env=env, capture_output=True, text=True, timeout=30)
        reached = self.dir / "reached"
        if not reached.exists():
            return done
        reached.unlink()
        return None  # it would build now

    def test_wrong_options(self):
        for words, named in ((["Hi", "--vioce", "am_michael"], "--vioce"), (["Hi", "--seed"], "--seed"), (["Hi", "-x"], "-x"),
                             (["Hi", "there"], "there"), (["--seed", "7"], "--seed"), (["Hi", "--sede=7"], "--sede"),
                             (["Hi", "--greedy", "there"], "there"), (["Hi", "-o"], "-o"), ([], "usage")):
            done = self.run_it(*words)
            self.assertIsNotNone(done, words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(named, done.stderr)
            self.assertEqual(done.stdout, "")

    def test_good_options(self):
        for words in (["Hi"], ["Hi", "--voice", "am_michael", "--seed", "7"], ["Hi", "--voice=--odd", "--greedy", "-q"],
                      ["Hi", "--instruct", "--slowly--"], ["Hi", "-o", "-", "--max-frames", "3", "--json"],
                      ["Hi", "--device", "auto", "--no-split", "--raw", "--temperature", "0.5"]):
            self.assertIsNone(self.run_it(*words), words)


if __name__ == "__main__":
    unittest.main()
