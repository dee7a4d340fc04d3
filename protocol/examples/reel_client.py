#!/usr/bin/env python3
"""A client for Reel in one file that needs only Python's standard library.

    python3 reel_client.py [--socket PATH] [--max-tokens N] [--temperature T] PROMPT

It streams the completion to stdout. As a module:

    with Client("/run/reel/generator.sock") as reel:
        for token in reel.generate("To be, ", max_tokens=50, temperature=0):
            print(token["text"], end="", flush=True)
        print(reel.done["finish_reason"])

PROTOCOL.md, one folder up, specifies the frames. Python 3.9 or later.
"""

import argparse
import contextlib
import os
import socket
import struct
import sys
import time

VERSION = 1
MAX_FRAME = 4 << 20  # bytes of a body
MAX_DEPTH = 16  # nested maps and lists

# --- msgpack, as far as the protocol uses it ---------------------------------


def pack(value):
    """Encodes None, bool, int, float, str, bytes, list or dict in the shortest form."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):  # before int, because bool is a subclass of int
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return _pack_int(value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        data = value.encode("utf-8")
        return _pack_head(len(data), 0xA0, 32, (0xD9, 0xDA, 0xDB)) + data
    if isinstance(value, bytes):
        return _pack_head(len(value), 0, 0, (0xC4, 0xC5, 0xC6)) + value
    if isinstance(value, (list, tuple)):
        head = _pack_head(len(value), 0x90, 16, (None, 0xDC, 0xDD))
        return head + b"".join(pack(v) for v in value)
    if isinstance(value, dict):
        head = _pack_head(len(value), 0x80, 16, (None, 0xDE, 0xDF))
        return head + b"".join(pack(k) + pack(v) for k, v in value.items())
    raise TypeError("the protocol has no %s" % type(value).__name__)


def _pack_int(n):
    if 0 <= n < 128 or -32 <= n < 0:
        return struct.pack("b", n)
    unsigned = ((0xCC, ">B"), (0xCD, ">H"), (0xCE, ">I"), (0xCF, ">Q"))
    signed = ((0xD0, ">b"), (0xD1, ">h"), (0xD2, ">i"), (0xD3, ">q"))
    for code, form in unsigned if n >= 0 else signed:
        try:
            return bytes([code]) + struct.pack(form, n)
        except struct.error:
            continue  # does not fit: try the next longer form
    raise OverflowError("%d does not fit 64 bits" % n)


def _pack_head(n, fixed, below, codes):
    """The head of a str, list or dict of n: fixed if n is below, else by codes."""
    if n < below:
        return bytes([fixed | n])
    for code, form, limit in zip(codes, (">B", ">H", ">I"), (1 << 8, 1 << 16, 1 << 32)):
        if code is not None and n < limit:
            return bytes([code]) + struct.pack(form, n)
    raise OverflowError("%d elements" % n)


def unpack(body):
    """Decodes a body. Raises ValueError if it is not valid by PROTOCOL.md."""
    value, end = _unpack(body, 0, 0)
    if end != len(body):
        raise ValueError("%d bytes follow the map" % (len(body) - end))
    if not isinstance(value, dict):
        raise ValueError("a %s, not a map" % type(value).__name__)
    return value


# First byte -> the item's kind and the form of the number after it.
_FORMATS = {
    0xC4: ("bin", ">B"), 0xC5: ("bin", ">H"), 0xC6: ("bin", ">I"),
    0xCA: ("number", ">f"), 0xCB: ("number", ">d"),
    0xCC: ("number", ">B"), 0xCD: ("number", ">H"), 0xCE: ("number", ">I"), 0xCF: ("number", ">Q"),
    0xD0: ("number", ">b"), 0xD1: ("number", ">h"), 0xD2: ("number", ">i"), 0xD3: ("number", ">q"),
    0xD9: ("str", ">B"), 0xDA: ("str", ">H"), 0xDB: ("str", ">I"),
    0xDC: ("list", ">H"), 0xDD: ("list", ">I"),
    0xDE: ("map", ">H"), 0xDF: ("map", ">I"),
}


def _head(body, at):
    """The item's kind at a position, its number or length, and the position after that."""
    code = _take(body, at, 1)[0]
    for low, high, kind in ((0, 0x7F, "number"), (0x80, 0x8F, "map"), (0x90, 0x9F, "list"), (0xA0, 0xBF, "str")):
        if low <= code <= high:
            return kind, code - low, at + 1
    if code >= 0xE0:
        return "number", code - 256, at + 1
    if code in (0xC0, 0xC2, 0xC3):
        return "constant", {0xC0: None, 0xC2: False, 0xC3: True}[code], at + 1
    if code not in _FORMATS:
        raise ValueError("the byte %02x at %d is not used here" % (code, at))
    kind, form = _FORMATS[code]
    size = struct.calcsize(form)
    return kind, struct.unpack(form, _take(body, at + 1, size))[0], at + 1 + size


