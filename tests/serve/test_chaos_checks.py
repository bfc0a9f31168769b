# What chaos.py and its clients must not let pass: planted faults of answers and of an access log.
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from chaos import Asked, check_log, read_to_the_end  # noqa: E402
from chaos_clients import Unexpected, check, check_stream, check_whole  # noqa: E402

LINE = "2026-01-01T00:00:00Z 127.0.0.1:1 POST /v1/completions %d 1.0 ms%s id %s"
CALL = " prompt 3 cached 0 completion 5"


def chunk(index, reason="null"):
    return b'data: {"choices":[{"index":%d,"finish_reason":%s}]}\n\n' % (index, reason.encode())


GOOD = chunk(0) + chunk(1, '"stop"') + chunk(0, '"length"') + b"data: [DONE]\n\n"


class Log:
    def __init__(self, *lines):
        self.lines = lambda: list(lines)


class Answered:
    def __init__(self, status, body):
        self.answer = lambda: (status, body)


class PlantedFaults(unittest.TestCase):
    def test_streams(self):
        check_stream(GOOD, 2)
        for bad in (GOOD[:-14], GOOD + b"data: [DONE]\n\n", GOOD + b"x", GOOD.replace(b'"length"', b"null"),
                    chunk(0, '"stop"') + GOOD, b'data: {"error":{"message":"m"}}\n\n' + GOOD, GOOD[6:]):
            with self.assertRaises(Unexpected, msg=bad):
                check_stream(bad, 2)
        with self.assertRaises(Unexpected):
            check_stream(GOOD, 3)

    def test_bodies(self):
        body = b'{"choices":[{"finish_reason":"stop"}]}'
        check_whole(body, 1)
        for bad, outputs in ((body, 2), (body.replace(b'"stop"', b'"abort"'), 1)):
            with self.assertRaises(Unexpected):
                check_whole(bad, outputs)
        with self.assertRaises(Unexpected):
            check(500, body, {"stream": False}, 1)

    def test_ends_under_load(self):
        error = b'data: {"error":{"message":"m"}}\n\n'
        self.assertEqual("whole", read_to_the_end(Answered(200, GOOD)))
        self.assertEqual("error", read_to_the_end(Answered(200, error + b"data: [DONE]\n\n")))
        self.assertEqual("error", read_to_the_end(Answered(503, b'{"error":{"message":"m"}}')))
        for body in (error, error + error + b"data: [DONE]\n\n", chunk(0)):
            with self.assertRaises(Unexpected):
                read_to_the_end(Answered(200, body))

    def test_logs(self):
        asked = Asked()
        asked.note("whole", "c1", 2, 200)
        asked.note("gone", "c2", 1, None)
        good = [LINE % (200, CALL, "c1"), LINE % (499, CALL, "c2")]
        self.assertEqual(3, check_log(Log(*good), asked, 3))
        for lines, ended in ((good, 2), (good, 4), (good[1:], 1), (good + good[:1], 5), (good + good[1:], 4),
                             ([LINE % (500, CALL, "c1"), good[1]], 3), ([good[0], LINE % (500, CALL, "c2")], 3)):
            with self.assertRaises(Unexpected, msg=(lines, ended)):
                check_log(Log(*lines), asked, ended)


if __name__ == "__main__":
    unittest.main()
