"""``python -m service``: the `aladin` command, for launchers that start modules (torchrun)."""

from service.cli import main

main()