def _take(body, at, n):
    if at + n > len(body):
        raise ValueError("%d bytes wanted at %d, %d left" % (n, at, len(body) - at))
    return body[at : at + n]


def _unpack(body, at, depth):
    """Decodes the item at a position; returns it and the position of the next one."""
    kind, n, at = _head(body, at)
    if kind in ("number", "constant"):
        return n, at
    if kind == "str":
        return bytes(_take(body, at, n)).decode("utf-8"), at + n  # UnicodeDecodeError is a ValueError
    if kind == "bin":
        return bytes(_take(body, at, n)), at + n
    if depth == MAX_DEPTH:
        raise ValueError("more than %d levels" % MAX_DEPTH)
    if n > len(body) - at:
        raise ValueError("a %s of %d with %d bytes left" % (kind, n, len(body) - at))
    return (_unpack_list if kind == "list" else _unpack_map)(body, at, n, depth + 1)


def _unpack_list(body, at, n, depth):
    items = []
    for _ in range(n):
        item, at = _unpack(body, at, depth)
        items.append(item)
    return items, at


def _unpack_map(body, at, n, depth):
    pairs = {}
    for _ in range(n):
        key, at = _unpack(body, at, depth)
        if not isinstance(key, str):
            raise ValueError("a key that is no string before byte %d" % at)
        pairs[key], at = _unpack(body, at, depth)
    return pairs, at


# --- frames ------------------------------------------------------------------


def write_frame(stream, message):
    """Sends one message over a binary stream."""
    body = pack(message)
    if len(body) > MAX_FRAME:
        raise ValueError("%d bytes in a frame; %d are allowed" % (len(body), MAX_FRAME))
    stream.write(struct.pack(">I", len(body)) + body)
    stream.flush()


def read_frame(stream):
    """Receives one message. Raises EOFError at the end of the stream, ValueError for a bad frame."""
    (length,) = struct.unpack(">I", _read(stream, 4))
    if not 0 < length <= MAX_FRAME:
        raise ValueError("a frame of %d bytes" % length)
    return unpack(_read(stream, length))


def _read(stream, n):
    data = stream.read(n)
    if len(data) < n:
        raise EOFError("the generator closed the connection")
    return data


# --- the client --------------------------------------------------------------


class ReelError(Exception):
    """The generator's error: code, message, hint, and progress while loading."""

    def __init__(self, message):
        self.code = message.get("code", "internal")
        self.hint = message.get("hint", "")
        self.progress = message.get("progress")
        text = message.get("message", self.code)
        super().__init__("%s (%s)" % (text, self.hint) if self.hint else text)


