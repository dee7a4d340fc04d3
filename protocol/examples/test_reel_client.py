"""Checks reel_client against the golden frames, a small fake generator, and the real one.

    python3 protocol/examples/test_reel_client.py
"""

import base64
import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True  # leaves nothing in the source tree

import reel_client  # noqa: E402

WELCOME = {"type": "welcome", "version": 1, "model": "fake", "limits": {}}


def goldens():
    """The entries of the golden file, each a dict."""
    path = os.path.join(HERE, "..", "testdata", "frames.txt")
    with open(path, encoding="utf-8") as file:
        blocks = file.read().split("\n\n")[1:]
    return [dict(line.split(None, 1) for line in block.strip().split("\n")) for block in blocks]


def as_json(message):
    """Returns a message as the golden file has it: bytes are base64 there."""
    return json.loads(json.dumps(message, default=lambda value: base64.b64encode(value).decode()))


class GoldenFrames(unittest.TestCase):
    def test_there_are_some(self):
        self.assertGreater(len(goldens()), 20)

    def test_both_directions(self):
        for golden in goldens():
            if "json" not in golden:
                continue
            with self.subTest(golden["frame"]):
                frame = bytes.fromhex(golden["hex"])
                message = reel_client.read_frame(io.BytesIO(frame))
                self.assertEqual(as_json(message), json.loads(golden["json"]))
                out = io.BytesIO()
                reel_client.write_frame(out, message)
                self.assertEqual(out.getvalue(), frame)

    def test_bad_structure_is_refused(self):
        refused = [g for g in goldens() if g.get("refused") == "bad_frame"]
        self.assertTrue(refused)
        for golden in refused:
            with self.subTest(golden["frame"]), self.assertRaises(ValueError):
                reel_client.read_frame(io.BytesIO(bytes.fromhex(golden["hex"])))


class Msgpack(unittest.TestCase):
    def test_round_trip(self):
        ints = [s * (1 << k) + d for s in (1, -1) for k in (0, 5, 7, 8, 15, 16, 31, 32, 63) for d in (-1, 0, 1)]
        ints = [n for n in ints if -(1 << 63) <= n < 1 << 64]
        values = {"ints": ints, "float": -0.5, "true": True, "false": False, "none": None}
        for n in (0, 31, 32, 255, 256, 65535, 65536):
            values["str%d" % n] = "é" * (n // 2) + "a" * (n % 2)
            values["list%d" % n] = [0] * n
        for n in (0, 1, 255, 256, 65535, 65536):
            values["bytes%d" % n] = bytes(n)
        values["map"] = {str(k): k for k in range(70000)}
        self.assertEqual(reel_client.unpack(reel_client.pack(values)), values)

    def test_cut_short(self):
        body = reel_client.pack({"a": [1, 300, "text", 0.5, {"b": None}]})
        for n in range(len(body)):
            with self.assertRaises(ValueError):
                reel_client.unpack(body[:n])

    def test_depth(self):
        def nested(n):
            return b"\x81\xa1x" + b"\x91" * (n - 2) + b"\x90"

        reel_client.unpack(nested(16))
        with self.assertRaises(ValueError):
            reel_client.unpack(nested(17))
        with self.assertRaises(ValueError):
            reel_client.unpack(nested(1000000))

    def test_what_cannot_be_sent(self):
        for value, error in ((1 << 64, OverflowError), ({1}, TypeError)):
            with self.assertRaises(error):
                reel_client.pack(value)
        with self.assertRaises(ValueError):
            reel_client.write_frame(io.BytesIO(), {"text": "a" * reel_client.MAX_FRAME})

    def test_bad_lengths(self):
        for header in (b"\x00\x00\x00\x00", b"\x00\x40\x00\x01", b"\xff\xff\xff\xff"):
            with self.assertRaises(ValueError):
                reel_client.read_frame(io.BytesIO(header))
        with self.assertRaises(EOFError):
            reel_client.read_frame(io.BytesIO(b"\x00\x00\x00\x05ab"))


class FakeGenerator:
    """Serves one connection on a thread: script(receive, send)."""

    def __init__(self, script):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "generator.sock")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(1)
        self.script, self.failure = script, None
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def serve(self):
        try:
            connection, _ = self.listener.accept()
            with connection, connection.makefile("rwb") as stream:
                self.script(
                    lambda: reel_client.read_frame(stream),
                    lambda **message: reel_client.write_frame(stream, message),
                )
        except BaseException as failure:  # raised again in the test's thread
            self.failure = failure

    def __enter__(self):
        self.thread.start()
        return self.path

    def __exit__(self, *_):
        self.thread.join(10)
        self.listener.close()
        self.folder.cleanup()
        if self.failure:
            raise self.failure


def token(request_id, index, text):
    return {"type": "token", "id": request_id, "index": index, "token": 100 + index, "text": text}


