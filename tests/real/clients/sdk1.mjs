// List and call tools with the TypeScript SDK 1.x and print what arrived as one JSON line.
import { createRequire } from "node:module";

const plan = JSON.parse(process.argv[2]);
const require = createRequire(plan.modules);
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { SSEClientTransport } = require("@modelcontextprotocol/sdk/client/sse.js");

function transport() {
  if (plan.front === "stdio") {
    const [command, ...args] = plan.command;
    return new StdioClientTransport({ command, args, env: plan.env });
  }
  const url = new URL(plan.url);
  return plan.front === "sse" ? new SSEClientTransport(url) : new StreamableHTTPClientTransport(url);
}

async function listTools(client) {
  const tools = [];
  let cursor;
  do {
    const page = await client.listTools(cursor === undefined ? undefined : { cursor });
    tools.push(...page.tools);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return tools;
}

const client = new Client({ name: "typescript-sdk-1", version: "1" });
const way = transport();
// The client tells the negotiated version to its transport alone.
let protocol = null;
const told = way.setProtocolVersion?.bind(way);
way.setProtocolVersion = (version) => {
  protocol = version;
  told?.(version);
};
await client.connect(way);
const tools = await listTools(client);
const result = await client.callTool({ name: plan.tool, arguments: plan.arguments });
const more = [];
for (const call of plan.more ?? []) more.push(await client.callTool(call));
console.log(JSON.stringify({ protocol, tools, result, more }));
await client.close();
