"""The S3-compatible server of `services.ObjectStore`: `moto`'s, one request at a time, which can be made to refuse.

One at a time, because its conditional writes look first and write then: two of them must not come between each other.
While the file of refusal exists, every request is answered with the status it holds.

    python deploy/object_store.py PORT BUCKET REFUSAL
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from moto.backends import get_backend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def one_at_a_time(application: Application, refusal: Path) -> Application:
    """The same application, its requests in a row; or a refusal."""
    alone = threading.Lock()

    def answer(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        length = environment.get("CONTENT_LENGTH")
        if length:
            environment["wsgi.input"] = io.BytesIO(environment["wsgi.input"].read(int(length)))
        try:
            status = int(refusal.read_text())
        except (FileNotFoundError, ValueError):
            with alone:
                return [b"".join(application(environment, start))]
        code = "AccessDenied" if status == 403 else "SlowDown"
        start(f"{status} {code}", [("Content-Type", "application/xml")])
        head = environment["REQUEST_METHOD"] == "HEAD"
        return [] if head else [f"<Error><Code>{code}</Code><Message>refused</Message></Error>".encode()]

    return answer


def main() -> None:
    """Serve until killed."""
    port, bucket, refusal = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    get_backend("s3")["123456789012"]["aws"].create_bucket(bucket, "us-east-1")
    application = one_at_a_time(DomainDispatcherApplication(create_backend_app), refusal)
    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    run_simple("127.0.0.1", port, application, threaded=True)


if __name__ == "__main__":
    main()