def done(request_id, reason):
    return {"type": "done", "id": request_id, "finish_reason": reason}


class Streaming(unittest.TestCase):
    def test_tokens_stream(self):
        """Loading first; then tokens, between messages that do not concern the request."""

        def script(receive, send):
            self.assertEqual(receive(), {"type": "hello", "version": 1})
            send(type="error", code="loading", message="loading", progress=0.5)
            self.assertEqual(receive()["type"], "hello")
            send(**WELCOME)
            self.assertEqual(receive(), {"type": "generate", "id": 1, "max_tokens": 3, "prompt": "To be"})
            send(**token(1, 0, " or"))
            send(**token(9, 0, "another's"))
            send(type="news", id=1, of="a later version")
            send(**token(1, 1, ""))
            send(**token(1, 2, " €"))
            send(**done(1, "length"))
            self.assertEqual(receive(), {"type": "generate", "id": 2, "tokens": [1, 2]})
            send(**done(2, "stop"))

        with FakeGenerator(script) as path, reel_client.Client(path) as reel:
            self.assertEqual(reel.welcome["model"], "fake")
            self.assertEqual([t["text"] for t in reel.generate("To be", max_tokens=3)], [" or", "", " €"])
            self.assertEqual(reel.done["finish_reason"], "length")
            self.assertEqual(list(reel.generate([1, 2])), [])
            self.assertEqual(reel.done["finish_reason"], "stop")

    def test_conversation(self):
        messages = [{"role": "system", "content": "Be terse."}, {"role": "user", "content": "Who?"}]

        def script(receive, send):
            receive(), send(**WELCOME, chat=True)
            self.assertEqual(receive(), {"type": "generate", "id": 1, "messages": messages})
            send(**token(1, 0, "I."))
            send(**done(1, "stop"))

        with FakeGenerator(script) as path, reel_client.Client(path) as reel:
            self.assertTrue(reel.welcome["chat"])
            self.assertEqual([t["text"] for t in reel.generate(messages)], ["I."])

    def test_each_token_comes_at_once(self):
        seen = threading.Event()

        def script(receive, send):
            receive(), send(**WELCOME), receive()
            send(**token(1, 0, "first"))
            self.assertTrue(seen.wait(10), "the first token was not shown before the second was sent")
            send(**done(1, "stop"))

        with FakeGenerator(script) as path, reel_client.Client(path) as reel:
            for _ in reel.generate("x"):
                seen.set()

    def test_leaving_early_cancels(self):
        def script(receive, send):
            receive(), send(**WELCOME), receive()
            send(**token(1, 0, "a"))
            send(**token(1, 1, "b"))
            self.assertEqual(receive(), {"type": "cancel", "id": 1})
            send(**done(1, "cancelled"))
            self.assertEqual(receive()["type"], "status")
            send(type="status", state="ready")

        with FakeGenerator(script) as path, reel_client.Client(path) as reel:
            tokens = reel.generate("x")
            next(tokens)
            tokens.close()
            self.assertEqual(reel.done["finish_reason"], "cancelled")
            self.assertEqual(reel.status()["state"], "ready")

    def test_close_ends_the_connection(self):
        def script(receive, send):
            receive(), send(**WELCOME)
            with self.assertRaises(EOFError):
                receive()

        with FakeGenerator(script) as path, reel_client.Client(path):
            pass

    def test_tokenize(self):
        def script(receive, send):
            receive(), send(**WELCOME)
            self.assertEqual(receive(), {"type": "tokenize", "text": "To be"})
            send(type="tokens", tokens=[1, 2])

        with FakeGenerator(script) as path, reel_client.Client(path) as reel:
            self.assertEqual(reel.tokenize("To be"), [1, 2])


