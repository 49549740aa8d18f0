// Why one GPU is capped: observed, limit, what lifts it, who has the power, what you can do.

import { getJson } from "./connection";
import { element, make } from "./dom";
import { kilowatts } from "./format";

interface Explanation {
  uuid: string;
  node: string;
  model: string;
  pod: string;
  priority: number;
  drawWatts: number | null;
  limitWatts: number | null;
  requestWatts: number;
  floorWatts: number | null;
  work: string;
  reason: string;
  sentence: string;
  limit: string;
  lifts: string;
  actions: string[];
  holders: { pod: string; priority: number; gpus: number; drawWatts: number }[];
}

export async function explain(uuid: string): Promise<void> {
  const answer = await getJson<Explanation>(`api/v1/explain/gpu/${encodeURIComponent(uuid)}`);
  const why = element("why");
  if (answer === null) {
    why.replaceChildren("No answer from the console for this GPU.");
    return;
  }
  const watts = (value: number | null): string => (value === null ? "unknown" : `${Math.round(value)} W`);
  const facts: [string, string | HTMLElement][] = [
    ["Observed", `draws ${watts(answer.drawWatts)}, limit ${watts(answer.limitWatts)}, asks for ${watts(answer.requestWatts)}${answer.floorWatts === null ? "" : `, promised ${watts(answer.floorWatts)}`}`],
  ];
  if (answer.reason !== "NOT_CAPPED") {
    facts.push(["Limit", answer.limit], ["Lifted when", answer.lifts]);
    if (answer.holders.length > 0) facts.push(["Power goes to", holders(answer)]);
    if (answer.actions.length > 0) facts.push(["You can", list(answer.actions)]);
  }
  if (answer.work) facts.push(["Work", answer.work]);
  const terms = facts.flatMap(([term, fact]) => [make("dt", "", term), make("dd", "", fact)]);
  why.replaceChildren(
    make("p", "why-head", make("strong", "", `${answer.node} · ${answer.model}`), ` ${answer.pod || "no pod"}, priority ${answer.priority}`),
    make("p", "", answer.sentence),
    make("dl", "", ...terms),
  );
}

function holders(answer: Explanation): HTMLElement {
  return list(answer.holders.map((h) => `${h.pod}: ${kilowatts(h.drawWatts)} on ${h.gpus} GPU${h.gpus === 1 ? "" : "s"}, priority ${h.priority}`));
}

function list(lines: string[]): HTMLElement {
  return make("ul", "", ...lines.map((line) => make("li", "", line)));
}
