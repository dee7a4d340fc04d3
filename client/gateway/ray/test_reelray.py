"""What needs no cluster: how an answer goes on, seeds, marks, who may ask."""

import asyncio
import collections
import json
import os
import types
import unittest

import yaml
from ray.serve.schema import ServeDeploySchema

from reelray import app, front, router
from reelray.answer import Answer, Head, Other

FIRST, SECOND = "A" * 26, "B" * 26


def chunk(text, id=FIRST, index=0, created=1):
    value = {"id": "cmpl-" + id, "object": "text_completion", "created": created, "model": "m",
             "choices": [{"index": index, "text": text, "logprobs": None, "finish_reason": None}]}
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


class Answers(unittest.TestCase):
    def resumed(self, sent, again):
        answer = Answer()
        for event in sent:
            self.assertEqual(answer.take(event), event)
        answer.begin()
        return answer, [answer.take(event) for event in again]

    def test_client_gets_the_rest_with_its_own_ids_and_times(self):
        _, rest = self.resumed([chunk("a"), chunk("b")], [chunk(t, SECOND, created=2) for t in "abc"])
        self.assertEqual(rest, [b"", b"", chunk("c")])

    def test_other_text_is_refused(self):
        with self.assertRaises(Other):
            self.resumed([chunk("a"), chunk("b")], [chunk("a", SECOND), chunk("x", SECOND)])

    def test_shorter_answer_is_refused(self):
        answer, _ = self.resumed([chunk("a"), chunk("b")], [chunk("a", SECOND)])
        self.assertRaises(Other, answer.end)

    def test_choices_come_in_any_order(self):
        sent = [chunk("a"), chunk("x", index=1), chunk("b")]
        again = [chunk("x", SECOND, 1, 2), chunk("y", SECOND, 1, 2), *(chunk(t, SECOND, 0, 2) for t in "abc")]
        answer, rest = self.resumed(sent, again)
        self.assertEqual(rest, [b"", chunk("y", index=1), b"", b"", chunk("c")])
        answer.end()

    def test_texts_with_quotes_and_ids_are_compared(self):
        """A text is no place where volatile fields are left out."""
        for one, other in ((f'"cmpl-{FIRST}"', f'"cmpl-{SECOND}"'), ('"created":1', '"created":2')):
            with self.subTest(one), self.assertRaises(Other):
                self.resumed([chunk(one)], [chunk(other, SECOND)])

    def test_signs_of_life_pass(self):
        answer = Answer()
        self.assertEqual(answer.take(b": ping\n\n"), b": ping\n\n")
        answer.take(chunk("a"))
        answer.begin()
        self.assertEqual(answer.take(b": ping\n\n"), b": ping\n\n")
        self.assertEqual(answer.take(chunk("a", SECOND)), b"")

    def test_other_apis(self):
        for one, other in (
            (b'event: message_start\ndata: {"message":{"id":"msg_%s"}}\n\n', None),
            (b'data: {"response":{"id":"resp_%s","created_at":1,"completed_at":null}}\n\n', None),
            (b'{"created_at":"2026-11-26T05:03:17.8Z","message":{"content":"Well"},"done":false}\n',
             b'{"created_at":"2026-11-26T05:04:17.8Z","message":{"content":"Well"},"done":false}\n'),
            (b'{"done":true,"total_duration":49,"prompt_eval_count":14}\n',
             b'{"done":true,"total_duration":50,"prompt_eval_count":14}\n'),
            (b'data: {"usage":{"prompt_tokens":4,"prompt_tokens_details":{"cached_tokens":0}}}\n\n',
             b'data: {"usage":{"prompt_tokens":4,"prompt_tokens_details":{"cached_tokens":3}}}\n\n'),
        ):
            first, second = (one % FIRST.encode(), one % SECOND.encode()) if other is None else (one, other)
            self.assertEqual(self.resumed([first], [second])[1], [b""])

    def test_separators(self):
        for kind, separator in (("text/event-stream; charset=utf-8", b"\n\n"), ("application/x-ndjson", b"\n"),
                                ("application/json", b"")):
            self.assertEqual(Head(200, [("content-type", kind)], "").separator(), separator)


