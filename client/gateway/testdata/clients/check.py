"""Runs the tests of all clients against a gateway before the embedded model and a scripted generator.

    check.py BIN SCRIPTED

BIN is the folder of the programs, SCRIPTED the program of client/gateway/internal/scripted.
"""

import contextlib
import glob
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
EMBEDDER = os.path.join(HERE, "../../../../generator/internal/model/testdata/qwen3-embedding")
TEMPLATE = os.path.join(HERE, "template.jinja")
KEY = "key-of-the-tests"


@contextlib.contextmanager
def program(*command, **options):
    """Runs a program until the end of the block."""
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


def gateway(stack, bin, *arguments):
    """Starts a gateway and returns its URL."""
    command = os.path.join(bin, "reel-gateway"), "--listen", "127.0.0.1:0", *arguments
    process = stack.enter_context(program(*command, stdout=subprocess.PIPE, text=True))
    return "http://" + process.stdout.readline().split()[-1]


def await_models(url, count):
    """Returns when the gateway lists so many models."""
    for _ in range(300):
        with contextlib.suppress(urllib.error.URLError):
            request = urllib.request.Request(url + "/v1/models", headers={"Authorization": "Bearer " + KEY})
            if urllib.request.urlopen(request).read().count(b'"id"') == count:
                return
        time.sleep(0.1)
    sys.exit(f"the gateway at {url} did not list {count} models within 30 s")


def serve(stack, bin, scripted):
    """Starts the programs, and returns what the tests find in the environment."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="reel"))
    sockets = {name: os.path.join(folder, name + ".sock") for name in ("scripted", "narrow", "reel-tiny")}
    keys, cancels = os.path.join(folder, "keys"), os.path.join(folder, "cancels")
    with open(os.open(keys, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
        file.write(KEY + "\n")
    out = stack.enter_context(open(cancels, "w", encoding="utf-8"))
    stack.enter_context(program(scripted, sockets["scripted"], stdout=out))
    stack.enter_context(program(scripted, sockets["narrow"], "narrow", stdout=out))
    stack.enter_context(program(os.path.join(bin, "reel-generator"), "--device", "host", "--log-level", "warn",
                                "--chat-template", TEMPLATE, "--socket", sockets["reel-tiny"]))
    url = gateway(stack, bin, "--api-key-file", keys, "--queue", "1", "--ping", "50ms",
                  *(f"--generator={name}={socket}" for name, socket in sockets.items()))
    readme = gateway(stack, bin, "--generator", sockets["reel-tiny"], "--alias", "smollm2=reel-tiny")
    vectors = os.path.join(folder, "embedder.sock")
    stack.enter_context(program(os.path.join(bin, "reel-generator"), "--device", "host", "--log-level", "warn",
                                "--model", EMBEDDER, "--socket", vectors))
    embedder = gateway(stack, bin, "--generator", vectors)
    await_models(url, 3)
    await_models(readme, 2)  # with the alias
    await_models(embedder, 1)
    return {"REEL_GATEWAY": url, "REEL_KEY": KEY, "REEL_CANCELS": cancels, "REEL_README": readme,
            "REEL_EMBEDDER": embedder}


def main(bin, scripted):
    for name in [name for name in os.environ if name.startswith("REEL_")]:
        del os.environ[name]
    with contextlib.ExitStack() as stack:
        os.environ.update(serve(stack, bin, scripted))
        # What Python compiles stays out of the tree, and is there for the next run.
        os.environ.update(PYTHONPYCACHEPREFIX=os.path.join(sys.prefix, "pycache"),
                          NODE_PATH=os.path.join(sys.prefix, "node_modules"))
        python = [sys.executable, "-W", "ignore", "-m", "unittest", "discover", "-v"]
        node = ["node", "--test", "--test-reporter=spec", *glob.glob(HERE + "/*.test.cjs")]
        return max(subprocess.run(command, cwd=HERE).returncode for command in (python, node))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
