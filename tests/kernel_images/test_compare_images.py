# compare_images.py: one byte of code that differs is found, and one beside the code is not.
import os
import struct
import subprocess
import sys
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "compare_images.py")


def cubin(code, note=b"note"):
    """An ELF with the sections .text.k and .note."""
    names = b"\0.text.k\0.note\0.names\0"
    places, at = [], 64
    for content in (code, note, names):
        places.append((at, len(content)))
        at += len(content)
    header = b"\x7fELF\x02\x01\x01" + bytes(33) + struct.pack("<Q", at) + bytes(10) + struct.pack("<HHH", 64, 4, 3)
    table = bytes(64)
    for name, (begin, size) in zip((1, 9, 15), places):
        table += struct.pack("<IIQQQQ", name, 1, 0, 0, begin, size).ljust(64, b"\0")
    return header + code + note + names + table


class CompareImages(unittest.TestCase):
    def compared(self, before, after):
        with tempfile.TemporaryDirectory() as folder:
            for side, kernels in (("before", before), ("after", after)):
                os.mkdir(os.path.join(folder, side))
                with open(os.path.join(folder, side, "index.txt"), "w") as index:
                    for i, (key, image) in enumerate(kernels.items()):
                        index.write("%d.cubin %s\n" % (i, key))
                        with open(os.path.join(folder, side, "%d.cubin" % i), "wb") as file:
                            file.write(image)
            done = subprocess.run([sys.executable, SCRIPT, os.path.join(folder, "before"), os.path.join(folder, "after")],
                                  capture_output=True, text=True, env={**os.environ, "CUOBJDUMP": "", "PATH": ""})
            return done.returncode, done.stdout.splitlines()

    def test_equal_code(self):
        same = cubin(b"0123456789abcdef")
        self.assertEqual((0, ["2 kernels identical, 0 not"]), self.compared(
            {"sm_90 a[kN=1]": same, "sm_90 b": same}, {"sm_90 b": same, "sm_90 a[kN=1]": cubin(b"0123456789abcdef", b"x")}))

    def test_one_byte_of_code(self):
        self.assertEqual((1, ["sm_90 a: code", "0 kernels identical, 1 not"]), self.compared(
            {"sm_90 a": cubin(b"0123456789abcdef")}, {"sm_90 a": cubin(b"0123456789abcdeF")}))

    def test_a_kernel_too_few_and_one_too_many(self):
        self.assertEqual((1, ["a: only before", "b: only after", "0 kernels identical, 2 not"]),
                         self.compared({"a": cubin(b"0")}, {"b": cubin(b"0")}))


if __name__ == "__main__":
    unittest.main()