class Fronts(unittest.TestCase):
    def test_seed_is_drawn_where_none_is_given(self):
        drawn = {front.seeded("/v1/completions", b'{"prompt": "x"}')[0] for _ in range(4)}
        self.assertGreater(len(drawn), 1)
        self.assertIn("seed", json.loads(drawn.pop()))
        for path, body in (("/v1/completions", b'{"seed": -1}'), ("/v1/messages", b'{"seed": 0}'), ("/", b"[1]"),
                           ("/", b"no JSON"), ("/api/chat", b'{"options": {"seed": 3}}'), ("/api/chat", b'{"options": 3}')):
            self.assertEqual(front.seeded(path, body)[0], body)
        for body in (b'{"model": "m"}', b'{"options": {"seed": -1}}'):
            self.assertGreaterEqual(json.loads(front.seeded("/api/chat", body)[0])["options"]["seed"], 0)

    def test_pages_of_other_origins_are_refused(self):
        for headers, allowed in (
            ({"host": "127.0.0.1:8000"}, True), ({"host": "localhost"}, True), ({"host": "[::1]:8000"}, True),
            ({"host": "reel.example"}, True), ({"host": "evil.example"}, False), ({}, False),
            ({"host": "localhost:8000", "origin": "http://localhost:8000"}, True),
            ({"host": "localhost:8000", "origin": "http://evil.example"}, False),
            ({"host": "localhost:8000", "origin": "null"}, False),
            ({"host": "localhost:8000", "sec-fetch-site": "cross-site"}, False),
            ({"host": "localhost:8000", "sec-fetch-site": "none"}, True),
        ):
            self.assertEqual(front.foreign(headers, ["reel.example"]) == "", allowed, headers)

    def test_marks_follow_the_prompt_and_the_user(self):
        one, longer = router.marks("user", "x" * 1000), router.marks("user", "x" * 1000 + "y" * 1000)
        self.assertEqual(one, longer[:len(one)])
        self.assertFalse(set(one) & set(router.marks("other", "x" * 1000)))
        self.assertFalse(set(router.marks("user", "z" + "x" * 999)) & set(one))
        self.assertEqual(len(router.marks("user", "x" * 10 ** 6)), router.CHUNKS)


Id = collections.namedtuple("Id", "unique_id")


def replica(name):
    return types.SimpleNamespace(replica_id=Id(name), replica_metadata={"identity": "same"})


class Settings(unittest.TestCase):
    def test_serve_yaml_is_what_ray_reads(self):
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "serve.yaml"), encoding="utf-8") as file:
            config = ServeDeploySchema(**yaml.safe_load(file))
        app.Options(**config.applications[0].args)
        self.assertEqual(config.http_options.host, "127.0.0.1")

    def test_replicas_follow_the_queue(self):
        def wanted(queued, total, now):
            return app.by_queue(types.SimpleNamespace(
                aggregated_metrics={"queued": {"a": queued}}, total_queued_requests=0, total_num_requests=total,
                current_num_replicas=now, config=types.SimpleNamespace(get_target_ongoing_requests=lambda: 64)))[0]
        self.assertEqual([wanted(0, 100, 2), wanted(1, 130, 2), wanted(129, 300, 2), wanted(0, 10, 2), wanted(0, 0, 1)],
                         [2, 3, 5, 1, 1])


class Routers(unittest.TestCase):
    def setUp(self):
        self.replicas = {name: replica(name) for name in "abc"}
        self.reported = {}
        self.router = router.PrefixRouter.__new__(router.PrefixRouter)  # without Ray
        self.router._replicas = {r.replica_id: r for r in self.replicas.values()}
        self.router._replica_queue_len_cache = types.SimpleNamespace(get=lambda id: self.reported.get(id.unique_id))
        self.router.initialize_state()

    def choose(self, prompt, identity=""):
        call = front.Call("POST", "/", [], b"", router.marks("", prompt), identity)
        pending = types.SimpleNamespace(args=[call])
        ranks = asyncio.run(self.router.choose_replicas(list(self.replicas.values()), pending))
        chosen = next(r for rank in ranks for r in rank)
        self.router.on_request_routed(pending, chosen.replica_id, None)
        return chosen.replica_id.unique_id

    def test_a_conversation_stays(self):
        first = self.choose("x" * 300)
        others = {self.choose(letter * 300) for letter in "pqr"}
        self.assertGreater(len(others), 1)  # the least busy ones
        self.assertEqual(self.choose("x" * 300 + "y" * 300), first)

    def test_a_busy_holder_loses_to_the_least_busy(self):
        first = self.choose("x" * 300)
        self.router.running[Id(first)] = 3
        self.assertNotEqual(self.choose("x" * 300), first)

    def test_a_long_beginning_is_worth_waiting_for(self):
        first = self.choose("x" * 4000)
        self.router.running[Id(first)] = 3
        self.assertEqual(self.choose("x" * 4000), first)

    def test_what_other_routers_sent_counts(self):
        self.reported = {"a": 5, "b": 0, "c": 7}
        self.assertEqual(self.choose("x" * 300), "b")

    def test_idle_replicas_are_chosen_alike_by_all_routers(self):
        first = self.choose("x" * 300)
        self.setUp()
        self.assertEqual(self.choose("x" * 300), first)

    def test_resumed_requests_go_to_replicas_of_the_same_identity(self):
        self.replicas["b"].replica_metadata = {"identity": "other"}
        self.assertEqual(self.choose("x" * 300, "other"), "b")

    def test_gone_replicas_hold_nothing(self):
        first = self.choose("x" * 300)
        del self.router._replicas[Id(first)], self.replicas[first]
        self.assertNotEqual(self.choose("x" * 300), first)

    def test_memory_is_bounded(self):
        most, router.MOST = router.MOST, 10
        self.addCleanup(setattr, router, "MOST", most)
        for letter in "abcdefgh":
            self.choose(letter * 1000)
        self.assertLessEqual(len(self.router.holders), 10)

    def test_completed_requests_are_counted(self):
        first = self.choose("x")
        self.router.on_request_completed(Id(first), "")
        self.assertEqual(sum(self.router.running.values()), 0)


if __name__ == "__main__":
    unittest.main()
