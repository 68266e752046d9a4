"""``aladin index``: all commands for an index."""

from __future__ import annotations

from aladin_service.commands.help_style import CommandApp
from aladin_service.commands.index import (
    build,
    changes,
    exchange,
    info,
    push,
    sync,
    tune,
    upgrade,
)
from aladin_service.commands.index.several_sources import SourcesCommand

app = CommandApp(help="Build, inspect, change and check an index.")
app.command("build", cls=SourcesCommand)(build.build)
app.command("merge")(exchange.merge)
app.command("import")(exchange.import_)
app.command("export")(exchange.export)
app.command("push")(push.push)
app.command("info")(info.info)
app.command("verify")(info.verify)
app.command("tune")(tune.tune)
app.command("add", cls=SourcesCommand)(changes.add)
app.command("delete")(changes.delete)
app.command("sync")(sync.sync)
app.command("upgrade")(upgrade.upgrade)
app.command("compact")(changes.compact)
app.command("rollback")(changes.rollback)
