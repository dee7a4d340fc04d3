"""Reel on Ray Serve: a machine has a generator and its gateway, and Ray finds the machine for a request.

    serve deploy serve.yaml        # on a cluster of its own; README.md has the steps
"""

import asyncio
import collections
import contextlib
import dataclasses
import os
import re
import shlex
import shutil
import tempfile

import aiohttp
from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingContext, RequestRouterConfig
from yarl import URL

from reelray import front
from reelray.answer import Head, Lost

IDENTITY = "identity"
ALIKE = "device", "version", "model", "gpu", IDENTITY  # what replicas must have in common
HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "expect", "content-length",
       "accept-encoding"}
SAID = 20  # lines that a program wrote last, for the reason why it ended


@dataclasses.dataclass
class Options:
    """The arguments of the application. `model`, `bin` and `keys` may name variables of a node, as $MODELS."""

    model: str = ""  # of reel-generator's --model; empty: the embedded one
    device: str = "cuda"  # each replica takes a GPU of Ray's; host: `cpus` of its processors
    cpus: float = 1
    replicas: int = 1
    most: int = 0  # with more than `replicas`: add some while requests queue
    running: int = 64  # requests of a replica at once
    bin: str = ""  # folder of the programs; empty: PATH
    keys: str = ""  # of reel-gateway's --api-key-file
    flags: str = ""  # further ones of reel-generator
    hosts: str = ""  # names of the proxies beside localhost, with spaces between them
    release: str = ""  # another one restarts all replicas, one after the other


@serve.deployment
class Reference:
    """What the first replica of a release is; the others have to be the same."""

    def __init__(self):
        self.first = {}

    def agree(self, release: str, facts: dict) -> dict:
        return self.first.setdefault(release, facts)


