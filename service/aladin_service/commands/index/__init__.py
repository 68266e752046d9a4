"""``aladin index``: everything that is done to an index."""

from __future__ import annotations

import typer

from aladin_service.commands.index import (
    build,
    info,
    plan,
    push,
    tune,
)
from aladin_service.commands.index import (
    changes as add,
)
from aladin_service.commands.index import (
    changes as compact,
)
from aladin_service.commands.index import (
    changes as delete,
)
from aladin_service.commands.index import (
    changes as rollback,
)
from aladin_service.commands.index import (
    exchange as export,
)
from aladin_service.commands.index import (
    exchange as import_,
)
from aladin_service.commands.index import (
    exchange as merge,
)
from aladin_service.commands.index import (
    info as verify,
)

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Build, look at, change and check an index."
)
app.command("plan")(plan.plan)
app.command("build")(build.build)
app.command("merge")(merge.merge)
app.command("import")(import_.import_)
app.command("export")(export.export)
app.command("push")(push.push)
app.command("info")(info.info)
app.command("verify")(verify.verify)
app.command("tune")(tune.tune)
app.command("add")(add.add)
app.command("delete")(delete.delete)
app.command("compact")(compact.compact)
app.command("rollback")(rollback.rollback)
