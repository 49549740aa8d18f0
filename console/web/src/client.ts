// The event stream, read with fetch: EventSource gives up for good on anything but 200, cannot carry
// a token, and does not notice a connection that has gone silent.

import type { Link } from "./model";

const SILENT_MS = 5000; // the server pulses every second
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;

export class StreamClient {
  private token = "";
  private failures = 0;
  private current: AbortController | null = null;
  private wake: (() => void) | null = null;

  constructor(
    private readonly url: string,
    private readonly emit: (name: string, data: string) => void,
    private readonly report: (link: Link) => void,
  ) {}

  start(): void {
    void this.run();
  }

  useToken(token: string): void {
    this.token = token;
    this.current?.abort();
    this.wake?.();
  }

  private async run(): Promise<void> {
    for (;;) {
      const wait = await this.once();
      await new Promise<void>((resolve) => {
        this.wake = resolve;
        setTimeout(resolve, wait);
      });
    }
  }

  /** One connection from beginning to end; how long to wait before the next, in ms. */
  private async once(): Promise<number> {
    const controller = (this.current = new AbortController());
    let silence = setTimeout(() => controller.abort(), SILENT_MS);
    try {
      const headers: Record<string, string> = this.token === "" ? {} : { Authorization: `Bearer ${this.token}` };
      const answer = await fetch(this.url, { headers, cache: "no-store", signal: controller.signal });
      if (!answer.ok || answer.body === null) return this.refused(answer);
      const parse = this.parser();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        clearTimeout(silence);
        silence = setTimeout(() => controller.abort(), SILENT_MS);
        parse(value);
      }
      this.report({ state: "lost", cause: "the console closed the connection" });
    } catch {
      this.report({ state: "lost", cause: controller.signal.aborted ? "the console is silent" : "the console does not answer" });
    } finally {
      clearTimeout(silence);
    }
    return this.backoff();
  }

  private refused(answer: Response): number {
    const denied = answer.status === 401 || answer.status === 403;
    this.report({ state: denied ? "denied" : "lost", cause: `the console answers ${answer.status}` });
    void answer.body?.cancel();
    const after = Number(answer.headers.get("Retry-After"));
    return Number.isFinite(after) && after > 0 ? Math.min(after * 1000, 30_000) * (1 + Math.random() / 4) : this.backoff();
  }

  /** Doubles and is jittered, so that pages do not come back all at once. */
  private backoff(): number {
    const most = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.failures++);
    return most * (0.5 + Math.random() / 2);
  }

  private parser(): (text: string) => void {
    let rest = "";
    return (text) => {
      rest += text;
      for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
        this.event(rest.slice(0, end));
        rest = rest.slice(end + 2);
      }
    };
  }

  private event(block: string): void {
    let name = "message";
    let data = "";
    for (const line of block.split("\n")) {
      if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (name === "hello") {
      this.failures = 0;
      this.report({ state: "open", cause: "" });
    }
    this.emit(name, data);
  }
}
