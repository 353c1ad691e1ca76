"""What a client gets back: the schema and the docs as the server wrote them, or one sentence."""

import json
from typing import Any

import pytest
from msgspec import Raw

from headgate.catalog.errors import InvalidExpansionRequest, SchemaNotFound
from headgate.catalog.expand_schema import ExpandSchema
from headgate.catalog.own_tools import EXPAND_DEFINITION
from headgate.domain.identity import LOCAL_IDENTITY, Identity
from headgate.domain.mcp_request import McpRequest
from headgate.protocol.jsonrpc_errors import ProtocolViolation
from headgate.protocol.protocol_version import Era
from headgate.server.reply import encode_gateway_error
from tests.catalog.expand_schema.expand_schema_client import (
    NAME,
    ExpandSchemaClient,
    StaticTools,
    an_object,
    blocks,
    item,
    tool,
)

ODD_SPELLING = b'{ "type" :"object" , "properties":{"a":{ "const":1.10e2,"title":"\\u00e9\\/"}, "b":{}} }'
SHIPPING = an_object(name={"type": "string"}, address=an_object(city={"type": "string"}))
PAYMENT = an_object(amount={"type": "number"}, metadata=an_object(shipping=SHIPPING))


async def test_without_a_path_the_schema_comes_byte_for_byte() -> None:
    assert await ExpandSchemaClient(tool(ODD_SPELLING)).text() == ODD_SPELLING.decode()


@pytest.mark.parametrize("path", [None, [], "", "[]"])
@pytest.mark.parametrize("mode", [None, "schema", ""])
async def test_every_way_to_leave_an_argument_out_means_the_whole_schema(path: Any, mode: Any) -> None:
    assert await ExpandSchemaClient(tool(ODD_SPELLING)).text(path, mode) == ODD_SPELLING.decode()


async def test_a_part_comes_byte_for_byte() -> None:
    assert (
        await ExpandSchemaClient(tool(ODD_SPELLING)).text(["a"]) == '{ "const":1.10e2,"title":"\\u00e9\\/"}'
    )


@pytest.mark.parametrize(
    "place",
    [
        b'{"name":"x", "description":"d\\u00e9" ,"inputSchema": {"type":"object"}, "_meta":{"a": 1.0} }',
        b'{"inputSchema":{"type":"object"},"name":"x","description":"d\\u00e9","_meta":{"a": 1.0}}',
        b'{"name":"x","description":"d\\u00e9","_meta":{"a": 1.0},"inputSchema":{"type":"object"}}',
    ],
)
async def test_docs_are_everything_but_the_schema_byte_for_byte(place: bytes) -> None:
    text = await ExpandSchemaClient(item(place)).text(mode="docs")
    assert json.loads(text) == {"name": "x", "description": "dé", "_meta": {"a": 1.0}}
    assert '"d\\u00e9"' in text
    assert '{"a": 1.0}' in text


async def test_a_second_answer_is_the_first_one_again() -> None:
    desk = ExpandSchemaClient(tool(PAYMENT, description="Pay."))
    for path, mode in ((None, "schema"), (["metadata"], "schema"), (None, "docs"), (["metadata"], "docs")):
        first = await desk.answer({"toolName": NAME, "path": path, "mode": mode})
        before = json.dumps(first)
        first["content"][0]["text"] = "changed"
        assert json.dumps(await desk.answer({"toolName": NAME, "path": path, "mode": mode})) == before


async def test_answers_and_refusals_are_counted() -> None:
    desk = ExpandSchemaClient(tool(PAYMENT))
    await desk.texts()
    await desk.texts(["amount"])
    await desk.refusal(["nothing"])
    with pytest.raises(SchemaNotFound):
        await desk.answer({"toolName": "other"})
    assert (desk.tool.expansions, desk.tool.refused) == (2, 2)


# The tool that is meant.


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        None,
        [],
        "x",
        5,
        {"toolName": None},
        {"toolName": ""},
        {"toolName": " "},
        {"toolName": 5},
        {"name": NAME},
    ],
)
async def test_without_a_tool_nothing_is_expanded(arguments: Any) -> None:
    with pytest.raises(InvalidExpansionRequest) as refused:
        await ExpandSchemaClient(tool(PAYMENT)).answer(arguments)
    assert refused.value.message == "toolName is required"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "toolName is required"),
        ({"arguments": Raw(b"")}, "toolName is required"),
        ({"arguments": Raw(b'{"toolName":"\\ud800"}')}, "the arguments cannot be read"),
        ({"arguments": Raw(b'{"toolName":"a","path":["\\ud800"]}')}, "the arguments cannot be read"),
        ({"arguments": Raw(b'{"x":' * 5_000 + b"1" + b"}" * 5_000)}, "the arguments cannot be read"),
    ],
)
async def test_arguments_that_nobody_can_read_are_refused(params: dict[str, Raw], message: str) -> None:
    with pytest.raises(InvalidExpansionRequest) as refused:
        await ExpandSchema(StaticTools()).run(McpRequest(caller=LOCAL_IDENTITY, params=params))
    assert refused.value.message.startswith(message)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("stripe_pay", f"Schema not found for tool: stripe_pay; nearest: {NAME}"),
        ("other", "Schema not found for tool: other"),
        ("x" * 1000, f"Schema not found for tool: {'x' * 200}"),
        ("other\x1b[2J", "Schema not found for tool: other\\x1b[2J"),
    ],
)
async def test_an_unknown_tool_is_answered_with_the_nearest_names(name: str, message: str) -> None:
    with pytest.raises(SchemaNotFound) as missing:
        await ExpandSchemaClient(tool(PAYMENT)).answer({"toolName": name})
    assert missing.value.message == message


