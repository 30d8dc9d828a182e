"""The build backend of the Python package: maturin, after the command and the preload library.

maturin packs the module. The `tradewind` command and the preload library are files of cargo's beside it;
a wheel places its scripts in `bin` and its data in `lib`, where the command looks for the library.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import get_requires_for_build_wheel

__all__ = [
    "build_wheel",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_wheel",
]

# The directory that pyproject.toml names.
DATA = Path("target/wheel/tradewind.data")

# Files beside the module: package of cargo, target, and place in the wheel.
FILES = [
    ("tradewind-mpi", "tradewind_mpi", DATA / "data/lib"),
    ("tradewind-cli", "tradewind", DATA / "scripts"),
]


def build(package, target, place, profile):
    """Builds a target of cargo, copies it to where maturin packs it from, and returns its files there."""
    command = ["cargo", "build", "--package", package, "--profile", profile]
    built = subprocess.run(
        [*command, "--message-format", "json-render-diagnostics"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] != "compiler-artifact" or message["target"]["name"] != target:
            continue
        # The command has an executable, the package a library of its name.
        libraries = [name for name in message["filenames"] if name.endswith(".so")]
        built_files = [message["executable"]] if message["executable"] else libraries
        if not built_files:
            # The library of this name, which the command uses.
            continue
        place.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy(file, place)) for file in built_files]
    raise RuntimeError(f"cargo has built no {target} of {package}")


def oldest_glibc(files):
    """The minor version of glibc 2 that these files need, by the names of their symbols' versions, or the
    next one that has a tag."""
    found = [re.findall(rb"GLIBC_2\.(\d+)", file.read_bytes()) for file in files]
    newest = max(int(minor) for versions in found for minor in versions)
    tagged = [17, 24, 26, 27, 28, 31, *range(34, 100)]
    return next(minor for minor in tagged if minor >= newest)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Writes the metadata. maturin demands the directory of data even for that."""
    DATA.mkdir(parents=True, exist_ok=True)
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds the wheel. Its tag names the oldest glibc that it runs with."""
    profile = os.environ.get("WHEEL_PROFILE", "release")
    files = [file for what in FILES for file in build(*what, profile)]
    # The tag names the glibc that all files need; maturin, which knows the module alone, checks that it
    # needs no later one.
    arguments = f"--profile {profile} --compatibility manylinux_2_{oldest_glibc(files)}"
    os.environ.setdefault("MATURIN_PEP517_ARGS", arguments)
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)