@serve.deployment
class Generator:
    """A replica: it owns a generator and a gateway on its node."""

    async def __init__(self, options: Options, reference):
        self.options, self.reference = options, reference
        self.folder = tempfile.mkdtemp(prefix="reel", dir="/tmp")  # short: a socket's path has at most 107 bytes
        self.programs, self.said = {}, collections.deque(maxlen=SAID)
        try:
            await self.begin()
        except BaseException:
            await self.__del__()
            raise

    async def begin(self):
        o, generator, http = self.options, self.folder + "/generator", self.folder + "/http"
        model = ("--model", path) if (path := os.path.expandvars(o.model)) else ()
        await self.start("reel-generator", "--device", o.device, "--socket", generator, *model, *shlex.split(o.flags))
        self.facts = await self.identified(generator)
        await self.same()
        keys = ("--api-key-file", os.path.expandvars(o.keys)) if o.keys else ()
        await self.start("reel-gateway", "--listen", "unix:" + http, "--generator", generator, *keys)
        self.http = aiohttp.ClientSession(connector=aiohttp.UnixConnector(http, limit=0), auto_decompress=False,
                                          timeout=aiohttp.ClientTimeout(None), skip_auto_headers=["Accept-Encoding"])
        while await self.get("/health") is None:
            self.living()
            await asyncio.sleep(0.05)

    async def start(self, name, *arguments):
        """Starts a program that gets SIGTERM when this process ends in any way."""
        program = await asyncio.create_subprocess_exec(
            "setpriv", "--pdeathsig", "TERM", os.path.join(os.path.expandvars(self.options.bin), name), *arguments,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE)
        self.programs[name] = program, asyncio.create_task(self.watch(program))

    async def watch(self, program):
        """Reads what a program writes. One that ends takes the other along, so that streams go on elsewhere at once."""
        async for line in program.stderr:
            self.said.append(line.decode(errors="replace").rstrip())
            print(self.said[-1], flush=True)  # in Ray's log of the replica
        await program.wait()
        self.stop()

    def living(self):
        """Raises if a program has ended, with its last words."""
        for name, (program, _) in self.programs.items():
            if program.returncode is not None:
                raise Lost(f"{name} ended with {program.returncode}: " + " | ".join(self.said))

    async def identified(self, socket) -> dict:
        """Returns what decides tokens; its identity is known once the generator has read all weights again."""
        while True:
            reel = await asyncio.create_subprocess_exec(
                os.path.join(os.path.expandvars(self.options.bin), "reel"), "--socket", socket, "status", "--json",
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL)
            status = (await reel.communicate())[0]
            self.living()
            if reel.returncode == 0 and (known := front.load(status)).get(IDENTITY):
                gpu = known["machine"]["name"] if known["device"] != "host" else ""
                return {"gpu": gpu} | {name: known[name] for name in ALIKE if name in known}
            await asyncio.sleep(0.2)

    async def same(self):
        """Raises if this replica would give other tokens than the others of its release."""
        o = self.options
        first = await self.reference.agree.remote(repr((o.model, o.device, o.release)), self.facts)
        if other := [f"{name} {self.facts[name]!r} instead of {first[name]!r}" for name in ALIKE
                     if self.facts[name] != first[name]]:
            raise ValueError("this node is refused, as its answers would differ from the others': " + ", ".join(other))

    async def get(self, path):
        """Returns an answer of the gateway, None if it gives none or an error."""
        with contextlib.suppress(aiohttp.ClientError):
            async with self.http.get("http://localhost" + path) as reply:
                return await reply.text() if reply.status == 200 else None

    async def check_health(self):
        self.living()
        await self.same()
        if await self.get("/health") is None:
            raise Lost("the gateway does not answer /health")

    def record_replica_metadata(self) -> dict:
        return {IDENTITY: self.facts[IDENTITY]}

    async def record_autoscaling_stats(self) -> dict:
        figures = await self.get("/metrics") or ""
        return {"queued": sum(map(float, re.findall(r"^vllm:num_requests_waiting\S* (\S+)$", figures, re.M)))}

    async def ask(self, call: front.Call):
        """Yields the gateway's answer: its head, and its bytes as they come."""
        headers = [(name, value) for name, value in call.headers if name not in HOP]
        try:
            url = URL("http://localhost" + call.path, encoded=True)
            async with self.http.request(call.method, url, headers=headers, data=call.body) as reply:
                kept = [(name.lower(), value) for name, value in reply.headers.items() if name.lower() not in HOP]
                yield Head(reply.status, kept, self.facts[IDENTITY])
                async for piece in reply.content.iter_any():
                    yield piece
        except aiohttp.ClientError as error:
            raise Lost(f"the gateway ended: {error}") from error

    def stop(self):
        for program, _ in self.programs.values():
            if program.returncode is None:
                program.terminate()

    async def __del__(self):
        """Ends the programs as SIGTERM does: running requests finish. Ray has stopped sending any."""
        self.stop()
        await asyncio.gather(*(task for _, task in self.programs.values()))
        if http := getattr(self, "http", None):
            await http.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def by_queue(context: AutoscalingContext):
    """Adds replicas while requests queue, as many as they would fill; takes one away when all would fit the others."""
    waiting = sum((context.aggregated_metrics or {}).get("queued", {}).values()) + (context.total_queued_requests or 0)
    now, size = context.current_num_replicas, context.config.get_target_ongoing_requests()
    if waiting:
        return now + -int(-waiting // size), {}
    return now - (context.total_num_requests < (now - 1) * size / 2), {}


def app(arguments: dict) -> serve.Application:
    """Returns the application; `arguments` are fields of Options."""
    o = Options(**arguments)
    count = {"num_replicas": o.replicas} if o.most <= o.replicas else {"autoscaling_config": AutoscalingConfig(
        min_replicas=o.replicas, max_replicas=o.most, target_ongoing_requests=o.running,
        policy={"policy_function": "reelray.app:by_queue"})}
    resources = {"num_gpus": 1} if o.device == "cuda" else {"num_cpus": o.cpus}
    generators = Generator.options(
        max_ongoing_requests=o.running, ray_actor_options={"num_cpus": 0} | resources, health_check_period_s=2,
        max_constructor_retry_count=3, graceful_shutdown_wait_loop_s=0.2, graceful_shutdown_timeout_s=120,
        request_router_config=RequestRouterConfig(request_router_class="reelray.router:PrefixRouter"), **count)
    head = {"num_cpus": 0, "resources": {"node:__internal_head__": 0.001}}
    reference = Reference.options(ray_actor_options=head).bind()
    return front.Front.options(ray_actor_options=head, max_ongoing_requests=10_000).bind(
        generators.bind(o, reference), o.hosts)
