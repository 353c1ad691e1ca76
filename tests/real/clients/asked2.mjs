// Answer the questions of tools with the TypeScript SDK 2.x and print the texts of their results as one JSON line.
import { createRequire } from "node:module";

const plan = JSON.parse(process.argv[2]);
const require = createRequire(plan.modules);
const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");

const MODES = { legacy: "legacy", modern: { pin: "2026-07-28" } };

const client = new Client(
  { name: "typescript-sdk-2", version: "1" },
  {
    versionNegotiation: { mode: MODES[plan.era] },
    capabilities: { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} },
  },
);
client.setRequestHandler("elicitation/create", async ({ params }) =>
  params.mode === "url" ? { action: "accept" } : { action: "accept", content: { name: plan.name } },
);
client.setRequestHandler("sampling/createMessage", async ({ params }) => ({
  role: "assistant",
  model: `the model of ${plan.name}`,
  content: { type: "text", text: `${plan.name} on ${params.messages[0].content.text}` },
}));
client.setRequestHandler("roots/list", async () => ({
  roots: [{ uri: `file:///home/${plan.name}`, name: plan.name }],
}));
await client.connect(new StreamableHTTPClientTransport(new URL(plan.url)));
const results = await Promise.all(plan.calls.map((call) => client.callTool(call)));
console.log(JSON.stringify(results.map(({ content }) => content.map(({ text }) => text).join("\n"))));
await client.close();
