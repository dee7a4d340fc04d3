"""How many replicas a number of users takes: a simulation by events, from measured times of steps.

    simulate.py          writes results.json and sizing.svg beside this file
    simulate.py check    ends with an error if results.json is not what would be written, for up to 1,000 users
    simulate.py here     compares with measured.json, a run of three nodes on one machine (measure.py)
"""

import bisect
import collections
import itertools
import json
import math
import os
import random
import sys

import simpy

HERE = os.path.dirname(os.path.abspath(__file__))
POLICIES = "round robin", "least load", "prefix"
WARM = 30  # simulated seconds before those that count
CURVE = 10_000  # users of the plot by replicas
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

    def mean(self):
        """Returns the mean in milliseconds."""
        return sum(v * n for v, n in self.weights.items()) / 1e3 / max(sum(self.weights.values()), 1)


class Request:
    def __init__(self, conversation, prompt, answer, at):
        self.conversation, self.prompt, self.answer, self.at = conversation, prompt, answer, at
        self.got, self.left = None, answer  # tokens to come


class Replica:
    """A generator: prompts in chunks, one after the other, beside a step for all running rows."""

    def __init__(self, world, index):
        self.world, self.index, self.m = world, index, world.machine
        self.waiting, self.rows, self.step = collections.deque(), [], 0  # rows: (step that ends it, number, request)
        self.cache, self.cached = collections.OrderedDict(), 0  # tokens by conversation, the one used last at the end
        self.alive, self.arrived, self.prefills = True, world.env.event(), 0
        world.env.process(self.run())

    def put(self, request):
        self.waiting.append(request)
        self.world.loads[self.index] += 1
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
        size = request.prompt + (request.answer if self.m["rereads"] else 0)
        self.hold(request.conversation, size)

    def hold(self, conversation, size):
        self.cache[conversation] = size
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
            self.world.loads[self.index] -= 1
            request.got.succeed()

    def step_s(self):
        return self.world.step_s(max(len(self.rows), 1))

    def run(self):
        env, world = self.world.env, self.world
        while self.alive:
            if self.waiting and len(self.rows) < self.m["batch"]:
                request = self.waiting.popleft()
                left, base, self.prefills = self.uncached(request), 0, 1
                while left > 0 and self.alive:
                    chunk = min(left, self.m["chunk"])
                    seconds = self.step_s() + world.prefill_s(base, chunk)
                    left, base = left - chunk, base + chunk
                    yield env.timeout(seconds)
                    if self.rows:
                        self.advance(1, seconds)
                self.prefills = 0
                if not self.alive:
                    self.waiting.append(request)
                    break
                world.ttft.add(env.now - request.at)
                bisect.insort(self.rows, (self.step + request.answer - 1, next(world.numbers), request))
            elif self.rows:
                seconds, steps, begin = self.step_s(), self.rows[0][0] - self.step, env.now
                self.arrived = env.event()
                if world.changing:
                    steps = 1
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
        self.world.loads[self.index] = math.inf
        if not self.arrived.triggered:
            self.arrived.succeed()


