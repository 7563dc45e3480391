"""Models in repositories of the Hugging Face Hub: hf://user/model[@revision][/folder]."""

import glob
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit import __version__
from elmokit.errors import DownloadError, FormatError, InputError, needs_extra
from elmokit.formats.model_format import explain_missing, find_format

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_ADDRESS = re.compile("hf://", re.IGNORECASE)
_EXPECTED = "expected hf://user/model, and perhaps @revision and /folder"


def is_address(source: str) -> bool:
    """Whether a model is given by its repository."""
    return _ADDRESS.match(source) is not None


def fetch(source: str, *, offline: bool) -> Path:
    """Where a model, or one of its files, lies on this machine; what is missing is downloaded.

    Of a folder, the files of one model are downloaded, and no others.
    """
    api = _open_hub()
    from huggingface_hub import is_offline_mode, parse_hf_uri  # noqa: PLC0415  an extra
    from huggingface_hub.errors import HfUriError, IncompleteSnapshotError  # noqa: PLC0415

    try:
        address = parse_hf_uri(_ADDRESS.sub("hf://", source.rstrip("/")))
    except HfUriError as error:
        raise InputError(f"{source}: {_sentence(error.msg)}; {_EXPECTED}") from None
    if address.type != "model":
        raise InputError(f"{source}: a repository of type {address.type}; {_EXPECTED}")
    repo, path = address.id, address.path_in_repo
    offline = offline or is_offline_mode()
    with _explaining_errors(source, repo, offline=offline):
        revision = api.resolve_revision(repo, revision=address.revision, local_files_only=offline)
        files = _choose(source, path, _list_files(api, repo, revision, offline=offline))
        try:
            folder = api.snapshot_download(
                repo,
                revision=revision,
                allow_patterns=[glob.escape(file) for file in files],
                local_files_only=offline,
                tqdm_class=_progress_bar(),
            )
        except IncompleteSnapshotError as error:
            missing = [file for file in files if not Path(error.snapshot_path, file).is_file()]
            raise DownloadError(
                f"{source}: {', '.join(missing)} of it is not on this machine, and offline mode is "
                "on; load it once without"
            ) from None
    return Path(folder, path)


def upload(
    folder: Path, repo: str, *, private: bool | None, revision: str | None, obsolete: list[str]
) -> str:
    """Upload a folder to a repository, which is made if it is missing, and return its address.

    Files of the repository that fit the patterns of `obsolete`, and not in the folder, are removed.
    """
    api = _open_hub()
    with _explaining_errors(repo, repo, offline=False):
        repo = api.create_repo(_ADDRESS.sub("", repo), private=private, exist_ok=True).repo_id
        if private and not api.model_info(repo).private:
            raise InputError(
                f"{repo}: is public already; make it private in its settings, or push to another"
            )
        if revision is not None:
            api.create_branch(repo, branch=revision, exist_ok=True)
        api.upload_folder(
            repo_id=repo,
            folder_path=folder,
            revision=revision,
            commit_message=f"Upload model by elmokit {__version__}",
            delete_patterns=obsolete,
        )
    return f"hf://{repo}" + (f"@{revision.replace('/', '%2F')}" if revision else "")


def update_metadata(card: Path, metadata: Mapping[str, object]) -> None:
    """Change some of the metadata of a card."""
    _open_hub()
    import yaml  # noqa: PLC0415  comes with huggingface_hub
    from huggingface_hub import metadata_load, metadata_save  # noqa: PLC0415  an extra

    try:
        stored = metadata_load(card) or {}
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise InputError(f"the model's card: its first lines are no YAML ({problem})") from None
    if "license" in metadata:
        stored.pop("license_name", None)
    metadata_save(card, {**stored, **metadata})


def _open_hub() -> "HfApi":
    with needs_extra("the Hugging Face Hub needs huggingface_hub", "hub"):
        from huggingface_hub import HfApi  # noqa: PLC0415  an extra
    return HfApi(library_name="elmokit", library_version=__version__)


