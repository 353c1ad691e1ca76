// Answer the questions of tools with the TypeScript SDK 1.x and print the texts of their results as one JSON line.
import { createRequire } from "node:module";

const plan = JSON.parse(process.argv[2]);
const require = createRequire(plan.modules);
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const types = require("@modelcontextprotocol/sdk/types.js");

const client = new Client(
  { name: "typescript-sdk-1", version: "1" },
  { capabilities: { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} } },
);
client.setRequestHandler(types.ElicitRequestSchema, async ({ params }) =>
  params.mode === "url" ? { action: "accept" } : { action: "accept", content: { name: plan.name } },
);
client.setRequestHandler(types.CreateMessageRequestSchema, async ({ params }) => ({
  role: "assistant",
  model: `the model of ${plan.name}`,
  content: { type: "text", text: `${plan.name} on ${params.messages[0].content.text}` },
}));
client.setRequestHandler(types.ListRootsRequestSchema, async () => ({
  roots: [{ uri: `file:///home/${plan.name}`, name: plan.name }],
}));
await client.connect(new StreamableHTTPClientTransport(new URL(plan.url)));
const results = await Promise.all(plan.calls.map((call) => client.callTool(call)));
console.log(JSON.stringify(results.map(({ content }) => content.map(({ text }) => text).join("\n"))));
await client.close();
