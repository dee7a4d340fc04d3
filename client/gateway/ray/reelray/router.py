"""Sends a request to the replica that holds the beginning of its prompt, else to the least busy one."""

import collections
import hashlib

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

MOST = 1 << 18  # beginnings that are remembered: about 85 MiB
CHUNK = 128  # bytes of a prompt between two marks
CHUNKS = 256  # of a prompt that are marked
BYTES_PER_REQUEST = 1 << 10  # of a known beginning, for which a replica may have one more request than the least busy


def marks(scope: str, prompt: str) -> list[bytes]:
    """Returns the marks of a prompt: after each chunk a hash of all that comes before, and of whose it is."""
    text, hashed, list = prompt.encode(), hashlib.blake2b(scope.encode(), digest_size=8), []
    for end in range(CHUNK, min(len(text), CHUNK * CHUNKS) + 1, CHUNK):
        hashed.update(text[end - CHUNK:end])
        list.append(hashed.digest())
    return list


class PrefixRouter(RequestRouter):
    """Chooses by what went where. It asks no replica, and holds no text."""

    def initialize_state(self):
        self.holders = collections.OrderedDict()  # mark: ids of replicas, the one used last at the end
        self.running = collections.Counter()  # requests of this router, by replica

    def load(self, replica: RunningReplica) -> int:
        """Returns how many requests a replica has, of all routers as it said last, of this one in any case."""
        return max(self.running[replica.replica_id], self.replica_queue_len_cache.get(replica.replica_id) or 0)

    async def choose_replicas(self, candidate_replicas: list[RunningReplica],
                              pending_request: PendingRequest | None = None) -> list[list[RunningReplica]]:
        call = pending_request.args[0]
        fit = [r for r in candidate_replicas if call.identity in ("", r.replica_metadata.get("identity"))]
        start = b"".join(call.marks[:1])  # among idle ones all routers take the same
        fit.sort(key=lambda r: (self.load(r), hashlib.blake2b(start + r.replica_id.unique_id.encode()).digest()))
        holders, known = self.find(call.marks)
        near = [r for r in fit if r.replica_id in holders
                and self.load(r) <= self.load(fit[0]) + 1 + known // BYTES_PER_REQUEST]
        return [near[:1], *([r] for r in fit)]

    def find(self, marks: list[bytes]) -> tuple[set[ReplicaID], int]:
        """Returns who holds the longest known beginning, and its bytes."""
        for n in range(len(marks), 0, -1):
            if held := self.holders.get(marks[n - 1], set()) & self.curr_replicas.keys():
                return held, n * CHUNK
        return set(), 0

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result) -> None:
        self.running[replica_id] += 1
        for mark in reversed(pending_request.args[0].marks):  # so that the root is used last
            self.holders.setdefault(mark, set()).add(replica_id)
            self.holders.move_to_end(mark)
        while len(self.holders) > MOST:
            self.holders.popitem(last=False)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        self.running[replica_id] -= 1
