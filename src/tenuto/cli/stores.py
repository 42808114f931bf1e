"""store create, ls, test, rm: where checkpoints may go, as the operator of the cluster declares it.

The declarations stand in a file beside the cluster's other files, with the credentials in it, for services and agents to read. An
experiment names a store and sees nothing of that.
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenuto.cli.common import Json, client
from tenuto.cli.errors import CliError
from tenuto.cli.say import say

if TYPE_CHECKING:
    from tenuto.kernel.storage.definitions import StoreDefinition

app = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Small letters, digits and `-`; experiments have it as `checkpoint_storage.store`.")]
File = Annotated[
    Path | None, typer.Option(help="Declarations of the services (default: TENUTO_STORES_FILE, else that of the cluster here).")
]
PROBE = "tenuto-store-test"
_KEY_FILE = "service_account_key"
"""Setting that is given as a file."""
_OPTIONS = {
    **{name: name for name in ("path", "bucket", "container", "account", "prefix", "endpoint", "region")},
    _KEY_FILE: "service-account-file",
}
"""Settings with an option of their own; all others are given by --set."""


@app.command()
def create(
    context: typer.Context,
    name: Name,
    kind: Annotated[
        str,
        typer.Option(
            "--type", metavar="KIND", help="directory, s3, gcs, azure, or a kind that a plug-in has (`tenuto plugin ls`)."
        ),
    ] = "directory",
    path: Annotated[str | None, typer.Option(help="directory: absolute; services and agents all see it there.")] = None,
    bucket: Annotated[str | None, typer.Option(help="s3, gcs: an existing bucket.")] = None,
    container: Annotated[str | None, typer.Option(help="azure: an existing container.")] = None,
    account: Annotated[str | None, typer.Option(help="azure: the storage account.")] = None,
    prefix: Annotated[str | None, typer.Option(help="Path inside the bucket; it must belong to this cluster alone.")] = None,
    endpoint: Annotated[str | None, typer.Option(help="s3: address of MinIO or another server; without it AWS.")] = None,
    region: Annotated[str | None, typer.Option(help="s3: the bucket's region.")] = None,
    service_account_file: Annotated[
        Path | None, typer.Option(help="gcs: key file of a service account; without it the machine's own account.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Setting of a plug-in's kind; may be given several times."),
    ] = None,
    test: Annotated[bool, typer.Option("--test/--no-test", help="Write, read and delete a small object first.")] = True,
    file: File = None,
) -> None:
    """Declare a store. Credentials are taken from this shell, once: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and
    AWS_SESSION_TOKEN) for s3, AZURE_STORAGE_ACCOUNT_KEY for azure; those of a plug-in's kind from the variables that it names."""
    from pydantic import ValidationError

    from tenuto.kernel.plugins import PluginError
    from tenuto.kernel.storage.definitions import DEFINITIONS, kind_of
    from tenuto.kernel.storage.stores import is_store_name
    from tenuto.schemas.config.storage import SHARED_STORE

    if name == SHARED_STORE or not is_store_name(name):
        own = "is the cluster's own directory" if name == SHARED_STORE else "is no name: small letters, digits and `-`"
        raise CliError(f"{name} {own}; choose another name.")
    place = _file(context, file)
    known = _declared(place)
    if name in known:
        raise CliError(f"There is a store {name} at {known[name].url}; `tenuto store rm {name}` takes it away.")
    try:
        variables = kind_of(kind).variables
    except PluginError as error:
        raise CliError(f"--type: {str(error)[:1].lower()}{str(error)[1:]}") from None
    wanted = {"path": path, "bucket": bucket, "container": container, "account": account, "prefix": prefix}
    wanted |= {"endpoint": endpoint, "region": region, _KEY_FILE: _content(service_account_file)}
    given = {key: value for key, value in wanted.items() if value is not None}
    more = _assigned(settings or [], given, variables)
    secrets = {field: value for field, variable in variables.items() if (value := os.environ.get(variable))}
    try:
        [definition] = DEFINITIONS.validate_python({name: {"type": kind, **given, **more, **secrets}}).values()
    except ValidationError as error:
        raise CliError(_words(error, kind, variables)) from None
    if test:
        _test(definition)
    _declare(place, {**known, name: definition})
    say(f"Store {name} is declared at {definition.url}; experiments name it: `checkpoint_storage: {{store: {name}}}`.")


