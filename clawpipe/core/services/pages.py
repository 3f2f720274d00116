"""The pages of `clawpipe up`: their addresses, and a file that only the user can read with links that hold the secret."""

from __future__ import annotations

import base64
import html
from dataclasses import dataclass
from pathlib import Path

from clawpipe.core.services.prefect_server import announced, announced_url
from clawpipe.core.services.secret import home_secret
from clawpipe.core.store.files import write_atomic
from clawpipe.core.store.home import Home

SIGN_IN = "/sign-in/"  # the path of `clawpipe.core.services.sign_in` on both servers


@dataclass(frozen=True)
class Pages:
    """Addresses of the servers of `clawpipe up`, without a slash at the end."""

    prefect: str
    mlflow: str

    def addresses(self) -> dict[str, str]:
        """Return the address of each page by its title, without the secret."""
        return {"All nights": f"{self.mlflow}/nights/", "Runs (Prefect)": f"{self.prefect}/", "Models (MLflow)": f"{self.mlflow}/"}

    def links(self, secret: str) -> dict[str, str]:
        """Return the link that signs in to each page, by its title."""
        mlflow = self.mlflow.replace("://", f"://{secret}@", 1) + SIGN_IN
        prefect = f"{self.prefect}{SIGN_IN}#{base64.b64encode(secret.encode()).decode()}"
        return {"All nights": f"{mlflow}nights/", "Runs (Prefect)": prefect, "Models (MLflow)": mlflow}


def pages_of(home: Home) -> Pages | None:
    """Return the addresses of the pages of `clawpipe up`, if it runs."""
    url, mlflow_url = announced_url(home), announced(home, "mlflow_url")
    return Pages(url.removesuffix("/api"), mlflow_url) if url and mlflow_url else None


def write_links(home: Home, pages: Pages, report: Path | None) -> Path:
    """Write the page of links, which only the user can read; return its path.

    Args:
        report: the newest night's, if there is one.
    """
    links = pages.links(home_secret(home)) | ({"The newest report": report.as_uri()} if report else {})
    lines = (f'<li><a href="{html.escape(link)}">{html.escape(title)}</a>' for title, link in links.items())
    path = home.root / "open.html"
    head = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>clawpipe</title>'
    )
    write_atomic(path, f"{head}<h1>clawpipe</h1><ul>{''.join(lines)}</ul>".encode())
    path.chmod(0o600)
    return path
