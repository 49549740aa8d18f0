// Decisions, newest first: time, place, what happened; figures below.

import { element, make } from "./dom";
import { clock } from "./format";
import type { Decision } from "./model";

const MARKS: Record<string, string> = { calm: "○", note: "▲", alarm: "■" };

export function renderFeed(decisions: Decision[]): void {
  const feed = element("feed");
  if (decisions.length === 0) {
    feed.replaceChildren(make("li", "empty", "No decision yet: nothing had to be capped."));
    return;
  }
  feed.replaceChildren(
    ...decisions.map((decision) => {
      const item = make("li", `tone-${decision.tone}`);
      const again = decision.count > 1 ? ` (${decision.count} × since ${clock(decision.sinceMs)})` : "";
      item.append(make("time", "", clock(decision.timeMs)), make("span", "mark-of", MARKS[decision.tone] ?? "▲"), make("div", "", make("b", "", `${decision.domain} ${decision.words}`), again, make("span", "message", decision.message)));
      item.title = decision.id;
      return item;
    }),
  );
}
