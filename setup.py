# SPDX-License-Identifier: Apache-2.0
"""The door for tools that still call setup.py. pyproject.toml declares everything, and pip does not read this file.

    python setup.py install | develop | bdist_wheel

calls pip, which builds with the backend that pyproject.toml names: "pip install .", "pip install -e ." or
"pip wheel . -w dist". Further arguments are passed on to pip.
"""

import subprocess
import sys
from pathlib import Path

COMMANDS = {
    "install": ["install", "."],
    "develop": ["install", "-e", "."],
    "bdist_wheel": ["wheel", "--no-deps", "--wheel-dir", "dist", "."],
}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"setup.py: use pip, or one of the commands {', '.join(COMMANDS)}")
    command = [sys.executable, "-m", "pip", *COMMANDS[sys.argv[1]], *sys.argv[2:]]
    sys.exit(subprocess.call(command, cwd=Path(__file__).resolve().parent))
