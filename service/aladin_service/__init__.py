"""The two front doors: the ``aladin`` command line and the HTTP service."""
