#!/usr/bin/env python3
"""A step that PyTorch captures, as a plan: nodes, edges, possible uses and times. Needs torch >= 2.8 and a GPU.

    python3 examples/torch/read_torch.py build/examples/libread_torch.so captured.json [uses.txt]
    nodewright graph --read captured.json --format html --out captured.html
"""
import ctypes
import re
import sys
import tempfile

import torch


def step(model, x):
    for _ in range(3):  # what a library loads or allocates at first must not be captured
        model(x)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.no_grad(), torch.cuda.graph(graph):
        model(x)
    return graph


def drawn(raw):
    """How many nodes and edges cuGraphDebugDotPrint draws."""
    with tempfile.NamedTemporaryFile("r", suffix=".dot") as file:
        if ctypes.CDLL("libcuda.so.1").cuGraphDebugDotPrint(ctypes.c_void_p(raw), file.name.encode(), 0) != 0:
            sys.exit("read_torch.py: cuGraphDebugDotPrint failed")
        lines = file.read().splitlines()
    edges = sum('" -> "' in line for line in lines)
    return sum(bool(re.match(r'\s*"graph_\d+_node_\d+"\[', line)) for line in lines), edges


def main():
    library, json = ctypes.CDLL(sys.argv[1]), sys.argv[2]
    uses = sys.argv[3].encode() if len(sys.argv) > 3 else None
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda().half().eval()
    with torch.no_grad():
        graph = step(model, torch.randn(8, 512, 1024, device="cuda", dtype=torch.half))
    raw = graph.raw_cuda_graph()
    edges = ctypes.c_int()
    nodes = library.nodewright_read_graph(0, ctypes.c_void_p(raw), uses, json.encode(), ctypes.byref(edges))
    expected = drawn(raw)
    print(f"{nodes} nodes and {edges.value} edges read, {expected[0]} and {expected[1]} drawn by the driver")
    sys.exit((nodes, edges.value) != expected)


if __name__ == "__main__":
    main()
