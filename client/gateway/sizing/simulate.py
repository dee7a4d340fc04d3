"""How many replicas a number of users takes: a simulation by events, from measured times of steps.

    simulate.py          writes results.json and the plots beside this file
    simulate.py here     compares with measured.json, a run of three nodes on one machine (measure.py)
"""

import bisect
import collections
import json
import math
import os
import random
import sys

import simpy

HERE = os.path.dirname(os.path.abspath(__file__))
POLICIES = "round robin", "least load", "prefix"
WARM, MEASURE = 60, 40  # simulated seconds: until the conversations are spread over their turns, and counted
BYTES_PER_REQUEST = 1 << 10  # of reelray/router.py


def line(points):
    """Returns the function through points, straight between them and after the last."""
    xs = [x for x, _ in points]

    def at(x):
        i = min(max(bisect.bisect_left(xs, x), 1), len(points) - 1)
        (x0, y0), (x1, y1) = points[i - 1], points[i]
        return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return at


class Counted:
    """A distribution of times, in microseconds, with weights."""

    def __init__(self):
        self.weights = collections.Counter()

    def add(self, seconds, weight=1):
        self.weights[int(seconds * 1e6)] += weight

    def at(self, part):
        """Returns a quantile in milliseconds."""
        left = part * sum(self.weights.values())
        for value in sorted(self.weights):
            left -= self.weights[value]
            if left <= 0:
                return value / 1e3
        return math.nan


class Request:
    def __init__(self, conversation, prompt, answer, at):
        self.conversation, self.prompt, self.answer, self.at = conversation, prompt, answer, at
        self.got, self.left = None, answer  # tokens to come


class Replica:
    """A generator: prompts in chunks, one after the other, beside a step for all running rows."""

    def __init__(self, world, index):
        self.world, self.index, self.m = world, index, world.machine
        self.waiting, self.rows, self.step = collections.deque(), [], 0  # rows: (step that ends it, request)
        self.cache, self.cached = collections.OrderedDict(), 0  # tokens by conversation, the one used last at the end
        self.alive, self.arrived = True, world.env.event()
        world.env.process(self.run())

    def load(self):
        return len(self.waiting) + len(self.rows)

    def put(self, request):
        self.waiting.append(request)
        if not self.arrived.triggered:
            self.arrived.succeed()

    def uncached(self, request):
        """Returns the tokens of a prompt that have to be computed, and counts the hit."""
        known = self.cache.pop(request.conversation, 0)
        self.cached -= known
        if not known and self.cache:
            known = self.world.users["system_tokens"]  # that others brought
        known = min(known, request.prompt - 1) // 16 * 16
        self.world.found(request, known)
        return request.prompt - known

    def keep(self, request):
        """Keeps what a conversation has so far, and drops those that were not used for longest."""
        size = request.prompt + request.answer
        self.cache[request.conversation] = size
        self.cached += size
        while self.cached > self.m["cache_tokens"]:
            self.cached -= self.cache.popitem(last=False)[1]

    def advance(self, steps, seconds):
        """Has all rows get a token in each of some steps of a length."""
        self.step += steps
        self.world.itl.add(seconds, steps * len(self.rows))
        while self.rows and self.rows[0][0] <= self.step:
            request = self.rows.pop(0)[2]
            self.keep(request)
            request.got.succeed()

    def step_s(self):
        return self.world.step_s(self, len(self.rows))

    def run(self):
        env, world = self.world.env, self.world
        while self.alive:
            if self.waiting and len(self.rows) < self.m["batch"]:
                request = self.waiting.popleft()
                left, base = self.uncached(request), 0
                while left > 0 and self.alive:
                    chunk = min(left, self.m["chunk"])
                    seconds = (self.step_s() if self.rows else 0) + world.prefill_s(base, chunk)
                    left, base = left - chunk, base + chunk
                    yield env.timeout(seconds)
                    if self.rows:
                        self.advance(1, seconds)
                if not self.alive:
                    self.waiting.append(request)
                    break
                world.ttft.add(env.now - request.at)
                bisect.insort(self.rows, (self.step + request.answer - 1, id(request), request))
            elif self.rows:
                seconds, steps, begin = self.step_s(), self.rows[0][0] - self.step, env.now
                self.arrived = env.event()
                if world.changing:
                    steps = 1  # others change the time of a step
                yield env.any_of([env.timeout(steps * seconds), self.arrived])
                done = (env.now - begin) / seconds
                whole = min(steps, max(math.ceil(done - 1e-6), 1))
                if whole > done + 1e-6:  # the step that runs
                    yield env.timeout((whole - done) * seconds)
                self.advance(whole, seconds)
            else:
                self.arrived = env.event()
                yield self.arrived
        for request in [*self.waiting, *(row[2] for row in self.rows)]:
            world.route(request)  # it begins again elsewhere, and the client misses nothing

    def kill(self):
        self.alive = False
        if not self.arrived.triggered:
            self.arrived.succeed()