def _progress_bar() -> Any:
    """The progress bar of huggingface_hub, which is otherwise shown where there is no terminal."""
    from huggingface_hub.utils.tqdm import tqdm  # noqa: PLC0415  an extra

    class TerminalProgress(tqdm):
        def __init__(self, *items: Any, **settings: Any) -> None:
            super().__init__(*items, **{"disable": None, **settings})  # type: ignore[no-untyped-call]

    return TerminalProgress


def _list_files(api: "HfApi", repo: str, revision: str, *, offline: bool) -> list[str]:
    """All files of a repository; from the cache, where huggingface_hub has listed them before."""
    from huggingface_hub import get_cached_repo_tree  # noqa: PLC0415  an extra
    from huggingface_hub.errors import CachedRepoTreeNotFoundError  # noqa: PLC0415

    try:
        return [file.path for file in get_cached_repo_tree(repo, revision=revision)]
    except CachedRepoTreeNotFoundError:
        if offline:
            raise
    return api.list_repo_files(repo, revision=revision)


def _choose(source: str, path: str, files: Collection[str]) -> list[str]:
    """Of a repository's files the one with this path, or those of the model in that folder."""
    if path in files:
        return [path]
    prefix = f"{path}/" if path else ""
    inside = [file.removeprefix(prefix) for file in files if file.startswith(prefix)]
    model_format = find_format(inside)
    if model_format is None:
        raise FormatError(f"{source}: {explain_missing(inside)}")
    return [prefix + file for file in model_format.select(inside)]


@contextmanager
def _explaining_errors(source: str, repo: str, *, offline: bool) -> Iterator[None]:
    """Turn what huggingface_hub raises into one sentence."""
    from huggingface_hub import constants, errors  # noqa: PLC0415  an extra

    # httpx's, or that of httpx2, as the version of huggingface_hub has it.
    http_error: Any = errors.HfHubHTTPError.__mro__[1]
    try:
        yield
    except (DownloadError, InputError, FormatError):
        raise
    except errors.GatedRepoError:
        raise DownloadError(
            f"{source}: its authors want to be asked for access, on {constants.ENDPOINT}/{repo}; "
            "then log in with `hf auth login`, or set HF_TOKEN"
        ) from None
    except errors.RepositoryNotFoundError:
        raise DownloadError(
            f"{source}: no such repository on {constants.ENDPOINT}, or a private one; check the "
            "name, or log in with `hf auth login`, or set HF_TOKEN"
        ) from None
    except errors.RevisionNotFoundError:
        raise DownloadError(
            f"{source}: the repository has no such revision; expected a branch, a tag or a commit "
            f"of {constants.ENDPOINT}/{repo}"
        ) from None
    except (errors.CachedRepoTreeNotFoundError, errors.RevisionResolutionError) as error:
        reason = "offline mode is on" if offline else _reason(error.__cause__ or error)
        raise DownloadError(
            f"{source}: not on this machine, and {reason}; load it once with a connection to "
            f"{constants.ENDPOINT}"
        ) from None
    except (OSError, http_error) as error:
        response = getattr(error, "response", None)
        if response is not None and response.status_code in (401, 403):
            raise DownloadError(
                f"{source}: {constants.ENDPOINT} does not allow it ({_sentence(str(error))}); log "
                "in with `hf auth login` and a token that may, or set HF_TOKEN"
            ) from None
        raise DownloadError(f"{source}: {_reason(error)}; try again") from None
    except ValueError as error:  # a name that no repository can have, or metadata of another form
        raise InputError(f"{source}: {_sentence(str(error))}") from None


def _reason(error: BaseException) -> str:
    return (
        f"the Hub cannot be reached or broke off ({_sentence(str(error)) or type(error).__name__})"
    )


def _sentence(message: str) -> str:
    """The first line of a message."""
    return message.strip().partition("\n")[0].rstrip(". ")