async def test_what_a_client_does_not_see_is_not_found() -> None:
    with pytest.raises(SchemaNotFound):
        await ExpandSchemaClient(tool(PAYMENT)).answer({"toolName": NAME}, Identity(principal="stranger"))


@pytest.mark.parametrize("era", Era)
@pytest.mark.parametrize(
    "error", [InvalidExpansionRequest("toolName is required"), SchemaNotFound("x", ["y"])]
)
def test_a_refusal_is_an_error_of_the_protocol_with_its_message_alone(
    era: Era, error: InvalidExpansionRequest | SchemaNotFound
) -> None:
    with pytest.raises(ProtocolViolation) as refused:
        encode_gateway_error(b"7", "tools/call", error, era)
    told = json.loads(refused.value.encode())["error"]
    assert (told["code"], told["message"], refused.value.status) == (-32602, error.message, 200)
    assert told["data"]["hint"] == error.hint


# The other arguments.


@pytest.mark.parametrize("mode", ["full", 5, ["docs"], {}, False, "DOCS"])
async def test_a_mode_that_does_not_exist_is_refused(mode: Any) -> None:
    assert await ExpandSchemaClient(tool(PAYMENT)).refusal(None, mode) == 'mode must be "schema" or "docs"'


@pytest.mark.parametrize("path", [{}, True, 1.5, [["a"]], [None], [True], [1.5], ["a", {}]])
async def test_a_path_of_another_type_is_refused(path: Any) -> None:
    told = await ExpandSchemaClient(tool(PAYMENT)).refusal(path)
    assert told == 'path must be a list of names, such as ["metadata","shipping"]'


async def test_a_path_is_not_followed_for_ever() -> None:
    desk = ExpandSchemaClient(tool(an_object(x={"$ref": "#"})))
    assert await desk.value(*["x"] * 100) == an_object(x={"$ref": "#"})
    assert await desk.refusal(["x"] * 101) == "path has 101 names, and at most 100 are followed"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (["nope"], f"No 'nope' in the arguments of {NAME}; there are: amount, metadata"),
        (["metadata", "x"], f"""No 'x' in ["metadata"] of {NAME}; there are: shipping"""),
        (
            ["metadata", "shipping", "foo", "bar"],
            f"""No 'foo' in ["metadata","shipping"] of {NAME}; there are: name, address""",
        ),
        (["amount", "x"], f"""No 'x' in ["amount"] of {NAME}; nothing is inside"""),
        (
            ["metadata.shipping.foo"],
            f"""No 'foo' in ["metadata","shipping"] of {NAME}; there are: name, address""",
        ),
        (["metadata", "foo.bar"], f"""No 'foo.bar' in ["metadata"] of {NAME}; there are: shipping"""),
        (["required"], f"No 'required' in the arguments of {NAME}; there are: amount, metadata"),
    ],
)
@pytest.mark.parametrize("mode", ["schema", "docs"])
async def test_a_bad_path_names_the_deepest_part_that_exists_and_its_children(
    path: list[str], message: str, mode: str
) -> None:
    assert await ExpandSchemaClient(tool(PAYMENT | {"required": ["amount"]})).refusal(path, mode) == message


async def test_of_many_children_the_first_are_named() -> None:
    told = await ExpandSchemaClient(tool(an_object(**{f"p{i}": {} for i in range(50)}))).refusal(["x"])
    assert told.endswith("p18, p19 and 30 more")
    exactly = await ExpandSchemaClient(tool(an_object(**{f"p{i}": {} for i in range(20)}))).refusal(["x"])
    assert exactly.endswith("p18, p19")


async def test_a_refusal_is_short_whatever_the_names_are() -> None:
    long = "n" * 10_000
    desk = ExpandSchemaClient(tool(an_object(**{long: an_object(**{f"{long}{i}": {} for i in range(30)})})))
    assert len(await desk.refusal([long, long, long])) < 3_000
    assert await desk.value(long, f"{long}7") == {}


async def test_an_empty_name_is_named() -> None:
    desk = ExpandSchemaClient(tool(an_object(**{"": an_object(**{"": {"const": 1}})})))
    assert await desk.value("", "") == {"const": 1}
    assert (await desk.refusal(["x"])).endswith("there are: ''")


# What the gateway lists.


async def test_its_own_definition_is_one_that_clients_can_use() -> None:
    definition = json.loads(EXPAND_DEFINITION)
    assert definition["name"] == "expandSchema"
    assert definition["inputSchema"]["required"] == ["toolName"]
    assert set(definition["inputSchema"]["properties"]) == {"toolName", "path", "mode"}
    assert definition["annotations"] == {"readOnlyHint": True, "openWorldHint": False}
    own = ExpandSchemaClient(item(EXPAND_DEFINITION))
    assert await own.value("path", "items") == {"type": "string"}
    assert blocks(await own.answer({"toolName": NAME}))
