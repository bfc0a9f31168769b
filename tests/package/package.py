"""What the tests of the package share: it installs the build that NODEWRIGHT_BINARY_DIR names, and builds projects."""
import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["NODEWRIGHT_BINARY_DIR"])


def run(*words, **options):
    done = subprocess.run([str(w) for w in words], text=True, capture_output=True, **options)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def install(prefix):
    run("cmake", "--install", BUILD, "--prefix", prefix)
    return prefix


def setting(name):
    """A variable of the build's CMake cache."""
    lines = (BUILD / "CMakeCache.txt").read_text().splitlines()
    return next(line.split("=", 1)[1] for line in lines if line.startswith(name + ":"))


def build(source, folder, **settings):
    """Configures and builds the CMake project in `source`, with the build's CUDA headers; returns the build folder."""
    settings["NODEWRIGHT_CUDA_INCLUDE_DIR"] = setting("NODEWRIGHT_CUDA_INCLUDE_DIR")
    if shutil.which("ccache"):
        settings["CMAKE_CXX_COMPILER_LAUNCHER"] = "ccache"
    run("cmake", "-S", source, "-B", folder, *[f"-D{name}={value}" for name, value in settings.items()])
    # The folder has another name in every run: ccache is to see paths from it.
    run("cmake", "--build", folder, "-j2", env={**os.environ, "CCACHE_BASEDIR": str(pathlib.Path(folder).parent)})
    return folder


def without_cpu_driver():
    """An environment in which a program has to find the CPU driver by itself."""
    return {name: value for name, value in os.environ.items() if name != "NODEWRIGHT_CPU_DRIVER"}
