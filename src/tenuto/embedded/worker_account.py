"""The account of a laptop cluster's workers, if they have one of their own, and the preparations for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from tenuto.embedded.files import Layout
from tenuto.embedded.postgres import server_account
from tenuto.embedded.process import ServerError
from tenuto.kernel.account import NoAccount, check_account, find_account


def separate_workers(layout: Layout, worker_user: str) -> None:
    """Closes the cluster's files to the account of the workers, if there is one. Raises ServerError, OSError."""
    layout.close_to_others(worker_user=bool(worker_user))
    if worker_user:
        try:
            account = find_account(worker_user)
            if account.name == server_account():
                raise NoAccount(f"Workers cannot run as {account.name}: PostgreSQL runs as that here. Name another account.")
            check_account(account, layout.root)
        except NoAccount as error:
            raise ServerError(str(error)) from error


def tell_of_accounts(layout: Layout, worker_user: str, report: Callable[[str], None]) -> None:
    """Tells the user once, when the cluster is up, what it means that workers have no account of their own."""
    if not worker_user and not layout.told_of_accounts.exists():
        report(
            "Training code runs as your own account here: whoever you let submit experiments can read this cluster's tokens and "
            "passwords. `tenuto up --worker-user NAME` (as root) runs it as another account; docs/security.md says more."
        )
        with contextlib.suppress(OSError):  # on a full disk the user is told again next time
            layout.told_of_accounts.touch(mode=0o600)
