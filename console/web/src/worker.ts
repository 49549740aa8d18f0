// Runs once for all tabs of this console in a browser.

import { type Message, Relay, type Request } from "./relay";

declare const self: { onconnect: ((event: MessageEvent) => void) | null; location: Location };

const relay = new Relay(new URL("../api/v1/stream", self.location.href).href);

self.onconnect = (event) => {
  const port = event.ports[0];
  if (port === undefined) return;
  const listener = (message: Message): void => port.postMessage(message);
  port.onmessage = (request: MessageEvent<Request>) => {
    if (request.data.kind === "token") relay.useToken(request.data.token);
    else relay.remove(listener);
  };
  relay.add(listener);
};
