#!/usr/bin/env python3
# Writes a header that lists the kernels of kernels_src with their argument structs, as their sources name them.
#   list_kernels.py ROOT OUTPUT
import os
import re
import sys

KERNEL = re.compile(r"^NODEWRIGHT_KERNEL(?:_OF)?\((\w+), (\w+),", re.MULTILINE)
STRUCT = re.compile(r"^(?:struct (?:alignas\(\d+\) )?|using )(\w+)(?: =|[^;\n]*\{)", re.MULTILINE)
HEADER = """// Made by tests/kernels/list_kernels.py.
#pragma once

#include <span>
#include <string_view>

%(includes)s
namespace nodewright::test {

// Calls f.template operator()<Args>(kernel, name of Args) for every kernel.
template <class F>
void for_each_kernel(F f) {
%(calls)s}

// The headers that declare the argument structs.
inline constexpr std::string_view kArgumentHeaders[] = {
%(headers)s};

}  // namespace nodewright::test
"""


def main(root, output):
    kernels, headers = [], {}
    for where, _, names in sorted(os.walk(os.path.join(root, "kernels_src"))):
        for name in sorted(names):
            path = os.path.join(where, name)
            if name.endswith(".cu"):
                found = KERNEL.findall(read(path))
                if [kernel for kernel, _ in found] != [name[:-len(".cu")]]:
                    sys.exit("%s does not define one kernel of its own name" % path)
                kernels += found
            elif name.endswith(".h"):
                headers.update({struct: os.path.relpath(path, root) for struct in STRUCT.findall(read(path))})
    unknown = sorted({args for _, args in kernels if args not in headers})
    if unknown:
        sys.exit("no header of kernels_src declares %s" % ", ".join(unknown))
    included = sorted({headers[args] for _, args in kernels})
    text = HEADER % {
        "includes": "".join('#include "%s"\n' % path for path in included),
        "calls": "".join('  f.template operator()<%s>("%s", "%s");\n' % (args, kernel, args)
                         for kernel, args in sorted(kernels)),
        "headers": "".join('    "%s",\n' % path for path in included)}
    os.makedirs(os.path.dirname(output), exist_ok=True)
    with open(output, "w", encoding="utf-8") as file:
        file.write(text)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


main(*sys.argv[1:])
