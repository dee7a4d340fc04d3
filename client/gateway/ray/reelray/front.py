"""What a client's request meets first: it draws the seed, and goes on elsewhere when a replica is lost."""

import asyncio
import contextlib
import dataclasses
import json
import logging
import random
import re
import time

from ray import serve
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from reelray import router
from reelray.answer import Answer, Head, Lost, Other

MAX_BODY = 4 << 20  # of reel-gateway
MAX_LOSSES = 3  # of a request; the next one ends it
SUSPECT_AT = 2  # losses after which a request runs apart from others like it
RESTART = 60  # seconds in which a replica takes a request up
PAUSE = 0.2  # seconds between two attempts
LOCAL = "localhost", "127.0.0.1", "[::1]"
PROMPTS = "tools", "system", "instructions", "messages", "prompt", "input"  # in the order of a prompt
log = logging.getLogger("ray.serve")


@dataclasses.dataclass
class Call:
    """A request on its way to a replica."""

    method: str
    path: str
    headers: list
    body: bytes
    marks: list = dataclasses.field(default_factory=list)  # of its prompt, see router
    identity: str = ""  # of the replica whose answer the client has


def load(text: bytes) -> dict:
    """Returns an object of JSON, an empty one if text is none."""
    with contextlib.suppress(ValueError, RecursionError):
        if isinstance(value := json.loads(text), dict):
            return value
    return {}


def seeded(path: str, body: bytes) -> tuple[bytes, dict]:
    """Returns a body that has a seed, so that it gives the same answer again, and its fields."""
    fields, ollama = load(body), path.startswith("/api/")
    place = fields.setdefault("options", {}) if ollama and fields else fields
    if not fields or not isinstance(place, dict) or place.get("seed") not in ((None, -1) if ollama else (None,)):
        return body, fields
    place["seed"] = random.getrandbits(31)
    return json.dumps(fields).encode(), fields


def failure(status: int, code: str, message: str) -> dict:
    return {"error": {"message": message, "type": "server_error" if status >= 500 else "invalid_request_error",
                      "param": None, "code": code}}


def refusal(status: int, code: str, message: str) -> Response:
    again = {"retry-after": "1"} if status in (429, 503) else {}
    return Response(json.dumps(failure(status, code, message)), status, again, "application/json")


def foreign(headers, hosts: list[str]) -> str:
    """Returns why a request may be one of a web page of another origin, or nothing. The gateways see a Unix socket."""
    host = headers.get("host", "")
    if re.sub(r":\d+$", "", host).lower() not in (*LOCAL, *hosts):
        return "the request's Host names another server (if it is a name of this one, add it to hosts)"
    if (origin := headers.get("origin")) and origin not in (f"http://{host}", f"https://{host}"):
        return "pages of this origin may not ask"
    if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        return "pages of other sites may not ask"
    return ""


@serve.deployment
class Front:
    """The deployment that the proxies serve."""

    def __init__(self, generators, hosts: str):
        self.generators, self.hosts = generators.options(stream=True), hosts.lower().split()
        self.suspects = asyncio.Lock()

    async def __call__(self, request: Request) -> Response:
        if why := foreign(request.headers, self.hosts):
            return refusal(403, "foreign", why)
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > MAX_BODY:
                return refusal(413, "too_large", f"a request has at most {MAX_BODY} bytes")
        pieces = self.answered(self.call(request, bytes(body)))
        try:
            head = await anext(pieces)
        except BackPressureError:
            return refusal(429, "busy", "too many requests wait (ask again in a moment)")
        except (Lost, Other, TimeoutError) as error:
            return refusal(503, "no_generator", f"no replica serves this request now ({error})")
        response = StreamingResponse(pieces, head.status)
        response.raw_headers = [(name.encode(), value.encode()) for name, value in head.headers]
        return response

    def call(self, request: Request, body: bytes) -> Call:
        path = (request.scope.get("raw_path") or request.url.path.encode()).decode("latin-1")
        path += "?" + request.url.query if request.url.query else ""
        call = Call(request.method, path, request.headers.items(), body)
        if request.method == "POST":
            call.body, fields = seeded(path, body)
            scope = request.headers.get("authorization", "") + request.headers.get("x-api-key", "")
            call.marks = router.marks(scope, json.dumps([fields[name] for name in PROMPTS if name in fields]))
        return call

    async def answered(self, call: Call):
        """Yields an answer's head and its bytes, from as many replicas as it takes."""
        answer, head, losses, until = Answer(), None, 0, time.monotonic() + RESTART
        while True:
            taken = False
            try:
                async with self.suspects if losses >= SUSPECT_AT else contextlib.nullcontext():
                    async for piece in self.once(call, answer, until):
                        first, taken = not taken, True
                        if first and head is None:
                            head, call.identity = piece, piece.identity
                        elif first:
                            continue
                        yield piece
                return
            except (Lost, RayActorError, TimeoutError) as error:
                log.warning("a replica was lost with a request: %s", error)
                if taken:
                    losses, until = losses + 1, time.monotonic() + RESTART
                if losses > MAX_LOSSES or time.monotonic() > until:
                    ending = Lost("the replicas that took it were lost")
                else:
                    await asyncio.sleep(PAUSE)
                    continue
            except Other as error:
                ending = error
            if head is None:
                raise ending
            yield self.last(head)
            return

    def last(self, head: Head) -> bytes:
        """Returns the last event of a stream that cannot go on."""
        event = json.dumps(failure(503, "not_resumed", "the replica ended in the middle of this answer, and none in "
                                   "its place gives the same one (ask again)")).encode()
        return event + b"\n" if head.separator() == b"\n" else b"data: " + event + b"\n\n"

    async def once(self, call: Call, answer: Answer, until: float):
        """Yields the head and the bytes that the client lacks of one replica's answer."""
        pieces = self.generators.ask.remote(call)
        try:
            head = await asyncio.wait_for(anext(pieces), max(until - time.monotonic(), 1) if call.identity else None)
            if call.identity not in ("", head.identity):
                raise Other
            if head.status == 503 and time.monotonic() < until:
                raise Lost("a gateway has no generator")
            separator = head.separator()
            if not separator:  # nothing leaves before all is here
                body = b"".join([piece async for piece in pieces])
                yield head
                yield body
                return
            answer.begin()
            yield head
            rest = b""
            async for piece in pieces:
                *events, rest = (rest + piece).split(separator)
                if new := b"".join(answer.take(event + separator) for event in events):
                    yield new
            answer.end()
        finally:
            pieces.cancel()
