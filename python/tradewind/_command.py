"""The `tradewind` command that was installed with this package."""

import os
import sysconfig


def command():
    """Returns the path in TRADEWIND_COMMAND, or else that of the command installed with this package.

    Raises `FileNotFoundError` if it is in none of the directories of scripts.
    """
    if named := os.environ.get("TRADEWIND_COMMAND"):
        return named
    schemes = [sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")]
    directories = [sysconfig.get_path("scripts", scheme) for scheme in schemes]
    # `pip install --target DIRECTORY` places scripts in its `bin`.
    directories.append(os.path.join(os.path.dirname(os.path.dirname(__file__)), "bin"))
    for directory in directories:
        path = os.path.join(directory, "tradewind")
        if os.path.isfile(path):
            return path
    raise FileNotFoundError("there is no tradewind command in " + ", ".join(directories))
