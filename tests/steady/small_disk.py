"""A disk of a few megabytes that can be filled, emptied and mounted read-only.

    with SmallDisk(folder, megabytes=4) as disk:
        server = run.server("state", prefix=disk.prefix)  # sees the disk at `folder`
        disk.fill()
        disk.path("state/x")                # the same from here

It is mounted in a mount namespace of a process of its own, which needs root or user namespaces;
where neither is permitted, making one fails by name.
"""

from __future__ import annotations

import os
import pathlib
import subprocess


class SmallDisk:
    """A tmpfs at `folder`, seen by what `prefix` runs. It goes with the block."""

    def __init__(self, folder: pathlib.Path, megabytes: int) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        root = os.geteuid() == 0
        own = ["unshare", "--mount", *([] if root else ["--user", "--map-root-user"])]
        script = (f'mount -t tmpfs -o size={megabytes}m athanor-test "{folder}" '
                  "&& echo mounted && exec cat")
        self._holder = subprocess.Popen([*own, "sh", "-c", script], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said = self._holder.stdout.readline()
        if said != "mounted\n":
            _, error = self._holder.communicate()
            raise AssertionError(f"a small disk needs the right to mount a tmpfs (root, or user "
                                 f"namespaces): {error.strip()}")
        enter = ["nsenter", f"--target={self._holder.pid}", "--mount"]
        self.prefix = (*enter, *([] if root else ["--user", "--preserve-credentials"]))

    def __enter__(self) -> SmallDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.stdin.close()
        self._holder.wait(60)
        self._holder.stdout.close()
        self._holder.stderr.close()

    def path(self, inside: str) -> pathlib.Path:
        """A file of the disk, as this process can reach it."""
        return pathlib.Path(f"/proc/{self._holder.pid}/root{self.folder}") / inside

    def fill(self) -> None:
        """Until not a byte more fits."""
        with self.path("ballast").open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue

    def empty(self) -> None:
        """Deletes what `fill` wrote."""
        self.path("ballast").unlink(missing_ok=True)

    def mount(self, how: str) -> None:
        """Mounts it anew: "ro" or "rw". REQUIRES: nobody writes to it."""
        done = subprocess.run([*self.prefix, "mount", "-o", f"remount,{how}", self.folder],
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
