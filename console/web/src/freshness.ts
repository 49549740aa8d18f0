// How old each panel's figures are: the server's word, and the time since it last spoke.

import { element, say } from "./dom";
import { span } from "./format";
import type { Hello, Link, Pulse } from "./model";

export class Freshness {
  private pulse: Pulse | null = null;
  private pulseAtMs = 0;
  private limits = { greySeconds: 3, redSeconds: 10 };
  link: Link = { state: "connecting", cause: "" };

  hello(hello: Hello): void {
    this.limits = hello;
  }

  take(pulse: Pulse, agoMs: number): void {
    this.pulse = pulse;
    this.pulseAtMs = performance.now() - agoMs;
  }

  /** Age in seconds of a source; null while there is nothing. */
  age(source: string): number | null {
    const told = this.pulse?.ages[source]?.seconds;
    if (told === null || told === undefined) return null;
    // Between two pulses a second passes without meaning anything.
    return told + Math.max(0, (performance.now() - this.pulseAtMs) / 1000 - 1.5);
  }

  cause(source: string): string {
    if (this.link.state !== "open") return this.link.cause;
    return this.pulse?.ages[source]?.cause ?? "";
  }

  level(source: string): "fresh" | "grey" | "red" {
    const age = this.age(source);
    if (age === null || age > this.limits.redSeconds) return "red";
    return age > this.limits.greySeconds ? "grey" : "fresh";
  }

  /** What overrules the state of the last tick; null while that still holds. */
  override(): { state: string; why: string } | null {
    if (this.pulse === null) return { state: "STALE", why: this.link.cause || "connecting …" };
    if (this.level("live") === "red") return { state: "STALE", why: `figures are ${this.spell("live")}${this.cause("live") ? `: ${this.cause("live")}` : ""}` };
    return this.pulse.state === "STALE" ? this.pulse : null;
  }

  show(): void {
    for (const panel of document.querySelectorAll<HTMLElement>("[data-source]")) {
      const source = panel.dataset.source ?? "";
      const level = this.level(source);
      panel.dataset.age = level;
      const note = panel.querySelector<HTMLElement>(".age");
      if (note) say(note, level === "fresh" ? "" : `${this.spell(source)}${this.cause(source) ? `: ${this.cause(source)}` : ""}`);
    }
    const connection = element("connection");
    const level = this.link.state === "open" || this.link.state === "connecting" ? this.level("live") : "red";
    connection.dataset.age = level;
    connection.dataset.state = level === "fresh" ? "live" : "lost";
    say(connection, level === "fresh" ? "live" : this.link.state === "open" ? `figures ${this.spell("live")}` : this.link.cause || "connecting …");
  }

  private spell(source: string): string {
    const age = this.age(source);
    return age === null ? "not there yet" : `${span(age)} old`;
  }
}
