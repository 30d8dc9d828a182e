"""The build backend of the Python package: maturin, after the preload library.

maturin packs the `tradewind` command. The preload library is a second file of cargo's, which the
command finds in the `lib` beside its `bin`; a wheel places its data there.
"""

import json
import os
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
DATA = Path("target/wheel/tradewind.data/data/lib")


def build_preload_library(profile):
    """Builds the preload library and copies it to where maturin packs it from."""
    command = ["cargo", "build", "--package", "tradewind-mpi", "--profile", profile]
    built = subprocess.run(
        [*command, "--message-format", "json-render-diagnostics"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    for line in built.stdout.splitlines():
        message = json.loads(line)
        target = message.get("target", {})
        if message["reason"] == "compiler-artifact" and target["name"] == "tradewind_mpi":
            library = next(name for name in message["filenames"] if name.endswith(".so"))
    DATA.mkdir(parents=True, exist_ok=True)
    shutil.copy(library, DATA)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Writes the metadata. maturin demands the directory of data even for that."""
    DATA.mkdir(parents=True, exist_ok=True)
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds the wheel. Its tag names the oldest glibc that it runs with."""
    profile = os.environ.get("WHEEL_PROFILE", "release")
    build_preload_library(profile)
    # With "pypi" the tag names the glibc that the command needs; without it, as pip calls maturin,
    # the tag is "linux", which names none.
    arguments = f"--profile {profile} --compatibility pypi"
    os.environ.setdefault("MATURIN_PEP517_ARGS", arguments)
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)
