# Whether two folders of kernel_images hold the same machine code: before and after a change of kernels_src.
#   compare_images.py BEFORE AFTER
# Exit code 1 where a kernel's code differs, or one folder lacks it. CUOBJDUMP names NVIDIA's disassembler (default: the
# one of PATH, if any): with it differences are sorted by kind:
#   parameters    the same instructions, which read their arguments at other offsets
#   order         as many of each instruction, in another order or with other registers
#   instructions  others
import collections
import os
import re
import shutil
import struct
import subprocess
import sys

CUOBJDUMP = os.environ.get("CUOBJDUMP") or shutil.which("cuobjdump")
ARGUMENT = re.compile(r"c\[0x0\]\[(?:0x[0-9a-f]+|U?R\d+(?:\+0x[0-9a-f]+)?)\]")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;")


def machine_code(path):
    """The sections .text.* of a 64-bit ELF, by name."""
    with open(path, "rb") as file:
        image = file.read()
    if image[:5] != b"\x7fELF\x02":
        sys.exit("%s is no 64-bit ELF" % path)
    table, = struct.unpack_from("<Q", image, 0x28)
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", image, table + i * size) for i in range(count)]
    name_bytes = sections[names][4]

    def name_of(section):
        begin = name_bytes + section[0]
        return image[begin:image.index(b"\0", begin)].decode()

    return {name_of(s): image[s[4]:s[4] + s[5]] for s in sections if name_of(s).startswith(".text.")}


def instructions(path):
    text = subprocess.run([CUOBJDUMP, "-sass", path], check=True, capture_output=True, text=True).stdout
    return INSTRUCTION.findall(text)


def kind_of(instruction):
    words = instruction.split()
    return words[1] if words[0].startswith("@") else words[0]


def difference(before, after):
    if not CUOBJDUMP:
        return "code"
    one, other = instructions(before), instructions(after)
    if [ARGUMENT.sub("argument", i) for i in one] == [ARGUMENT.sub("argument", i) for i in other]:
        return "parameters"
    kinds, others = collections.Counter(map(kind_of, one)), collections.Counter(map(kind_of, other))
    if kinds == others:
        return "order"
    changed = ["%s %+d" % (kind, others[kind] - kinds[kind]) for kind in sorted(kinds | others)
               if others[kind] != kinds[kind]]
    return "instructions: " + ", ".join(changed)


def index_of(folder):
    with open(os.path.join(folder, "index.txt")) as file:
        return {key: os.path.join(folder, name) for name, key in (line.rstrip("\n").split(" ", 1) for line in file)}


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: compare_images.py BEFORE AFTER")
    before, after = map(index_of, sys.argv[1:])
    same, told = 0, []
    for key in sorted(before | after):
        if key not in after or key not in before:
            told.append("%s: only %s" % (key, "before" if key in before else "after"))
        elif machine_code(before[key]) == machine_code(after[key]):
            same += 1
        else:
            told.append("%s: %s" % (key, difference(before[key], after[key])))
    print("\n".join([*told, "%d kernels identical, %d not" % (same, len(told))]))
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
