"""The pages name what the program has, and nothing else."""
import re
import subprocess
import unittest

from support import ROOT, SKALD, skald

COMMANDS = (["say"], ["prompt"], ["verify"], ["codec", "decode"], ["codec", "encode"], ["voice", "add"],
            ["voice", "design"], ["voice", "list"], ["voice", "show"], ["voice", "remove"], ["voice", "rename"],
            ["voice", "export"], ["voice", "import"], ["bench"], ["compare"], ["doctor"], ["serve"])


def options_of(command):
    text = skald(*command, "--help").out.decode()
    return set(re.findall(r"^  (?:-\w,)?(--[a-z-]+)", text, re.M)) | set(re.findall(r"^  (-\w),--", text, re.M))


class Pages(unittest.TestCase):
    def test_man_page_has_the_options_of_help(self):
        page = (ROOT / "docs/man/skald.1").read_text().replace("\\-", "-")
        named = set(re.findall(r'^\.BR? "?(?:-\w )?(?:", " )?(--[a-z-]+)', page, re.M))
        named |= set(re.findall(r'^\.BR (?:-\w) ", " (--[a-z-]+)', page, re.M))
        named |= set(re.findall(r'^\.BR (-\w) ", "', page, re.M))
        offered = set().union(*map(options_of, COMMANDS)) | options_of([])
        self.assertEqual(offered - named, set(), "missing in docs/man/skald.1")
        self.assertEqual({n for n in named if n != "--"} - offered, set(), "in docs/man/skald.1 only")

    def test_man_page_and_help_have_the_same_values(self):
        page = (ROOT / "docs/man/skald.1").read_text().replace("\\-", "-")
        text = skald("say", "--help").out.decode()
        for name, values in re.findall(r"^  (--[a-z-]+) ([a-z]+(?:\|[a-z]+)+)", text, re.M):
            self.assertIn(f".B {name} \\fR{values}", page)

    def test_the_reference_names_existing_options_only(self):
        offered = set().union(*map(options_of, COMMANDS)) | options_of([])
        for page in ("docs/cli.md", "docs/errors.md", "docs/voices.md"):
            text = (ROOT / page).read_text()
            self.assertEqual(set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - offered - {"--name"}, set(), page)

    def test_serve_has_the_machine_options_of_say(self):  # B087
        def machine(command):
            text = skald(command, "--help").out.decode()
            return set(re.findall(r"(--[a-z-]+)", text[text.index("Model and machine"):].split("\n\n")[0]))
        self.assertEqual(machine("serve"), machine("say"))
        self.assertIn("--cache-capacity", machine("serve"))

    def test_every_command_has_help(self):
        for command in COMMANDS:
            result = skald(*command, "--help")
            self.assertEqual((result.status, result.err), (0, ""))
            self.assertIn(f"Usage: skald {' '.join(command)}", result.out.decode())

    def complete(self, *words):
        script = (f'source {ROOT}/src/cli/completions/skald.bash; compopt() {{ :; }}; '
                  'COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _skald; printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "-c", script, "bash", SKALD, *words], capture_output=True, text=True, timeout=30)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_completion(self):
        self.assertEqual(self.complete("s"), ["say", "serve"])
        self.assertEqual(self.complete("codec", "d"), ["decode"])
        self.assertEqual(self.complete("voice", "re"), ["remove", "rename"])
        self.assertEqual(self.complete("voice", "add", "--identity", "r"), ["real"])
        self.assertEqual(self.complete("say", "--vo"), ["--voice", "--voices"])
        self.assertEqual(self.complete("say", "--text-layout", ""), ["whole", "stream", "ahead"])
        self.assertEqual(self.complete("codec", "decode", "--de"), ["--device", "--decode"])
        self.assertEqual(self.complete("say", "--voice", "x", "-o", ""), [])

    def test_help_shows_how_to_play(self):
        text = skald("say", "--help").out.decode()
        self.assertIn("aplay -f S16_LE -r 24000 -c 1", text)


if __name__ == "__main__":
    unittest.main()
