"""Whether a supervisor runs for a project: known without importing one."""

from __future__ import annotations

from filelock import FileLock, Timeout

from team.places import Project


def running_pid(project: Project) -> int | None:
    """The pid of the supervisor of ``project``, or None where none runs."""
    if not project.supervisor_lock.exists():
        return None
    try:
        with FileLock(project.supervisor_lock, timeout=0):
            return None
    except Timeout:
        try:
            return int(project.supervisor_pid.read_text())
        except (OSError, ValueError):
            return None
