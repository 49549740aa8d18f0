"""``wattpack actuator`` with boards in a file: what the process tests start.

Usage: actuator_program.py BOARDS_FILE --config FILE …
"""

from __future__ import annotations

import sys
from pathlib import Path

from actuator.app.actuator_command import main
from tests.actuator.actuator_boards import Boards, FileBoard, read_boards

if __name__ == "__main__":
    boards_file = Path(sys.argv[1])
    uuids = sorted(read_boards(boards_file))
    sys.exit(
        main(
            sys.argv[2:],
            open_driver=lambda _: Boards(
                *(FileBoard(boards_file, uuid, i) for i, uuid in enumerate(uuids))
            ),
            program=(sys.executable, __file__, str(boards_file)),
        )
    )