class World:
    """Users who converse with replicas through a router."""

    def __init__(self, machine, users, count, replicas, policy, seed=1):
        self.machine, self.users, self.policy = machine, users, policy
        self.env, self.random, self.turn = simpy.Environment(), random.Random(seed), 0
        self.step_of, self.prefill_of = line(machine["step_ms"]), line(machine["prefill_ms"])
        self.holders = {}  # conversation: replicas
        self.renew()
        self.begin()
        self.loads, self.numbers = [0] * replicas, itertools.count()
        self.replicas = [Replica(self, i) for i in range(replicas)]
        for n in range(count):
            self.env.process(self.user(n))
        self.env.run(WARM)
        self.renew()
        self.measured = min(max(40_000 / count, 15), 600)
        self.env.run(WARM + self.measured)

    changing = False  # others change the time of a step while it runs

    def begin(self):
        """Prepares what a kind of world has besides."""

    def renew(self):
        self.ttft, self.itl, self.prompt, self.hit, self.repeated, self.requests = Counted(), Counted(), 0, 0, 0, 0

    def step_s(self, rows):
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
        if turn > 0:  # it is cached where it was before
            self.holders[conversation] = before = draw.choice(self.replicas)
            before.hold(conversation, length)
        while True:
            message, answer = u["message_tokens"], u["answer_tokens"]
            if not u.get("fixed"):
                message, answer = (max(int(draw.expovariate(1 / mean)), 2) for mean in (message, answer))
            length += message
            request = Request(conversation, length, answer, self.env.now)
            request.got = self.env.event()
            self.route(request)
            yield request.got
            length, turn = length + answer, turn + 1
            if turn == u["turns"]:
                turn, length, conversation = 0, u["system_tokens"], (n, conversation[1] + 1)
            yield self.env.timeout(draw.expovariate(1 / u["think_s"]) if u["think_s"] else 0)

    def route(self, request):
        self.turn = (self.turn + 1) % len(self.replicas)
        if self.policy == "round robin":
            while not self.replicas[self.turn].alive:
                self.turn = (self.turn + 1) % len(self.replicas)
            self.replicas[self.turn].put(request)
            return
        least = min(self.loads)
        start = self.random.randrange(len(self.loads))  # any of those that are equally busy
        to = self.replicas[self.loads.index(least, start if least in self.loads[start:] else 0)]
        held = self.holders.get(request.conversation)
        if self.policy == "prefix" and held is not None and held.alive:
            known = request.prompt * self.users["bytes_per_token"]
            if self.loads[held.index] <= least + 1 + known // BYTES_PER_REQUEST:
                to = held
        self.holders[request.conversation] = to
        to.put(request)

    def figures(self):
        tokens = sum(self.itl.weights.values()) + self.requests
        return {"ttft_p50_ms": self.ttft.at(0.5), "ttft_p95_ms": self.ttft.at(0.95), "itl_mean_ms": self.itl.mean(),
                "itl_p95_ms": self.itl.at(0.95), "hits": self.hit / max(self.prompt, 1),
                "tokens_per_s": tokens / self.measured, "requests_per_s": self.requests / self.measured}


class Shared(World):
    """Nodes that share the processors of one machine: each request gets an equal part of them."""

    changing = True

    def begin(self):
        self.under_way = 0  # requests between the client and a replica

    def slower(self):
        """Returns how much longer work takes than alone."""
        active = self.under_way + sum(len(r.rows) + r.prefills for r in self.replicas)
        return max(active / self.machine["processors"], 1)

    def step_s(self, rows):
        return max(self.machine["itl_ms"], self.machine["token_ms"] * self.slower()) / 1e3

    def prefill_s(self, base, chunk):
        return max(super().prefill_s(base, chunk) * self.slower() - self.step_s(1), 0)

    def route(self, request):
        self.env.process(self.carry(request))

    def carry(self, request):
        self.under_way += 1
        yield self.env.timeout(self.machine["carry_ms"] * self.slower() / 1e3)
        self.under_way -= 1
        super().route(request)


def compare():
    """Compares three nodes of this machine with what is simulated, from runs of one user and of eight."""
    with open(os.path.join(HERE, "inputs.json"), encoding="utf-8") as file:
        prefill = json.load(file)["here"]["prefill_ms"]
    with open(os.path.join(HERE, "measured.json"), encoding="utf-8") as file:
        measured = json.load(file)
    one, eight, users = measured["counts"]["1"], measured["counts"]["8"], measured["users"]
    tokens, alone = measured["prefill_ms"][0]
    work = eight["processors"] / eight["requests_per_s"] * 1e3  # ms of a processor that a request takes
    carry = alone - line(prefill)(tokens)
    machine = {"step_ms": [[1, 1], [2, 2]], "prefill_ms": prefill, "chunk": 64, "batch": 64, "cache_tokens": 69_632,
               "rereads": False, "itl_ms": one["itl_mean_ms"], "processors": eight["processors"], "carry_ms": carry,
               "token_ms": (work - alone) / users["answer_tokens"]}
    print({name: round(value, 2) for name, value in machine.items() if name.endswith("_ms") and isinstance(value, float)})
    for count, real in measured["counts"].items():
        simulated = Shared(machine, users, int(count), 3, "prefix").figures()
        print(f"{count} users:", ", ".join(f"{name} {real[name]:.3g} measured, {simulated[name]:.3g} simulated "
                                           f"({100 * (simulated[name] / real[name] - 1):+.0f}%)"
                                           for name in ("ttft_p50_ms", "itl_mean_ms", "tokens_per_s", "hits")))


