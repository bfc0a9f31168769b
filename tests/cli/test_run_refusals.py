# What nodewright run refuses before it serves anything: drivers that cannot be used, devices that are not there, kernels
# that do not compile, and options that contradict each other. One message, nothing on standard output, nothing left behind.
import os
import shutil
import subprocess
import tempfile
import unittest

from command import RUN_TIME, SOURCE, USAGE, CommandTest, golden_model, on_device

ODD = golden_model("odd_sizes")  # made for 512 tokens
REQUEST = b'{"prompt_ids": [1, 2], "max_tokens": 2}\n'


class Drivers(CommandTest):
    """With a libcuda.so.1 that says what the environment tells it to."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        source = os.path.join(SOURCE, "tests", "support", "fake_libcuda.cc")
        macros = ["-D%s=setting(\"FAKE_%s\")" % (name, name) for name in ("VERSION", "RESULT", "INIT", "DEVICES")]
        subprocess.run([os.environ.get("NODEWRIGHT_CXX", "g++"), "-shared", "-fPIC", "-w", *macros,
                        '-DLACKS=word("FAKE_LACKS")', "-o", os.path.join(cls.folder, "libcuda.so.1"), source], check=True)
        cls.broken = os.path.join(cls.folder, "broken")
        os.mkdir(cls.broken)
        open(os.path.join(cls.broken, "libcuda.so.1"), "w").close()

    def refused(self, exit_code, named, device, folder=None, **said):
        environment = {"LD_LIBRARY_PATH": folder or self.folder, "FAKE_VERSION": "13000", **said}
        self.assert_refused(exit_code, named, "run", "--model", ODD, "--device", device, stdin=REQUEST, **environment)

    def test_a_driver_that_cannot_be_used_is_one_error(self):
        for device in ("cuda", "auto", "cuda:0"):
            self.refused(RUN_TIME, ["load the CUDA driver", "libcuda.so.1", "no NVIDIA driver", "--device cpu"], device,
                         folder=self.broken)
        for named, said in ((["stub", "CUDA_ERROR_STUB_LIBRARY (34)", "LD_LIBRARY_PATH"], {"FAKE_RESULT": "34"}),
                            (["CUDA 12.8", "CUDA 13.0 is needed", "update the NVIDIA driver"], {"FAKE_VERSION": "12080"}),
                            (["lacks the entry cuGraphAddNode", "CUDA 13.0"], {"FAKE_LACKS": "cuGraphAddNode"}),
                            (["cuInit", "CUDA_ERROR_NO_DEVICE (100)", "nvidia-smi", "--device cpu"], {"FAKE_INIT": "100"}),
                            (["has 0 devices", "--device cpu"], {"FAKE_DEVICES": "0"})):
            self.refused(RUN_TIME, named, "cuda", **said)

    def test_a_device_that_is_not_there_is_named_with_those_that_are(self):
        self.refused(USAGE, ["cuda:7", "has 2 devices", "one of cuda:0 to cuda:1"], "cuda:7", FAKE_DEVICES="2")
        self.refused(USAGE, ["cuda:1", "has 1 device,", "CUDA_VISIBLE_DEVICES is '3'", "use cuda:0"], "cuda:1",
                     FAKE_DEVICES="1", CUDA_VISIBLE_DEVICES="3")
        self.refused(RUN_TIME, ["CUDA_ERROR_NO_DEVICE", "CUDA_VISIBLE_DEVICES is ''"], "cuda", FAKE_INIT="100",
                     CUDA_VISIBLE_DEVICES="")


class Kernels(CommandTest):
    def test_a_kernel_that_does_not_compile_is_one_error_with_the_compilers_log(self):
        with tempfile.TemporaryDirectory() as folder:
            compiler = os.path.join(folder, "compiler")
            with open(compiler, "w") as file:
                file.write("#!/bin/sh\ncase \" $* \" in *' --version '*) echo none 1.0; exit 0;; *' -E '*) exit 0;; esac\n"
                           "echo 'a log of its own' >&2\nexit 1\n")
            os.chmod(compiler, 0o755)
            cache = os.path.join(folder, "cache")
            self.assert_refused(RUN_TIME, ["compile a kernel", "a log of its own", compiler, " as "], "run", "--model", ODD,
                                "--device", "cpu", stdin=REQUEST, NODEWRIGHT_CXX=compiler, NODEWRIGHT_CACHE=cache)
            self.assertEqual([], os.listdir(cache))


class Pairs(CommandTest):
    def test_options_that_contradict_each_other_are_both_named_with_a_way_out(self):
        for named, words in (
                (["--max-context and --model", "513", "made for 512", "--max-context 512"], "--max-context 513"),
                (["--pages and --max-context", "2 pages hold 128", "200", "--pages 4", "--max-context 128"],
                 "--pages 2 --max-context 200"),
                (["--buckets and --max-batch", "has 2 rows", "--max-batch is 3", "bucket of 3", "--max-batch 2", "--allow-eager"],
                 "--buckets 1,2 --max-batch 3"),
                (["--buckets and --step-tokens", "has 8 rows", "--step-tokens is 9", "bucket of 9", "--step-tokens 8"], "--buckets 8,4 --chunk 9"),
                (["--buckets, --max-batch and --step-tokens", "more than 8 rows", "of 32 is never", "no bucket of 32"],
                 "--buckets 8,16,32 --chunk 4"),
                (["--buckets", "'exact' stands for every size", "sizes alone"], "--buckets exact,4"),
                (["--speculate and --buckets", "2 to 4", "bucket of 4", "--speculate 0"],
                 "--speculate 3 --buckets 1,8 --max-batch 1"),
                (["--speculate and --buckets", "bucket of 2"], "--speculate 1 --buckets 1 --max-batch 1"),
                (["--greedy and --temperature"], "--greedy --temperature 0.5"),
                (["--prefill and --mode", "graphs", "--prefill eager", "--mode explicit"], "--prefill piecewise --mode eager"),
                (["--products-from and --numerics", "--products-from 0", "--numerics fast"],
                 "--products-from 16 --numerics invariant"),
                (["--overlap and --tp", "one device", "--overlap 1"], "--overlap 2"),
                (["--overlap and --tp", "one device", "--tp 2"], "--overlap 2 --tp 1"),
                (["--overlap and --pp", "stages", "--tp"], "--overlap 2 --pp 2"),
                (["--overlap and --collectives", "packets"], "--overlap 2 --tp 2 --collectives nccl"),
                (["--overlap and --numerics", "library", "--overlap 1"], "--overlap 2 --tp 2 --numerics invariant"),
                (["--overlap and --products-from", "library"], "--overlap 2 --tp 2 --products-from 0"),
        ):
            # The device is a name that would be refused, too: nothing is opened or read before.
            self.assert_refused(USAGE, named, "run", "--model", ODD, "--device", "no device", *words.split(), stdin=b"{")

    def test_what_needs_the_device_is_refused_behind_it(self):
        words = on_device("run", ODD)
        self.assert_refused(USAGE, ["--memory-limit and --device", "9000000000000000", "a share such as 0.9"], *words,
                            "--memory-limit", "9000000000000000", stdin=REQUEST)
        self.assert_refused(USAGE, ["memory limit of 1600000", "max context"], *words, "--memory-limit", "1600000",
                            "--buckets", "8", "--max-context", "128", stdin=REQUEST)

        for words, named in (("cpu", "one device exchanges nothing"), ("cpu:devices=2 --tp 2", "GPUs alone"),
                             ("cpu:devices=2 --pp 2", "stages")):
            self.assert_refused(USAGE, ["--collectives nccl", named], "run", "--model", ODD, "--collectives", "nccl",
                                "--device", *words.split(), stdin=REQUEST)

    def test_options_that_look_like_it_and_do_not_are_let_through(self):
        for words in ("--max-context 512 --pages 8", "--buckets 2 --max-batch 3 --allow-eager", "--buckets 64 --chunk 8",
                      "--buckets 1,8 --max-batch 1 --chunk 8", "--speculate 3 --buckets 1,4 --max-batch 1",
                      "--speculate 3 --buckets 8 --max-batch 1", "--speculate 3 --buckets 1,2 --max-batch 2",
                      "--prefill eager --mode eager", "--products-from 0 --numerics invariant", "--numerics invariant",
                      "--overlap 2 --tp 2", "--overlap 1 --numerics invariant"):
            # Refused for its device alone.
            self.assert_refused(USAGE, ["no device"], "run", "--model", ODD, "--device", "no device", *words.split(), stdin=REQUEST)


if __name__ == "__main__":
    unittest.main()
