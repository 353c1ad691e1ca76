// Search with the TypeScript SDK 1.x or 2.x, wait for the list that follows by itself, and call what is in it.
import { createRequire } from "node:module";

const plan = JSON.parse(process.argv[2]);
const require = createRequire(plan.modules);
const MODES = { legacy: "legacy", modern: { pin: "2026-07-28" } };

function parts() {
  if (plan.sdk === 2) return require("@modelcontextprotocol/client");
  const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
  return { Client, ...require("@modelcontextprotocol/sdk/client/streamableHttp.js") };
}

const { Client, StreamableHTTPClientTransport } = parts();
const names = (tools) => tools.map(({ name }) => name);
let tell;
const told = new Promise((resolve) => (tell = resolve));
const client = new Client(
  { name: `typescript-sdk-${plan.sdk}`, version: "1" },
  {
    versionNegotiation: { mode: MODES[plan.era] },
    listChanged: { tools: { autoRefresh: true, onChanged: (error, tools) => tell(error ?? names(tools)) } },
  },
);
await client.connect(new StreamableHTTPClientTransport(new URL(plan.url)));
const before = names((await client.listTools()).tools);
const found = await client.callTool({ name: "retrieve_tools", arguments: plan.search });
const after = await told;
const result = await client.callTool({ name: plan.tool, arguments: {} });
console.log(JSON.stringify({ before, found, after, result }));
await client.close();