@app.command("ls")
def list_stores(context: typer.Context, json: Json = False) -> None:
    """Show what experiments may name."""
    from tenuto.cli.output import print_json, show_rows

    found = client(context).get("/stores")
    if json:
        print_json(found)
        return
    show_rows(("store", "type", "place"), [(item["name"], item["type"], item["url"]) for item in found], "There are no stores.")


@app.command("test")
def try_store(context: typer.Context, name: Name, file: File = None) -> None:
    """Write, read and delete a small object, from this machine."""
    definition = _known(context, name, file)
    _test(definition)
    say(f"Store {name} at {definition.url}: written, read and deleted.")


@app.command("rm")
def remove(context: typer.Context, name: Name, file: File = None) -> None:
    """Take a declaration away. What is stored stays there, and is out of reach until a store of that name is declared again."""
    definition, place = _known(context, name, file), _file(context, file)
    _declare(place, {key: value for key, value in _declared(place).items() if key != name})
    say(f"The declaration of store {name} is removed; what is stored at {definition.url} stays there.")


def _file(context: typer.Context, file: Path | None) -> Path:
    from tenuto.embedded.files import Layout

    data_dir, url = context.obj or (None, None)
    named = file or os.environ.get("TENUTO_STORES_FILE")
    if named:
        return Path(named)
    layout = Layout.of(data_dir)
    if url or not layout.root.is_dir():
        raise CliError(
            "Stores are declared where the services run: there, or with --file and the path of the file that TENUTO_STORES_FILE "
            f"names for them ({layout.root} is no cluster's directory)."
        )
    return layout.stores


def _known(context: typer.Context, name: str, file: Path | None) -> StoreDefinition:
    known = _declared(_file(context, file))
    if name not in known:
        raise CliError(f"There is no store {name}; there are {', '.join(sorted(known)) or 'none'}.")
    return known[name]


def _declared(file: Path) -> dict[str, StoreDefinition]:
    from tenuto.kernel.storage.store import StoreError
    from tenuto.kernel.storage.stores import read_stores

    try:
        return read_stores(file)
    except StoreError as error:
        raise CliError(str(error)) from error


def _declare(file: Path, definitions: dict[str, StoreDefinition]) -> None:
    from tenuto.kernel.storage.stores import write_stores

    try:
        write_stores(file, definitions)
    except OSError as error:
        raise CliError(f"{file} cannot be written: {error.strerror}.") from error


def _content(file: Path | None) -> str | None:
    try:
        return None if file is None else file.read_text()
    except OSError as error:
        raise CliError(f"{file} cannot be read: {error.strerror}.") from error


def _assigned(settings: Sequence[str], given: Container[str], variables: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in settings:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise CliError(f"--set: {key!r} has no value; write --set KEY=VALUE.")
        if key in variables:
            raise CliError(
                f"--set {key}: it is a credential, and others see the words of a command; set {variables[key]} instead."
            )
        if key in given or key in found or key == "type":
            raise CliError(f"--set {key}: it is given twice.")
        found[key] = value
    return found


def _words(error: Any, kind: str, variables: Mapping[str, str]) -> str:
    """Never with a value, which may be a secret."""
    wrong = error.errors(include_url=False, include_input=False)[0]
    field = str(wrong["loc"][-1])
    if field in variables and wrong["type"] == "missing":
        return f"{variables[field]} is not set in this shell: a store of type {kind} is entered with it."
    option = f"--{_OPTIONS[field]}" if field in _OPTIONS else f"--set {field}"
    if wrong["type"] == "missing":
        return f"{option} is needed for a store of type {kind}."
    if wrong["type"] == "extra_forbidden":
        return f"{option} is not for a store of type {kind}."
    message = wrong["msg"].removeprefix("Value error, ")
    return f"{variables.get(field, option)}: {message[:1].lower()}{message[1:]}."


def _test(definition: StoreDefinition) -> None:
    from tenuto.kernel.storage.opening import open_store
    from tenuto.kernel.storage.store import StoreError, read_bytes

    key = f"{PROBE}-{os.getpid()}"
    try:
        store = open_store(definition)
        store.put_bytes(key, b"tenuto")
        try:
            read_bytes(store, key, 16)
        finally:
            store.delete([key])
    except StoreError as error:
        raise CliError(f"The store cannot be used from here: {str(error).rstrip('.')}.") from error