class RealGenerator(unittest.TestCase):
    """The client against the generator that make has built, with the embedded model."""

    def setUp(self):
        program = os.path.join(HERE, "..", "..", "bin", "reel-generator")
        if not os.path.exists(program):
            self.skipTest("wants bin/reel-generator, which make builds")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "generator.sock")
        command = [program, "--socket", self.path, "--device", "host", "--log-level", "error"]
        self.process = subprocess.Popen(command)
        self.addCleanup(self.process.wait, 30)
        self.addCleanup(self.process.terminate)

    def connect(self):
        """A client, once the generator listens and has loaded its model."""
        deadline = time.monotonic() + 60
        while True:
            try:
                return reel_client.Client(self.path, wait=60)
            except (FileNotFoundError, ConnectionRefusedError):
                self.assertIsNone(self.process.poll(), "the generator ended")
                self.assertLess(time.monotonic(), deadline, "the generator does not listen")
                time.sleep(0.02)  # there is no event for a new socket

    def test_completion(self):
        with self.connect() as reel:
            options = {"max_tokens": 20, "temperature": 0, "logprobs": 1}
            tokens = list(reel.generate("ROMEO:", **options))
            self.assertEqual([t["index"] for t in tokens], list(range(len(tokens))))
            self.assertEqual(reel.done["usage"]["completion_tokens"], len(tokens))
            self.assertTrue("".join(t["text"] for t in tokens))
            for t in tokens:  # greedy: the token drawn is the most probable
                self.assertEqual(t["top"][0]["token"], t["token"])
            again = list(reel.generate(reel.tokenize("ROMEO:"), **options))
            self.assertEqual([t["token"] for t in again], [t["token"] for t in tokens])
            echoed = list(reel.generate("ROMEO:", echo=True, **options))
            self.assertEqual("".join(t["text"] for t in echoed if t["index"] < 0), "ROMEO:")
            self.assertEqual([t["token"] for t in echoed if t["index"] >= 0], [t["token"] for t in tokens])

    def test_base_model(self):
        with self.connect() as reel:
            self.assertNotIn("chat", reel.welcome)
            with self.assertRaises(reel_client.ReelError) as caught:
                list(reel.generate([{"role": "user", "content": "Hi"}]))
            self.assertEqual(caught.exception.code, "no_chat_template")

    def test_refused(self):
        with self.connect() as reel:
            with self.assertRaises(reel_client.ReelError) as caught:
                list(reel.generate("x", top_p=2))
            self.assertEqual(caught.exception.code, "bad_request")
            self.assertEqual(reel.status()["state"], "ready")


class Failures(unittest.TestCase):
    def failure(self, **reply):
        """The error of a request that is answered by reply."""

        def script(receive, send):
            receive(), send(**WELCOME), receive()
            send(**reply)

        with FakeGenerator(script) as path, reel_client.Client(path) as reel:
            with self.assertRaises(reel_client.ReelError) as caught:
                list(reel.generate("x"))
        return caught.exception

    def test_of_the_request(self):
        error = self.failure(type="error", id=1, code="busy", message="512 wait", hint="try later")
        self.assertEqual((error.code, str(error)), ("busy", "512 wait (try later)"))

    def test_of_the_connection(self):
        self.assertEqual(self.failure(type="error", code="bad_frame", message="no").code, "bad_frame")

    def test_loading_for_too_long(self):
        def script(receive, send):
            receive(), send(type="error", code="loading", message="loading", progress=0.25)

        with FakeGenerator(script) as path, self.assertRaises(reel_client.ReelError) as caught:
            reel_client.Client(path, wait=-1)
        self.assertEqual(caught.exception.progress, 0.25)

    def test_a_generator_that_goes_away(self):
        def script(receive, send):
            receive(), send(**WELCOME), receive()
            send(**token(1, 0, "a"))

        with FakeGenerator(script) as path, reel_client.Client(path) as reel:
            with self.assertRaises(EOFError):
                list(reel.generate("x"))


class CommandLine(unittest.TestCase):
    def run_main(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = reel_client.main(list(arguments))
        return status, out.getvalue(), err.getvalue()

    def test_prints_the_text(self):
        def script(receive, send):
            receive(), send(**WELCOME)
            self.assertEqual(receive(), {"type": "generate", "id": 1, "temperature": 0.0, "prompt": "To be"})
            send(**token(1, 0, ", or"))
            send(**token(1, 1, " not"))
            send(**done(1, "stop"))

        with FakeGenerator(script) as path:
            result = self.run_main("--socket", path, "--temperature", "0", "To be")
        self.assertEqual(result, (0, ", or not\n", ""))

    def test_chats_where_the_model_does(self):
        for arguments, field in (([], "messages"), (["--raw"], "prompt")):

            def script(receive, send):
                receive(), send(**WELCOME, chat=True)
                want = {"messages": [{"role": "user", "content": "Hi"}], "prompt": "Hi"}[field]
                self.assertEqual(receive(), {"type": "generate", "id": 1, field: want})
                send(**done(1, "stop"))

            with FakeGenerator(script) as path:
                self.assertEqual(self.run_main("--socket", path, *arguments, "Hi"), (0, "\n", ""))

    def test_no_generator(self):
        status, out, err = self.run_main("--socket", "/nonexistent/generator.sock", "x")
        self.assertEqual((status, out), (69, ""))
        self.assertIn("reel-generator", err)

    def test_refused(self):
        def script(receive, send):
            receive(), send(type="error", code="denied", message="not yours")

        with FakeGenerator(script) as path:
            self.assertEqual(self.run_main("--socket", path, "x"), (1, "", "not yours\n"))

    def test_socket_found(self):
        self.assertEqual(reel_client.find_socket({"REEL_SOCKET": "/a"}), "/a")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "reel", "generator.sock")
            os.mkdir(os.path.dirname(path))
            open(path, "w").close()
            self.assertEqual(reel_client.find_socket({"XDG_RUNTIME_DIR": folder}), path)


if __name__ == "__main__":
    unittest.main()
