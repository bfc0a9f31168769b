# KV events as their readers take them: vLLM's own structs (vllm/distributed/kv_events.py, as arrays), decoded by msgspec,
# over pyzmq. A router's index that is made of the events alone must know what the server's prefix cache finds. In the
# environment of `make check-clients`.
import random
import struct
import unittest
from typing import Any

import msgspec
import zmq
from served_demo import serve

PAGES, PAGE_TOKENS = 12, 64


class EventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    ts: float
    events: list[Any]
    data_parallel_rank: int | None = None


class KVCacheEvent(msgspec.Struct, array_like=True, omit_defaults=True, gc=False, tag=True):
    pass


class BlockStored(KVCacheEvent):
    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None = None


class BlockRemoved(KVCacheEvent):
    block_hashes: list[int | bytes]
    medium: str | None


class AllBlocksCleared(KVCacheEvent):
    pass


class KVEventBatch(EventBatch):
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]


DECODER = msgspec.msgpack.Decoder(type=KVEventBatch)


class Index:
    """Of one pod: prefixes by the engine's hash."""

    def __init__(self):
        self.prefixes, self.next, self.evictions = {}, 0, 0

    def apply(self, sequence, payload):
        assert sequence == self.next, "batch %d, expected %d" % (sequence, self.next)
        self.next += 1
        batch = DECODER.decode(payload)
        assert batch.data_parallel_rank == 0
        for event in batch.events:
            if isinstance(event, BlockStored):
                self.store(event)
            elif isinstance(event, BlockRemoved):
                assert event.medium == "GPU"
                self.evictions += len(event.block_hashes)
                for block in event.block_hashes:
                    del self.prefixes[block]
            else:
                self.prefixes.clear()

    def store(self, event):
        assert (event.block_size, event.medium, event.lora_id, event.lora_name) == (PAGE_TOKENS, "GPU", None, None)
        assert len(event.token_ids) == PAGE_TOKENS * len(event.block_hashes)
        prefix = () if event.parent_block_hash is None else self.prefixes[event.parent_block_hash]
        for i, block in enumerate(event.block_hashes):
            prefix += tuple(event.token_ids[PAGE_TOKENS * i:PAGE_TOKENS * (i + 1)])
            assert block not in self.prefixes
            self.prefixes[block] = prefix

    def cached_tokens(self, prompt):
        """Of the prompt, by whole pages; its last token is always computed."""
        known = set(self.prefixes.values())
        pages = 0
        while tuple(prompt[:PAGE_TOKENS * (pages + 1)]) in known and PAGE_TOKENS * (pages + 1) <= len(prompt):
            pages += 1
        return min(PAGE_TOKENS * pages, len(prompt) - 1)


def setUpModule():
    global server, live, replay
    server = serve("--pages", str(PAGES), "--max-context", "512", "--kv-events-endpoint", "tcp://127.0.0.1:*", "--kv-events-replay-endpoint",
                   "tcp://127.0.0.1:*", "--kv-events-topic", "kv@10.0.0.7:8000@demo")
    told = server.line(r"nodewright: KV events of (\S+) at (\S+), again at (\S+)")
    assert told[1] == "kv@10.0.0.7:8000@demo", told[0]
    context = zmq.Context()
    unittest.addModuleCleanup(context.destroy, linger=0)
    live, replay = context.socket(zmq.SUB), context.socket(zmq.REQ)
    live.connect(told[2])
    live.subscribe("kv@")
    replay.connect(told[3])
    for socket in (live, replay):
        socket.rcvtimeo = 20000


def ask(prompt, max_tokens=1):
    answer = server.completions(prompt=prompt, max_tokens=max_tokens, temperature=0, ignore_eos=True)
    assert answer.status == 200, answer.body
    return answer.json["usage"]["prompt_tokens_details"]["cached_tokens"]


class KvEvents(unittest.TestCase):
    def test_an_index_of_the_events_knows_what_the_cache_finds(self):
        numbers = random.Random(3)
        begun = [[numbers.randrange(5, 400) for _ in range(n)] for n in (64, 128, 130, 200)]
        index, found = Index(), 0

        def catch_up():
            """The server has published what its answer needed before the answer came; batches may be on their way."""
            published = server.gauge("nodewright_kv_event_batches_total")
            while index.next < published:
                topic, sequence, payload = live.recv_multipart()
                self.assertEqual(b"kv@10.0.0.7:8000@demo", topic)
                if struct.unpack(">Q", sequence)[0] >= index.next:
                    index.apply(struct.unpack(">Q", sequence)[0], payload)
        first = [1] + [7] * 70
        ask(first)
        # A subscriber gets the events from then on: the beginning comes by replay.
        self.replay_into(index)
        for _ in range(60):
            prompt = numbers.choice(begun) + [numbers.randrange(5, 400) for _ in range(numbers.randrange(1, 90))]
            catch_up()
            expected = index.cached_tokens(prompt)
            self.assertEqual(expected, ask(prompt, numbers.randrange(1, 20)))
            found += expected
        self.assertGreater(found, 2000)
        self.assertGreater(index.evictions, 20)
        self.assertEqual(0, server.gauge("nodewright_kv_event_batches_dropped_total"))

    def replay_into(self, index):
        """As vLLM's example of a subscriber asks: the first wanted number on a REQ socket, which takes one answer."""
        replay.send((0).to_bytes(8, "big"))
        sequence, payload = replay.recv_multipart()
        index.apply(int.from_bytes(sequence, "big"), payload)

    def test_a_dealer_gets_all_and_the_end(self):
        context = zmq.Context.instance()
        with context.socket(zmq.DEALER) as dealer:
            dealer.rcvtimeo, dealer.linger = 20000, 0
            dealer.connect(replay.last_endpoint.decode())
            index = Index()
            dealer.send_multipart([b"", (0).to_bytes(8, "big")])
            while True:
                empty, sequence, payload = dealer.recv_multipart()
                self.assertEqual(b"", empty)
                if not payload:
                    break
                index.apply(int.from_bytes(sequence, "big"), payload)
            self.assertEqual(-1, int.from_bytes(sequence, "big", signed=True))
            self.assertEqual(server.gauge("nodewright_kv_event_batches_total"), index.next)


if __name__ == "__main__":
    unittest.main()
