"""The reference of the command line and of the HTTP service, in Markdown, made from the code."""

import asyncio
import json
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import typer

from elmokit.cli import app
from elmokit.server.app import create_app
from elmokit.server.app_resources import AppResources
from elmokit.server.limits import Limits

_DEFAULT = re.compile(r" \[(?:default: (.*)|(required.*))\]$")


def cli_page() -> str:
    """Every command of `elmo` in its group, with its arguments and options."""
    root: Any = typer.main.get_command(app)
    lines: list[str] = []
    panel = ""
    for name in root.list_commands(None):
        command = root.commands[name]
        if command.rich_help_panel != panel:
            panel = command.rich_help_panel
            lines += [f"## {panel}", ""]
        lines += _command(f"elmo {name}", command, "###")
    return "\n".join(lines)


def http_page() -> str:
    """Every route of `elmo serve`: what is sent, what comes back, with an example of each."""
    schema = asyncio.run(_openapi_schema())
    lines: list[str] = []
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            lines += [f"## {method.upper()} {path}", "", operation["summary"], ""]
            body = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if body:
                lines += _request(body["schema"], schema)
            for status, response in operation["responses"].items():
                content = response.get("content", {})
                if status == "200" and "application/json" in content:
                    lines += _response(content["application/json"]["schema"], schema)
                    for kind in content.keys() - {"application/json"}:
                        lines += [f"Also as `{kind}`, if the request accepts it.", ""]
    lines += ["## Errors", "", 'The body of an error is `{"error": "one sentence"}`.', ""]
    lines += ["| status | meaning |", "| --- | --- |"]
    errors = schema["paths"]["/embed"]["post"]["responses"]
    lines += [f"| {s} | {r['description']} |" for s, r in errors.items() if s != "200"]
    return "\n".join([*lines, ""])


async def _openapi_schema() -> dict[str, Any]:
    """What a service without a model answers to GET /openapi.json."""
    logging.getLogger("httpx").setLevel(logging.WARNING)  # which tells of every request
    transport = httpx.ASGITransport(create_app(AppResources(Limits())))
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        response = await client.get("/openapi.json")
    schema: dict[str, Any] = response.raise_for_status().json()
    return schema


def _command(path: str, command: Any, heading: str) -> Iterator[str]:
    yield from (f"{heading} {path}", "", *_help(command.help), "")
    subcommands = getattr(command, "commands", None)
    if hasattr(command, "list_commands"):
        subcommands = {n: command.get_command(None, n) for n in command.list_commands(None)}
    if path == "elmo train":  # one command for each task, which differ in defaults
        yield from _tasks(path, subcommands)
    elif subcommands:
        for name, subcommand in subcommands.items():
            yield from _command(f"{path} {name}", subcommand, heading + "#")
    else:
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        usage = [_metavar(p) if p.required else f"[{_metavar(p)}]" for p in arguments]
        yield from ("```text", " ".join([path, *usage, "[OPTION ...]"]), "```", "")
        yield from _table(command)


def _tasks(path: str, commands: Mapping[str, Any]) -> Iterator[str]:
    """One table for the commands of all tasks, with the tasks whose defaults are others."""
    yield from ("```text", f"{path} TASK [OPTION ...]", "```", "")
    yield "| TASK | |"
    yield "| --- | --- |"
    for name, command in commands.items():
        yield f"| `{name}` | {_help(command.help)[0]} |"
    yield from ("", "| option | meaning | default |", "| --- | --- | --- |")
    options: dict[str, tuple[str, dict[str, str]]] = {}
    for name, command in commands.items():
        for parameter in command.params:
            meaning, default = _meaning(parameter)
            options.setdefault(_names(parameter), (meaning, {}))[1][name] = default
    for names, (meaning, defaults) in options.items():
        ((common, _),) = Counter(defaults.values()).most_common(1)
        others = (f"{task}: {value}" for task, value in defaults.items() if value != common)
        yield f"| {names} | {meaning} | {_cell('; '.join(filter(None, [common, *others])))} |"
    yield ""


