// How this page gets its events: through the worker that all tabs share, or by itself where a
// browser offers none. Also the page's few requests, which carry the same token.

import { type Message, Relay, type Request } from "./relay";

const TOKEN_KEY = "wattpack-token";
let send: (request: Request) => void = () => undefined;

export function connect(listener: (message: Message) => void): void {
  if (typeof SharedWorker === "undefined") {
    const relay = new Relay(new URL("api/v1/stream", document.baseURI).href);
    send = (request) => request.kind === "token" && relay.useToken(request.token);
    useToken(token());
    // The relay keeps its own copy up to date; the page gets another, as it would from the worker.
    relay.add((message) => listener(structuredClone(message)));
    return;
  }
  open(listener);
  // A page that comes back out of the browser's cache has said goodbye.
  addEventListener("pagehide", () => send({ kind: "bye" }));
  addEventListener("pageshow", (event) => event.persisted && open(listener));
}

function open(listener: (message: Message) => void): void {
  const worker = new SharedWorker(new URL("./worker.ts", import.meta.url), { type: "module", name: "wattpack" });
  worker.port.onmessage = (event: MessageEvent<Message>) => listener(event.data);
  send = (request) => worker.port.postMessage(request);
  if (token() !== "") useToken(token());
}

function token(): string {
  return sessionStorage.getItem(TOKEN_KEY) ?? "";
}

export function useToken(text: string): void {
  if (text === "") return;
  sessionStorage.setItem(TOKEN_KEY, text);
  send({ kind: "token", token: text });
}

export async function getJson<T>(path: string): Promise<T | null> {
  try {
    const headers: Record<string, string> = token() === "" ? {} : { Authorization: `Bearer ${token()}` };
    const answer = await fetch(path, { headers, signal: AbortSignal.timeout(10_000) });
    return answer.ok ? ((await answer.json()) as T) : null;
  } catch {
    return null; // the ages already say so
  }
}
