"""The form of the log of commands that run as services do."""

from __future__ import annotations

from service.telemetry.logs import LogFormat, log_setup, log_to_stderr


def set_log_format(chosen: LogFormat | None = None) -> None:
    """Write the log from here on as its readers want it.

    Args:
        chosen: on the command line; None: as ALADIN_LOG_FORMAT says.

    Raises:
        ConfigError: a variable ALADIN_... is impossible.
    """
    from service.settings import read_settings

    format = read_settings().log_format if chosen is None else chosen
    log_to_stderr(log_setup()._replace(format=format))
