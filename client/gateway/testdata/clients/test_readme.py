"""The curl commands of README's section Over HTTP, with the embedded model."""

import os
import re
import subprocess

from common import Case

README = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../../README.md")


def commands():
    """The curl commands; one may go on in further lines."""
    with open(README, encoding="utf-8") as file:
        section = re.search(r"^## Over HTTP\n(.*?)^## ", file.read(), re.S | re.M)[1]
    blocks = re.findall(r"^```sh\n(.*?)^```", section, re.S | re.M)
    return re.findall(r"^curl (?:.*\\\n)*.*", "".join(blocks), re.M)


class Readme(Case):
    def test_curl(self):
        self.assertTrue(commands())
        for command in commands():
            with self.subTest(command):
                shell = command.replace("http://127.0.0.1:8080", os.environ["REEL_README"])
                shell = shell.replace("curl ", "curl --silent --show-error --fail-with-body ", 1)
                run = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, timeout=60)
                self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
                self.assertIn(run.stdout[:1], ("{", "d"), "neither JSON nor events")
