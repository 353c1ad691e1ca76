// List and call tools with the TypeScript SDK 2.x and print what arrived as one JSON line.
import { createRequire } from "node:module";

const plan = JSON.parse(process.argv[2]);
const require = createRequire(plan.modules);
const { Client, SSEClientTransport, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

const MODES = { auto: "auto", legacy: "legacy", modern: { pin: "2026-07-28" } };

function transport() {
  if (plan.front === "stdio") {
    const [command, ...args] = plan.command;
    return new StdioClientTransport({ command, args, env: plan.env });
  }
  const url = new URL(plan.url);
  return plan.front === "sse" ? new SSEClientTransport(url) : new StreamableHTTPClientTransport(url);
}

const client = new Client(
  { name: "typescript-sdk-2", version: "1" },
  { versionNegotiation: { mode: MODES[plan.era] } },
);
await client.connect(transport());
// Without a cursor this SDK walks the pages itself.
const { tools } = await client.listTools();
const result = await client.callTool({ name: plan.tool, arguments: plan.arguments });
const more = [];
for (const call of plan.more ?? []) more.push(await client.callTool(call));
console.log(JSON.stringify({ protocol: client.getNegotiatedProtocolVersion(), tools, result, more }));
await client.close();
