"""Which machine this is, and which versions ran on it."""

import hashlib
import os
import platform
import re
import subprocess
from datetime import datetime, timezone
from pathlib import Path

from .installation import PACKAGES
from .places import ROOT


def processor():
    """The processor's name as the kernel tells it."""
    try:
        found = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.machine()


def cores():
    """The processors this process may use: what decides whether ranks are crowded."""
    return len(os.sched_getaffinity(0))


def revision():
    """The commit that is measured, with a mark when the files differ from it."""
    try:
        command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def describe(peers):
    """Everything that makes a result comparable with another, or not."""
    machine = {
        "processor": processor(),
        "cores": cores(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "load_before": os.getloadavg()[0],
        "versions": {"tradewind": revision(), **{peer: PACKAGES[peer][1] for peer in peers}},
    }
    identity = "|".join(str(machine[key]) for key in ("processor", "cores", "kernel", "architecture"))
    name = re.sub(r"[^a-z0-9]+", "-", f"{machine['processor']} {machine['cores']} cores".lower()).strip("-")
    machine["fingerprint"] = f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"
    return machine
