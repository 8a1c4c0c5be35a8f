"""tools/mutate --check: every planted fault of the source still has its place."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[2]

# One fault has its place; of the others the text stands twice, nowhere, and in a file that is gone.
FAULTS = """tests = ["a_test"]
[[fault]]
name = "fits"
file = "source.cc"
find = "one"
replace = ""
[[fault]]
name = "twice"
file = "source.cc"
find = "two"
replace = ""
[[fault]]
name = "nowhere"
file = "source.cc"
find = "three"
replace = ""
[[fault]]
name = "moved"
file = "gone.cc"
find = "one"
replace = ""
[[fault]]
name = "size"
file = "source.cc"
grow = 1
"""


def check(root):
    done = subprocess.run([sys.executable, root / "tools/mutate", "--check"], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


class Mutate(unittest.TestCase):
    def test_every_fault_has_its_place(self):
        self.assertEqual(check(ROOT), (0, ""))

    def test_faults_without_a_place_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "tools").mkdir()
            shutil.copy(ROOT / "tools/mutate", root / "tools/mutate")
            (root / "tools/faults.toml").write_text(FAULTS)
            (root / "source.cc").write_text("one two two\n")
            self.assertEqual(check(root), (1, "twice: the text to find stands 2 times in source.cc\n"
                                              "nowhere: the text to find stands 0 times in source.cc\n"
                                              "moved: no file gone.cc\n"))


if __name__ == "__main__":
    unittest.main()