class Client:
    """One connection, one request at a time."""

    def __init__(self, path=None, wait=5.0):
        """Connects, and waits up to wait seconds for the model to be loaded."""
        self.done = None  # the done message of the last completion
        self._next_id = 0
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(path or find_socket())
            self._stream = connection.makefile("rwb")  # stays open when connection is closed
        try:
            self.welcome = self._hello(time.monotonic() + wait)
        except BaseException:
            self.close()
            raise

    def _hello(self, deadline):
        while True:
            try:
                return self._ask({"type": "hello", "version": VERSION}, "welcome")
            except ReelError as error:
                if error.code != "loading" or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _ask(self, message, answer):
        """Sends a message and returns the reply of type answer, skipping others."""
        write_frame(self._stream, message)
        while True:
            reply = read_frame(self._stream)
            if reply.get("type") == answer:
                return reply
            if reply.get("type") == "error":
                raise ReelError(reply)

    def status(self):
        """The generator's status, a dict."""
        return self._ask({"type": "status"}, "status")

    def tokenize(self, text):
        """The token ids of a text as a prompt."""
        return self._ask({"type": "tokenize", "text": text}, "tokens")["tokens"]

    def generate(self, prompt, **fields):
        """Yields a completion's token messages; then self.done is set.

        prompt is a text, a list of token ids, or a list of messages, each a
        dict of role and content, if self.welcome says that the model chats.
        fields are those of generate in PROTOCOL.md. Leaving the loop early
        cancels the request. Raises ReelError, EOFError, ValueError.
        """
        self.done, self._next_id = None, self._next_id + 1
        request = {"type": "generate", "id": self._next_id, **fields}
        request[_kind(prompt)] = prompt
        write_frame(self._stream, request)
        finished = False
        try:
            for message in self._replies(request["id"]):
                finished = message["type"] in ("done", "error")
                if message["type"] == "token":
                    yield message
                elif message["type"] == "error":
                    raise ReelError(message)
                elif finished:
                    self.done = message
                    return
        except GeneratorExit:
            if not finished:
                self._cancel(request["id"])
            raise

    def _replies(self, request_id):
        """Yields the messages that concern a request, without end."""
        while True:
            message = read_frame(self._stream)
            if message.get("id") == request_id:
                yield message
            elif message.get("type") == "error" and "id" not in message:
                raise ReelError(message)  # it concerns the connection

    def _cancel(self, request_id):
        write_frame(self._stream, {"type": "cancel", "id": request_id})
        for message in self._replies(request_id):
            if message["type"] in ("done", "error"):
                self.done = message
                return

    def close(self):
        """Ends the connection, and with it the requests that run on it."""
        with contextlib.suppress(OSError):  # unsent bytes are of no use now
            self._stream.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _kind(prompt):
    """The field of generate for a prompt."""
    if isinstance(prompt, str):
        return "prompt"
    return "messages" if prompt and isinstance(prompt[0], dict) else "tokens"


def find_socket(environ=os.environ):
    """The path of the generator's socket: $REEL_SOCKET, or the first that exists."""
    if environ.get("REEL_SOCKET"):
        return environ["REEL_SOCKET"]
    folders = ["/tmp/reel-%d" % os.getuid(), "/run/reel"]
    if environ.get("XDG_RUNTIME_DIR"):
        folders.insert(0, os.path.join(environ["XDG_RUNTIME_DIR"], "reel"))
    paths = [os.path.join(folder, "generator.sock") for folder in folders]
    return next((p for p in paths if os.path.exists(p)), paths[-1])


def main(arguments=None):
    """Streams one completion, and returns the exit status."""
    parser = argparse.ArgumentParser(description="Stream a completion from a Reel generator.")
    parser.add_argument("--socket", help="path of the generator's socket")
    parser.add_argument("--max-tokens", type=int)
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--raw", action="store_true", help="send the prompt without the model's chat template")
    parser.add_argument("prompt")
    options = vars(parser.parse_args(arguments))
    path, prompt, raw = options.pop("socket"), options.pop("prompt"), options.pop("raw")
    fields = {name: value for name, value in options.items() if value is not None}
    try:
        with Client(path) as reel:
            if reel.welcome.get("chat") and not raw:
                prompt = [{"role": "user", "content": prompt}]
            for token in reel.generate(prompt, **fields):
                print(token["text"], end="", flush=True)
            print()
    except (FileNotFoundError, ConnectionRefusedError) as error:
        print("no generator: %s; start one with reel-generator" % error, file=sys.stderr)
        return 69
    except (ReelError, EOFError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
