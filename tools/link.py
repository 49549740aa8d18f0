"""Link this checkout into the environment that runs this file: packages and console scripts.

An editable install without a build back-end: a path file and two two-line scripts. It needs no
network and takes milliseconds.
"""

from __future__ import annotations

import stat
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ("wattpack", "kubectl-wattpack")


def main() -> None:
    """Write the path file and the scripts."""
    site = Path(sysconfig.get_paths()["purelib"])
    (site / "wattpack-checkout.pth").write_text(f"{ROOT}\n", encoding="utf-8")
    for name in SCRIPTS:
        script = Path(sys.executable).parent / name
        script.write_text(
            f"#!{sys.executable}\nimport sys\nfrom wattpack.cli import main\nsys.exit(main())\n",
            encoding="utf-8",
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


if __name__ == "__main__":
    main()
