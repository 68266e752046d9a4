"""``python -m aladin_service``: the `aladin` command for module launchers such as torchrun."""

from aladin_service.cli import main

if __name__ == "__main__":  # a process that this one starts imports it by another name
    main()
