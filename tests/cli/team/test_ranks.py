# `serve --rank` as a black box, two processes on the CPU driver: what they answer is what `--tp 2` in one process answers,
# an end of either is seen by the other at once, and what does not fit is refused by name. The protocol:
# tests/engine/ranks. Standard library only.
import os
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import command
from command import DEMO, PROGRAM, USAGE, CommandTest
from serving import END_S, Server

CALLS = [
    {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 12, "logprobs": 2},
    {"prompt": "There was a dog", "temperature": 0.9, "seed": 5, "max_tokens": 12},
    {"prompt": "The little cat said that it was very glad. " * 12, "temperature": 0.8, "top_p": 0.9, "seed": 7,
     "max_tokens": 8, "presence_penalty": 1.0, "logit_bias": {"5": 3}},
]
WORDS = ("--tp", "2", "--max-batch", "4", "--max-context", "512", "--step-tokens", "32")


def setUpModule():
    unittest.addModuleCleanup(setattr, command, "DEVICE", command.DEVICE)
    command.DEVICE = "cpu"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Follower:
    """A rank that serves no HTTP. Use with `with`: it is killed at the end."""

    def __init__(self, *words, model=DEMO):
        self.folder = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen([PROGRAM, "serve", "--model", model, "--device", "cpu", *words],
                                        cwd=self.folder.name, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
        self.folder.cleanup()

    def end(self):
        """Its exit code and what it has said, less what a first start says of kernels."""
        error = self.process.communicate(timeout=END_S)[1]
        return self.process.returncode, command.without_first_start(error).decode()


class Group:
    """Rank 0 as a server, and rank 1."""

    def __init__(self, *words):
        place = "127.0.0.1:%d" % free_port()
        words = (*WORDS, *words, "--rendezvous", place)
        self.place = place
        self.follower = Follower(*words, "--rank", "1")
        try:
            self.server = Server(*words, "--rank", "0")
        except BaseException:
            self.follower.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.__exit__()
        self.follower.__exit__()


def answers(server):
    with ThreadPoolExecutor(len(CALLS)) as clients:
        done = list(clients.map(lambda call: server.completions(**call), CALLS))
    assert all(answer.status == 200 for answer in done), [answer.body for answer in done]
    return [answer.json["choices"][0] for answer in done]


class Ranks(unittest.TestCase):
    def test_answers_are_those_of_one_process_and_both_end_together(self):
        command.DEVICE = "cpu:devices=2"
        try:
            with Server(*WORDS, "--numerics", "invariant") as one:
                expected = answers(one)
        finally:
            command.DEVICE = "cpu"
        with Group("--numerics", "invariant") as group:
            self.assertEqual(expected, answers(group.server))
            self.assertTrue(group.server.get("/live").json["model"]["device"].startswith("2 x "))
            self.assertEqual(400, group.server.completions(prompt="Once", prompt_logprobs=1, max_tokens=1).status)
            self.assertIn("nodewright: waits for 1 other rank at " + group.place, group.server.lines)
            self.assertEqual(0, group.server.stop())
            self.assertEqual((0, "nodewright: rank 1 of 2 follows %s\n" % group.place), group.follower.end())

    def test_a_follower_that_leaves_fails_what_is_open_and_ends_the_server(self):
        with Group() as group:
            connection, response = group.server.begin("/v1/completions", prompt="Once", max_tokens=400, ignore_eos=True,
                                                      temperature=0, stream=True)
            response.readline()
            group.follower.process.send_signal(signal.SIGTERM)
            rest = response.read().decode()
            self.assertRegex(rest, r"rank 1 at 127\.0\.0\.1:\d+: it has left")
            self.assertEqual(1, rest.count("has left"))
            response.close()
            connection.close()
            self.assertEqual(1, group.server.process.wait(END_S))
            group.server.reader.join()
            self.assertRegex(group.server.lines[-2], r"\Anodewright: .*rank 1 at 127\.0\.0\.1:\d+: it has left")

    def test_a_follower_that_leaves_an_idle_server_ends_it(self):
        with Group() as group:
            group.follower.process.kill()
            self.assertEqual(1, group.server.process.wait(END_S))

    def test_a_follower_ends_with_a_line_where_rank_zero_leaves(self):
        with Group() as group:
            group.server.process.kill()
            code, said = group.follower.end()
            self.assertEqual(1, code)
            self.assertRegex(said.splitlines()[-1], r"\Anodewright: .*rank 0 at 127\.0\.0\.1:\d+: it has left")

    def test_options_that_differ_are_named_on_both_sides(self):
        place = "127.0.0.1:%d" % free_port()
        words = ("--tp", "2", "--rendezvous", place)
        with Follower(*words, "--rank", "1", "--numerics", "invariant") as one, \
                Follower(*words, "--rank", "0", "--port", "0") as zero:
            for process in (one, zero):
                code, said = process.end()
                self.assertEqual(USAGE, code, said)
                self.assertRegex(said, r"numerics \(--numerics\): rank 1 at \S+ has invariant, and rank 0 has fast")


class Refusals(CommandTest):
    def test_what_does_not_fit_is_refused_by_name(self):
        place = ("--rendezvous", "127.0.0.1:1")
        rank = ("--rank", "0", *place)
        two = ("--tp", "2", *rank)
        for words, named in [
            (("--tp", "2", "--rank", "0"), "--rank and --rendezvous"),
            (("--tp", "2", *place), "--rendezvous and --rank"),
            (rank, "--rank and --tp"),
            (("--tp", "2", "--rank", "2", *place), "--tp 2 has no rank 2"),
            (("--tp", "2", "--rank", "0", "--rendezvous", "here"), "it is no HOST:PORT"),
            (("--tp", "2", "--rank", "0", "--rendezvous", "::1:5"), "in brackets"),
            (("--tp", "2", "--rank", "0", "--rendezvous", "here:0"), "its port is none"),
            ((*two, "--replicas", "2"), "--rank and --replicas"),
            ((*rank, "--pp", "2"), "--rank and --pp"),
            ((*two, "--mode", "eager"), "--rank and --mode"),
            ((*two, "--prefill", "eager"), "--rank and --prefill"),
            ((*two, "--max-adapters", "2"), "--rank and --max-adapters"),
            ((*two, "--allow-adapter-updates"), "--rank and --allow-adapter-updates"),
            ((*two, "--enable-sleep"), "--rank and --enable-sleep"),
            ((*two, "--plan-times"), "--rank and --plan-times"),
            ((*two, "--device", "cuda:0,1"), "--rank 0 needs 1"),
        ]:
            device = () if "--device" in words else ("--device", "cpu")
            self.assert_refused(USAGE, [named], "serve", "--model", DEMO, *device, *words)

    def test_nobody_is_waited_for_in_vain(self):
        place = "127.0.0.1:%d" % free_port()
        words = ("serve", "--model", DEMO, "--device", "cpu", "--tp", "2", "--rendezvous", place,
                 "--rendezvous-timeout", "1")
        self.assert_refused(1, ["join as rank 1 of 2", place, "Connection refused"], *words, "--rank", "1")


if __name__ == "__main__":
    unittest.main()
