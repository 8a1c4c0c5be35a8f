"""What the tree promises about itself: its size, and the table of steps in docs/testing.md."""
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).parents[2]
MB = 1_000_000


def tracked(folder="."):
    names = subprocess.run(["git", "ls-files", "-z", folder], cwd=ROOT, check=True, capture_output=True).stdout
    return [ROOT / name for name in names.decode().split("\0") if name]


def megabytes(folder="."):
    return sum(path.lstat().st_size for path in tracked(folder)) / MB


class Tree(unittest.TestCase):
    def test_a_clone_stays_small(self):
        self.assertLess(megabytes(), 41)  # a clone holds it twice: once packed, and is to stay below 80 MB
        self.assertLess(megabytes("models/small-en"), 32)

    def test_no_weights_but_the_small_voice_are_committed(self):
        weights = {str(p.relative_to(ROOT)) for p in tracked() if p.suffix == ".safetensors" and not p.is_symlink()
                   and p.lstat().st_size > 100_000}
        self.assertEqual(weights, {"models/small-en/model.safetensors", "models/small-en/speech_tokenizer/model.safetensors"})

    def test_the_page_lists_the_steps_of_test_sh(self):
        steps = subprocess.run([ROOT / "test.sh", "--list"], check=True, capture_output=True, text=True).stdout.split()
        page = (ROOT / "docs/testing.md").read_text()
        listed = re.findall(r"^\| (?:`--full`: )?([a-z0-9]+) \|", page.split("\n## ")[0], re.M)
        self.assertEqual([s for s in listed if s != "step"], steps)


if __name__ == "__main__":
    unittest.main()