def _table(command: Any) -> Iterator[str]:
    yield "| argument or option | meaning | default |"
    yield "| --- | --- | --- |"
    for parameter in command.params:
        if "--help" not in parameter.opts:
            meaning, default = _meaning(parameter)
            yield f"| {_names(parameter)} | {meaning} | {_cell(default)} |"
    yield ""


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_metavar(parameter)}`"
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    value = "" if parameter.is_flag else _metavar(parameter)
    return f"{names} `{_cell(value)}`" if value else names


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.human_readable_name)


def _meaning(parameter: Any) -> tuple[str, str]:
    """What a parameter does, and its default."""
    text = (parameter.help or "").replace(r"\[", "[")
    if match := _DEFAULT.search(text):
        return _cell(text[: match.start()]), match[1] or match[2]
    default = ""
    if isinstance(shown := getattr(parameter, "show_default", None), str):
        default = shown
    elif parameter.required:
        default = "required"
    elif shown and parameter.default is not None and not parameter.is_flag:
        default = str(parameter.default)
    return _cell(text), default


def _help(text: str) -> list[str]:
    """The paragraphs of a help text, its examples as code."""
    paragraphs = []
    for paragraph in text.replace(r"\[", "[").split("\n\n"):
        if paragraph.startswith("Example: "):
            paragraphs += [f"```console\n$ {paragraph.removeprefix('Example: ')}\n```", ""]
        else:
            paragraphs += [paragraph.replace("<", r"\<"), ""]
    return paragraphs[:-1]


def _request(reference: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    """The fields of a request's body, and its example."""
    record = _resolve(reference, schema)
    yield from (f"**Request.** {record['description']}", "")
    yield "| field | type | meaning | default |"
    yield "| --- | --- | --- | --- |"
    for name, field in record["properties"].items():
        default = "required" if name in record.get("required", ()) else ""
        if field.get("default") is not None:
            default = f"`{json.dumps(field['default'])}`"
        meaning = _cell(field.get("description", ""))
        yield f"| `{name}` | {_cell(_type(field, schema))} | {meaning} | {default} |"
    yield from ("", *_examples(record))


def _response(reference: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    """The fields of a response's body, and its example."""
    record = _resolve(reference, schema)
    if "properties" not in record:
        return
    yield from (f"**Response.** {record['description']}", "")
    yield "| field | type |"
    yield "| --- | --- |"
    for name, field in record["properties"].items():
        yield f"| `{name}` | {_cell(_type(field, schema))} |"
    yield from ("", *_examples(record))


def _examples(record: Mapping[str, Any]) -> Iterator[str]:
    for example in record.get("examples", ()):
        fields = {name: example[name] for name in record["properties"] if name in example}
        yield from ("```json", json.dumps(fields, ensure_ascii=False), "```", "")


def _resolve(reference: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    name = reference.get("$ref", "").rpartition("/")[2]
    return schema["components"]["schemas"][name] if name else reference


def _type(field: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """The type of a field in words."""
    if "$ref" in field:
        properties = _resolve(field, schema).get("properties", {})
        return f"object with {', '.join(f'`{name}`' for name in properties)}"
    for alternatives in (field.get("anyOf"), field.get("allOf")):
        if alternatives:
            return " or ".join(dict.fromkeys(_type(a, schema) for a in alternatives))
    if "enum" in field:
        return " or ".join(f'`"{value}"`' for value in field["enum"])
    if field.get("type") == "array":
        items = field.get("items") or {"type": "number"}
        kind = _type(items, schema)
        return f"list of ({kind})" if " or " in kind else f"list of {kind}"
    signs = {"minimum": "≥", "maximum": "≤"}
    limits = [f"{sign} {field[name]}" for name, sign in signs.items() if name in field]
    return " ".join([str(field.get("type", "any")), *limits])


def _cell(text: str) -> str:
    """Text in a table's cell."""
    return text.replace("|", r"\|").replace("\n", " ").replace("<", r"\<")