class World:
    """Users who converse with replicas through a router."""

    def __init__(self, machine, users, count, replicas, policy, seed=1, warm=WARM, measure=MEASURE):
        self.machine, self.users, self.policy = machine, users, policy
        self.env, self.random, self.turn = simpy.Environment(), random.Random(seed), 0
        self.step_of, self.prefill_of = line(machine["step_ms"]), line(machine["prefill_ms"])
        self.changing = False
        self.holders = {}  # conversation: replicas
        self.renew()
        self.replicas = [Replica(self, i) for i in range(replicas)]
        for n in range(count):
            self.env.process(self.user(n))
        self.env.run(warm)
        self.renew()
        self.measured = measure
        self.env.run(warm + measure)

    def renew(self):
        self.ttft, self.itl, self.prompt, self.hit, self.repeated, self.requests = Counted(), Counted(), 0, 0, 0, 0

    def step_s(self, replica, rows):
        return self.step_of(rows) / 1e3

    def prefill_s(self, base, chunk):
        return (self.prefill_of(base + chunk) - self.prefill_of(base)) / 1e3

    def found(self, request, known):
        self.requests += 1
        self.prompt += request.prompt
        self.hit += known

    def user(self, n):
        """A user who begins at any turn of a conversation, with the time to think in between."""
        u, draw = self.users, self.random
        yield self.env.timeout(draw.random() * u["think_s"] if u["think_s"] else 0)
        turn, conversation = draw.randrange(u["turns"]), (n, 0)
        length = u["system_tokens"] + turn * (u["message_tokens"] + u["answer_tokens"])
        while True:
            length += max(int(draw.expovariate(1 / u["message_tokens"])), 4)
            answer = max(int(draw.expovariate(1 / u["answer_tokens"])), 2)
            request = Request(conversation, length, answer, self.env.now)
            request.got = self.env.event()
            self.route(request)
            yield request.got
            length, turn = length + answer, turn + 1
            if turn == u["turns"]:
                turn, length, conversation = 0, u["system_tokens"], (n, conversation[1] + 1)
            yield self.env.timeout(draw.expovariate(1 / u["think_s"]) if u["think_s"] else 0)

    def route(self, request):
        live = [r for r in self.replicas if r.alive]
        if self.policy == "round robin":
            self.turn += 1
            live[self.turn % len(live)].put(request)
            return
        start = self.random.randrange(len(live))  # any of those that are equally busy
        least = min(live[start:] + live[:start], key=Replica.load)
        held = self.holders.get(request.conversation)
        if self.policy == "prefix" and held is not None and held.alive:
            known = request.prompt * self.users["bytes_per_token"]
            if held.load() <= least.load() + 1 + known // BYTES_PER_REQUEST:
                least = held
        self.holders[request.conversation] = least
        least.put(request)

    def figures(self):
        tokens = sum(self.itl.weights.values()) + self.requests
        return {"ttft_p50_ms": self.ttft.at(0.5), "ttft_p95_ms": self.ttft.at(0.95), "itl_p50_ms": self.itl.at(0.5),
                "itl_p95_ms": self.itl.at(0.95), "hits": self.hit / max(self.prompt, 1),
                "tokens_per_s": tokens / self.measured, "requests_per_s": self.requests / self.measured}


def meets(figures, targets):
    return all(figures[name] <= most for name, most in targets.items())


def smallest(machine, inputs, count, policy, guess):
    """Returns the fewest replicas that meet the targets, with the figures of all that were tried."""
    tried = {}

    def good(n):
        if n not in tried:
            tried[n] = World(machine, inputs["users"], count, n, policy).figures()
            print(f"{count} users, {policy}, {n} replicas: {tried[n]}", file=sys.stderr, flush=True)
        return meets(tried[n], inputs["targets"])

    low, high = 0, max(guess, 1)
    while not good(high):
        low, high = high, high + max(math.ceil(high * 0.15), 1)
    if low == 0:
        low = max(int(high * 0.8) - 1, 0)
        while low > 0 and good(low):
            low, high = max(int(low * 0.8) - 1, 0), low
    while high - low > max(high * 0.03, 1):
        middle = (low + high) // 2
        low, high = (low, middle) if good(middle) else (middle, high)
    return high, tried


def failure(machine, inputs, count, replicas):
    """Returns the figures of 60 s in which one of the replicas ends and comes back."""
    world = World(machine, inputs["users"], count, replicas, "prefix")
    world.renew()
    world.replicas[0].kill()
    world.replicas.append(Replica(world, replicas))
    world.replicas[-1].alive = False
    world.env.run(world.env.now + machine["start_s"])
    world.replicas[-1] = Replica(world, replicas)
    world.env.run(world.env.now + 60 - machine["start_s"])
    world.measured = 60
    return world.figures()


def main():
    with open(os.path.join(HERE, "inputs.json"), encoding="utf-8") as file:
        inputs = json.load(file)
    results = {}
    for name, machine in inputs["machines"].items():
        results[name] = rows = {}
        for count in inputs["counts"]:
            for policy in POLICIES:
                before = rows.get(policy, {}).get(str(count // 100), {}).get("replicas", 0)
                n, tried = smallest(machine, inputs, count, policy, round(before * 95) if count > 10_000 else count // 500)
                rows.setdefault(policy, {})[str(count)] = {
                    "replicas": n, "figures": tried[n], "tried": {str(k): v for k, v in sorted(tried.items())}}
        n = rows["prefix"]["1000"]["replicas"]
        rows["failure"] = {"replicas": n, "figures": failure(machine, inputs, 1000, n)}
    with open(os.path.join(HERE, "results.json"), "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["here"]:
        import here
        here.main()
    else:
        main()
