"""One program, run to its end or to its time bound, whichever comes first."""

import json
import os
import signal
import subprocess
from pathlib import Path

# Settings of the caller's shell must not reach one side of the comparison only.
KEPT_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "SHELL", "XDG_RUNTIME_DIR")


class Failed(Exception):
    """The program did not give its figures; the message says how it ended."""


def descendants(pid):
    """The processes that came from this one, by their parents: launchers put ranks into sessions of their own."""
    children = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, open_ends = [], [pid]
    while open_ends:
        below = children.get(open_ends.pop(), [])
        found += below
        open_ends += below
    return found


def end(process):
    """Ends a program that ran too long, and whatever it started."""
    started = descendants(process.pid)
    process.terminate()
    try:
        process.communicate(timeout=3)
    except subprocess.TimeoutExpired:
        process.kill()
    for pid in started:
        try:
            # A number may have been given away again since: it is ours only if it still runs under our build or environment.
            if is_ours(pid):
                os.kill(pid, signal.SIGKILL)
        except OSError:
            continue
    # Not for the end of its output: a rank of another node may hold the pipe.
    process.wait()


def is_ours(pid):
    """Whether a process runs one of the benchmark's executables, or an interpreter from its folders."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return False
    return any(part in command for part in ("/.peers/", "/release/loops", "/release/tradewind", "/release/examples/"))


def run(command, variables, limit_s):
    """The JSON lines a program prints. Raises Failed for a time-out, a bad exit and for no output."""
    lines = [json.loads(line) for line in output(command, variables, limit_s).splitlines() if line.startswith("{")]
    if not lines:
        raise Failed("printed no figures")
    return lines


def output(command, variables, limit_s):
    """What a program prints. Raises Failed for a time-out and a bad exit."""
    clean = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    try:
        process = subprocess.Popen(
            command, env={**clean, **variables}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace", start_new_session=True,
        )
    except OSError as error:
        raise Failed(f"cannot start {command[0]}: {error.strerror}") from error
    try:
        printed, complaints = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        end(process)
        raise Failed(f"took longer than {limit_s} s and was ended") from None
    except BaseException:
        end(process)
        raise
    if process.returncode != 0:
        words = (complaints.strip() or printed.strip() or "it said nothing").splitlines()
        raise Failed(f"ended with {process.returncode}: " + " / ".join(words[-3:]))
    return printed