def table(results):
    """Writes the table of SIZING.md."""
    lines = ["| users | policy | replicas | TTFT P50, P95, ms | ITL mean, P95, ms | of prompts found | tokens/s |",
             "| ---: | --- | ---: | ---: | ---: | ---: | ---: |"]
    for rows in results.values():
        for count in rows[POLICIES[0]]:
            for policy in POLICIES:
                f, n = rows[policy][count]["figures"], rows[policy][count]["replicas"]
                lines.append(f"| {int(count):,} | {policy} | {n} | {f['ttft_p50_ms']:.0f}, {f['ttft_p95_ms']:.0f} | "
                             f"{f['itl_mean_ms']:.1f}, {f['itl_p95_ms']:.1f} | {f['hits']:.0%} | {f['tokens_per_s']:,.0f} |")
    path = os.path.join(HERE, "../SIZING.md")
    with open(path, encoding="utf-8") as file:
        before, rest = file.read().split("<!-- sizing: written by make sizing -->\n")
    after = rest[rest.index("<!-- sizing: end -->"):]
    with open(path, "w", encoding="utf-8") as file:
        file.write(before + "<!-- sizing: written by make sizing -->\n" + "\n".join(lines) + "\n" + after)


def plots(results):
    """Draws the replicas that each policy takes, and the time to the first token by the number of replicas."""
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "reel", "font.size": 9})
    from matplotlib import pyplot
    for rows in results.values():
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
        for i, policy in enumerate(POLICIES):
            counts = list(rows[policy])
            bars = left.bar([x + 0.27 * (i - 1) for x in range(len(counts))], [rows[policy][c]["replicas"] for c in counts],
                            0.25, label=policy)
            left.bar_label(bars, fontsize=7)
            tried = rows[policy][str(CURVE)]["tried"]
            right.plot(list(map(int, tried)), [f["ttft_p95_ms"] for f in tried.values()], marker="o", label=policy)
        left.set(yscale="log", xticks=range(len(counts)), xticklabels=[f"{int(c):,}" for c in counts], xlabel="users",
                 ylabel="replicas that meet the targets")
        right.set(yscale="log", xlabel=f"replicas for {CURVE:,} users", ylabel="TTFT P95, ms")
        left.legend(frameon=False)
        figure.savefig(os.path.join(HERE, "sizing.svg"), metadata={"Date": None})


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
        low, high = high, high + max(math.ceil(high * 0.07), 1)
    if count > 50_000:  # minutes each: to 7% or what a tenth of the users took
        return high, tried
    if low == 0:
        low = max(int(high * 0.8) - 1, 0)
        while low > 0 and good(low):
            low, high = max(int(low * 0.8) - 1, 0), low
    while high - low > max(high * 0.03, 1):
        middle = (low + high) // 2
        low, high = (low, middle) if good(middle) else (middle, high)
    return high, tried


def failure(machine, inputs, count, replicas):
    """Returns the figures of a minute in which one of the replicas ends and comes back."""
    world = World(machine, inputs["users"], count, replicas, "prefix")
    world.renew()
    world.replicas[0].kill()
    begin = world.env.now
    world.env.run(begin + machine["start_s"])
    world.loads[0] = 0
    world.replicas[0] = Replica(world, 0)
    world.env.run(begin + 60)
    world.measured = 60
    return world.figures()


def check():
    """Ends with an error if the results of up to 1,000 users are not those of results.json."""
    with open(os.path.join(HERE, "inputs.json"), encoding="utf-8") as file:
        inputs = json.load(file)
    with open(os.path.join(HERE, "results.json"), encoding="utf-8") as file:
        results = json.load(file)
    for name, machine in inputs["machines"].items():
        for policy in POLICIES:
            for count in (count for count in inputs["counts"] if count <= 1000):
                was = results[name][policy][str(count)]
                now = World(machine, inputs["users"], count, was["replicas"], policy).figures()
                if now != was["figures"]:
                    sys.exit(f"{name}, {policy}, {count} users: {now}, and results.json has {was['figures']}: make sizing")


def main():
    with open(os.path.join(HERE, "inputs.json"), encoding="utf-8") as file:
        inputs = json.load(file)
    results = {}
    for name, machine in inputs["machines"].items():
        results[name] = rows = {}
        last = {}  # replicas of the count before, a tenth of the next
        for count in inputs["counts"]:
            for policy in POLICIES:
                n, tried = smallest(machine, inputs, count, policy, max(last.get(policy, 0) * 10, count // 500))
                last[policy] = n
                rows.setdefault(policy, {})[str(count)] = {
                    "replicas": n, "figures": tried[n], "tried": {str(k): v for k, v in sorted(tried.items())}}
        n = rows["prefix"]["1000"]["replicas"]
        rows["failure"] = {"replicas": n, "figures": failure(machine, inputs, 1000, n)}
    plots(results)
    table(results)
    with open(os.path.join(HERE, "results.json"), "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["here"]:
        compare()
    elif sys.argv[1:] == ["check"]:
        check()
    else:
        main()
