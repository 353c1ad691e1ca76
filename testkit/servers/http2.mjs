// Speaks HTTP/2 over TLS by Node's own implementation, and passes every request on to a plain server.
// Arguments: certificate, key, URL of the plain server, file that gets a line for each request and each end,
// "only1" for a server that offers HTTP/1.1 alone or "any" for one that offers both, and the authority of the client
// certificates that it wants.
import { appendFileSync, readFileSync } from "node:fs";
import http from "node:http";
import http2 from "node:http2";
import https from "node:https";

const [cert, key, behind, journal, only, clients] = process.argv.slice(2);
const note = (line) => appendFileSync(journal, line + "\n");
const options = { cert: readFileSync(cert), key: readFileSync(key), allowHTTP1: true };
if (clients) Object.assign(options, { ca: readFileSync(clients), requestCert: true, rejectUnauthorized: true });
// Small, so that requests have to wait for the window.
options.settings = { initialWindowSize: 70000, maxConcurrentStreams: 4 };

const sessions = new Set();
const create = only === "only1" ? https.createServer : http2.createSecureServer;
const server = create(options, (request, response) => {
  note(`${request.httpVersion} ${request.method}`);
  const headers = Object.fromEntries(
    Object.entries(request.headers).filter(([name]) => !name.startsWith(":") && name !== "connection"),
  );
  headers.host = new URL(behind).host;
  const onward = http.request(behind, { method: request.method, headers }, (answer) => {
    const kept = Object.entries(answer.headers).filter(
      ([name]) => !["connection", "keep-alive", "transfer-encoding"].includes(name),
    );
    response.writeHead(answer.statusCode, Object.fromEntries(kept));
    response.flushHeaders?.();
    answer.pipe(response);
    answer.on("error", () => response.destroy?.());
  });
  onward.on("error", () => response.stream?.close());
  request.on("aborted", () => { note("aborted"); onward.destroy(); });
  request.pipe(onward);
});
server.on("session", (session) => { sessions.add(session); note("session"); });
// Tell every client to use another connection, as a server does that is replaced.
process.on("SIGUSR2", () => { for (const session of sessions) session.goaway(); sessions.clear(); note("goaway"); });
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
