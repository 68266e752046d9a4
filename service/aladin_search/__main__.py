"""Run the `aladin` command as ``python -m aladin_search``."""

from aladin_service.cli import main

if __name__ == "__main__":
    main()
