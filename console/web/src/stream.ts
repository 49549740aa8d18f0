// The one connection of the page: server-sent events, reconnecting by itself.

import type { Tick, Topology } from "./model";

export interface Handlers {
  topology(topology: Topology): void;
  tick(tick: Tick): void;
  connection(state: "live" | "lost"): void;
}

export function connect(handlers: Handlers): EventSource {
  const source = new EventSource("api/v1/stream");
  source.addEventListener("topology", (event) => handlers.topology(JSON.parse((event as MessageEvent<string>).data) as Topology));
  source.addEventListener("tick", (event) => {
    handlers.tick(JSON.parse((event as MessageEvent<string>).data) as Tick);
    handlers.connection("live");
  });
  source.addEventListener("error", () => handlers.connection("lost"));
  return source;
}

export async function getJson<T>(path: string): Promise<T | null> {
  try {
    const answer = await fetch(path);
    return answer.ok ? ((await answer.json()) as T) : null;
  } catch {
    return null; // the connection state already says so
  }
}
