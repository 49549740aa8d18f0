// One connection for all tabs: a browser opens at most six to a host, and the seventh tab would wait
// for ever. The relay keeps the newest state, so that a tab that opens later begins with all of it.

import { StreamClient } from "./client";
import { applyChange, type Link, type Topology, type TopologyChange } from "./model";

export type Message = { kind: "event"; name: string; body: unknown; agoMs: number } | { kind: "link"; link: Link };
export type Request = { kind: "token"; token: string } | { kind: "bye" };

export class Relay {
  private readonly listeners = new Set<(message: Message) => void>();
  private readonly kept = new Map<string, { body: unknown; atMs: number }>();
  private link: Link = { state: "connecting", cause: "" };
  private readonly client: StreamClient;

  constructor(url: string) {
    this.client = new StreamClient(url, (name, data) => this.take(name, data), (link) => this.tell({ kind: "link", link }));
    this.client.start();
  }

  add(listener: (message: Message) => void): void {
    this.listeners.add(listener);
    listener({ kind: "link", link: this.link });
    // In the order in which each first came, as the first tab saw them.
    for (const [name, { body, atMs }] of this.kept) listener({ kind: "event", name, body, agoMs: performance.now() - atMs });
  }

  remove(listener: (message: Message) => void): void {
    this.listeners.delete(listener);
  }

  useToken(token: string): void {
    this.client.useToken(token);
  }

  private take(name: string, data: string): void {
    const body: unknown = JSON.parse(data);
    if (name === "topology-change") {
      const topology = this.kept.get("topology");
      if (topology) applyChange(topology.body as Topology, body as TopologyChange);
    } else {
      this.kept.set(name, { body, atMs: performance.now() });
    }
    this.tell({ kind: "event", name, body, agoMs: 0 });
  }

  private tell(message: Message): void {
    if (message.kind === "link") this.link = message.link;
    for (const listener of this.listeners) listener(message);
  }
}
