"""``python -m aladin_service``: the `aladin` command for module launchers such as torchrun."""

from aladin_service.cli import main

main()
